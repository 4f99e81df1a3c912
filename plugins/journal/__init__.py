"""The append-only store of results, through which workers share a run and later runs continue it.

    DIR/<subject key>/subject.json       the subject: a model and how it is run
    DIR/<subject key>/<worker>.jsonl     results, one per line; only this worker writes the file
    DIR/<subject key>/claims/<key>       a sample of a run that goes on; contains the name of its worker
    DIR/workers/<worker>.json            a worker's process and run; touched every few seconds while it lives
    DIR/judge/judge-<worker>.jsonl       replies of LLM judges, by a hash of the request; for all subjects

Workers share only a directory, which may be on a network file system. Files are created exclusively, renamed, or
appended to by one process; nothing is locked. A worker claims a sample before it answers it. Two workers may still
answer the same sample, if one was stopped for longer than a lease or a file system shows its files late. Then both
results stay in the files, and all readers choose the same one.

A line is a JSON object whose last field, `crc32`, is a checksum (8 hex digits) of all bytes of the line before that
field. A line with a wrong checksum, or without one, is skipped.

`longctx journal DIR` lists the contents of a journal and deletes old results.
"""

from longctx.plugins.journal.file_system import POLL_SECONDS, VISIBLE_SECONDS, JournalError
from longctx.plugins.journal.heartbeat import LEASE_SECONDS, Heartbeat
from longctx.plugins.journal.lines import Entry, LikelihoodEntry, Subject, likelihood_key, sample_key
from longctx.plugins.journal.store import Journal, JudgeReplies
