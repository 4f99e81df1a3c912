"""A stopped worker loses its claims, and a claim that no worker can have made blocks nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from longctx.plugins.journal import LEASE_SECONDS, Heartbeat, Journal
from longctx.plugins.journal.heartbeat import PAUSE_SECONDS, worker_file
from tests.helpers.journals import (
    SUBJECT,
    Clock,
    entry,
    load_all,
    read_journal,
    remote_worker,
    start_worker,
    worker_output,
)

FOLDER = SUBJECT.key


@pytest.fixture
def heartbeat(tmp_path: Path) -> Iterator[Heartbeat]:
    with Heartbeat(tmp_path, "run") as here:
        yield here


def stopped_worker(directory: Path, keys: list[str]) -> subprocess.Popen[str]:
    """Start a worker that claims the keys, stop it, and return it; continued, it appends results for them."""
    script = f"""
claimed = journal.claim({keys!r}, 99)
print(heartbeat.name, flush=True)
sys.stdin.readline()
for key in claimed:
    journal.append(entry(key, "from the stopped worker"))
journal.close()
heartbeat.close()
"""
    worker = start_worker(script, directory)
    assert worker.stdout is not None
    worker.stdout.readline()
    worker.send_signal(signal.SIGSTOP)
    return worker


def continue_worker(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()
    worker.send_signal(signal.SIGCONT)
    worker_output(worker)


def test_a_stopped_worker_loses_its_claims_and_writes_nothing_twice(tmp_path: Path) -> None:
    clock = Clock()
    worker = stopped_worker(tmp_path, ["aa", "bb", "cc", "dd"])
    with Heartbeat(tmp_path, "run", clock=clock) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        assert journal.claim(["aa", "bb", "cc"], 3) == []
        clock.now += LEASE_SECONDS
        assert journal.claim(["aa", "bb", "cc"], 3) == ["aa", "bb", "cc"]
        journal.append(entry("aa", "from its successor"))
        journal.release("cc")
        continue_worker(worker)
        # One sample is finished, one is claimed, nobody works on one, and one is still its own.
        journal.append(entry("bb", "from its successor"))
        journal.close()
    lines = [line for path in (tmp_path / FOLDER).glob("*.jsonl") for line in path.read_bytes().splitlines()]
    elements = Counter(json.loads(line).get("element") for line in lines)
    assert {key: elements[key] for key in ("aa", "bb", "cc", "dd")} == dict.fromkeys(("aa", "bb", "cc", "dd"), 1)
    texts = {key: item.outcome.generation.text for key, item in load_all(read_journal(tmp_path)).items()}
    successor, stopped = "from its successor", "from the stopped worker"
    assert texts == {"aa": successor, "bb": successor, "cc": stopped, "dd": stopped}


def test_a_worker_that_was_stopped_itself_declares_no_other_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers of a terminal are stopped and continued at once, and the first one looks at the claims."""
    clock = Clock()
    name = remote_worker(tmp_path)
    with Heartbeat(tmp_path, "run", clock=clock) as here:
        assert not here.is_dead(name)
        clock.now += LEASE_SECONDS
        monkeypatch.setattr(here, "_beaten", time.monotonic() - PAUSE_SECONDS)
        assert not here.is_dead(name)
        monkeypatch.setattr(here, "_beaten", time.monotonic())
        assert here.is_dead(name)


@pytest.mark.parametrize("kind", ["directory", "full directory", "dangling link", "link to a file", "pipe"])
def test_a_claim_that_no_worker_can_have_made_blocks_nobody(tmp_path: Path, heartbeat: Heartbeat, kind: str) -> None:
    journal = Journal(tmp_path, SUBJECT, heartbeat)
    path, elsewhere = tmp_path / FOLDER / "claims" / "aa", tmp_path / "elsewhere"
    elsewhere.write_text("content without an end")
    if "directory" in kind:
        path.mkdir()
        if kind == "full directory":
            (path / "file").write_text("content")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere if kind == "link to a file" else tmp_path / "nothing")
    assert journal.claim(["aa"], 1) == ["aa"]
    journal.append(entry("aa"))
    heartbeat.close()
    assert elsewhere.read_text() == "content without an end"
    left = [file.read_text() for file in (tmp_path / FOLDER / "claims").rglob("*") if file.is_file()]
    assert left == (["content"] if kind == "full directory" else [])


def test_a_worker_whose_file_is_a_directory_is_dead(tmp_path: Path, heartbeat: Heartbeat) -> None:
    worker_file(tmp_path, "far-7-0123abcd").mkdir()
    assert heartbeat.is_dead("far-7-0123abcd")
