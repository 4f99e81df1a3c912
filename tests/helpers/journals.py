"""Journals to test with: entries, subjects, and workers in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fixtures.records import Generation, Outcome, Score
from plugins.journal import Entry, Heartbeat, Journal, Subject
from plugins.journal.heartbeat import worker_file
from tests.helpers.paths import REPOSITORY

TIMEOUT_SECONDS = 60
SUBJECT = Subject(model="models/step_1000", fingerprint="f" * 64, execution={"engine": "hf", "dtype": "bfloat16"})
# What every worker script begins with: `journal` in the directory and the run that its arguments name.
WORKER = """
import os, sys, time
from pathlib import Path
from tests.helpers.journals import SUBJECT, entry
from plugins.journal import Heartbeat, Journal, JournalError
directory, run = Path(sys.argv[1]), sys.argv[2]
presence = Heartbeat(directory, run)
journal = Journal(directory, SUBJECT, presence)
"""


def entry(
    element: str, text: str = "an answer", *, prompt: str | None = None, case: str = "test_ruler[vt-4k]"
) -> Entry:
    generation = Generation(
        text=text,
        prompt_tokens=4000,
        generated_tokens=9,
        computed_tokens=4009,
        reused_tokens=0,
        finish="stop",
        seconds=0.25,
    )
    score = Score(value=0.5, parts={"v": 1.0, "w": 0.0}, failure="incomplete")
    outcome = Outcome(index=3, score=score, generation=generation, references=("v", "w"), depths=(0.1, 0.9))
    return Entry(element=element, prompt=prompt or f"{element}00", case=case, index=3, outcome=outcome)


def keys(count: int) -> list[str]:
    return [f"{number:08x}" for number in range(count)]


def started(script: str, directory: Path, run: str = "run") -> subprocess.Popen[str]:
    """A worker in its own process; it has opened the journal when its script begins."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER + script, str(directory), run],
        cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output(worker: subprocess.Popen[str]) -> str:
    """What a worker printed, once it has ended well."""
    out, err = worker.communicate(timeout=TIMEOUT_SECONDS)
    assert worker.returncode == 0, err
    return out


def killed(directory: Path, run: str, elements: list[str]) -> str:
    """The name of a worker that was killed while it had claimed the elements."""
    worker = started("print(presence.name, *journal.take(sys.argv[3:], 99)); sys.stdout.flush(); time.sleep(60)"
                     .replace("sys.argv[3:]", repr(elements)), directory, run)  # fmt: skip
    assert worker.stdout is not None
    name, *taken = worker.stdout.readline().split()
    worker.kill()
    worker.communicate(timeout=TIMEOUT_SECONDS)
    assert taken == elements
    assert worker_file(directory, name).exists()
    return name


def written(directory: Path, *entries: Entry, subject: Subject = SUBJECT) -> Path:
    """The file of a worker that appended the entries and closed."""
    with Heartbeat(directory, "run") as presence:
        journal = Journal(directory, subject, presence)
        for each in entries:
            journal.append(each)
        journal.close()
        return directory / subject.key / f"{presence.name}.jsonl"


def read(directory: Path, subject: Subject = SUBJECT) -> Journal:
    """What a reader who comes new finds."""
    journal = Journal(directory, subject)
    journal.refresh()
    return journal
