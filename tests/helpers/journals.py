"""Journals to test with: entries, subjects, and workers in their own processes."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from longctx.fixtures.records import Score
from longctx.plugins.journal import Entry, Heartbeat, Journal, Subject
from longctx.plugins.journal.heartbeat import worker_file
from tests.helpers.outcomes import generation_of, outcome_of
from tests.helpers.paths import REPOSITORY

TIMEOUT_SECONDS = 300
SUBJECT = Subject(model="models/step_1000", fingerprint="f" * 64, execution={"engine": "hf", "dtype": "bfloat16"})
# The beginning of every worker script: `journal` in the directory and for the run that the arguments name.
WORKER = """
import os, sys, time
from pathlib import Path
from tests.helpers.journals import SUBJECT, entry
from longctx.plugins.journal import Heartbeat, Journal, JournalError
directory, run = Path(sys.argv[1]), sys.argv[2]
heartbeat = Heartbeat(directory, run)
journal = Journal(directory, SUBJECT, heartbeat)
"""


def computed_samples(journal: Path) -> Counter[str]:
    """Return how often each sample of a journal was answered, by subject and key."""
    return Counter(
        f"{file.parent.name} {line['element']}"
        for file in journal.glob("*/*.jsonl")
        for line in map(json.loads, file.read_text().splitlines())
        if "element" in line
    )


def entry(key: str, text: str = "an answer", *, prompt: str | None = None, case: str = "test_ruler[vt-4k]") -> Entry:
    """Return an entry with a partly correct answer."""
    generation = generation_of(text, 4000, 9, computed_tokens=4009, seconds=0.25)
    score = Score(value=0.5, parts={"v": 1.0, "w": 0.0}, failure="incomplete")
    outcome = outcome_of(3, score, generation=generation, references=("v", "w"), depths=(0.1, 0.9))
    return Entry(key=key, prompt=prompt or f"{key}00", case=case, index=3, outcome=outcome)


def sample_keys(count: int) -> list[str]:
    """Return keys in their order."""
    return [f"{number:08x}" for number in range(count)]


def start_worker(script: str, directory: Path, run: str = "run") -> subprocess.Popen[str]:
    """Start a worker in its own process; the script begins with an open journal."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER + script, str(directory), run],
        cwd=REPOSITORY, env={"PYTHONPATH": str(REPOSITORY)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def worker_output(worker: subprocess.Popen[str]) -> str:
    """Wait for a worker to succeed and return its output."""
    out, err = worker.communicate(timeout=TIMEOUT_SECONDS)
    assert worker.returncode == 0, err
    return out


def kill_worker(directory: Path, run: str, keys: list[str]) -> str:
    """Kill a worker that has claimed the keys, and return its name."""
    script = f"print(heartbeat.name, *journal.claim({keys!r}, 99)); sys.stdout.flush(); time.sleep(60)"
    worker = start_worker(script, directory, run)
    assert worker.stdout is not None
    name, *claimed = worker.stdout.readline().split()
    worker.kill()
    worker.communicate(timeout=TIMEOUT_SECONDS)
    assert claimed == keys
    assert worker_file(directory, name).exists()
    return name


def write_journal(directory: Path, *entries: Entry, subject: Subject = SUBJECT) -> Path:
    """Append the entries as a worker, close the journal and return the worker's file."""
    with closing(Heartbeat(directory, "run")) as heartbeat:
        journal = Journal(directory, subject, heartbeat)
        for item in entries:
            journal.append(item)
        journal.close()
        return directory / subject.key / f"{heartbeat.name}.jsonl"


def read_journal(directory: Path, subject: Subject = SUBJECT) -> Journal:
    """Open a journal read-only and read it."""
    journal = Journal(directory, subject)
    journal.refresh()
    return journal


def load_all(journal: Journal) -> dict[str, Entry]:
    """Return all entries of a journal by key."""
    return dict(journal.entries)


def unreadable_lines(journal: Journal) -> int:
    """Return the number that the lines about damage name."""
    return sum(int(line.partition(".jsonl: ")[2].split()[0]) for line in journal.damage)


class Clock:
    """A clock that a test moves on."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def remote_worker(directory: Path, name: str = "far-7-0123abcd", **changes: Any) -> str:
    """Write a worker's file as another machine would, and return the worker's name."""
    (directory / "workers").mkdir(exist_ok=True)
    worker = {"host": "far boot", "run": "run", **changes}
    worker_file(directory, name).write_text(json.dumps(worker))
    return name
