"""The append-only store of generations, through which workers co-operate and a run is taken up again.

    DIR/<subject key>/subject.json       what was asked to answer
    DIR/<subject key>/<worker>.jsonl     results, one line each; only this worker ever writes the file
    DIR/<subject key>/claims/<element>   work in flight; holds the worker's name
    DIR/workers/<worker>.json            who the worker is; touched every few seconds while it lives
    DIR/judge/judge-<worker>.jsonl       replies of judges, by what they were asked; of all subjects

Workers need nothing but a shared directory, which may be a network file system: files are created
exclusively, renamed, appended to by one process each, and never locked. A result is in the journal
before its claim is removed, so an element without result and without claim is free. Should two
workers answer the same element all the same (a claim was broken although its worker lived on), both
results are kept and every reader chooses the same one.

`python -m plugins.journal DIR` lists what a journal holds and deletes what is old.
"""

from plugins.journal.errors import JournalError
from plugins.journal.heartbeat import HEARTBEAT_SECONDS, LEASE_SECONDS, Heartbeat
from plugins.journal.judge_replies import Replies
from plugins.journal.lines import Entry, Subject, element_name
from plugins.journal.store import Journal

__all__ = [
    "HEARTBEAT_SECONDS",
    "LEASE_SECONDS",
    "Entry",
    "Heartbeat",
    "Journal",
    "JournalError",
    "Replies",
    "Subject",
    "element_name",
]  # fmt: skip
