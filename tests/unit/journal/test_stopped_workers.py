"""A stopped worker loses its claims."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from longctx.plugins.journal import LEASE_SECONDS, Heartbeat, Journal
from longctx.plugins.journal.heartbeat import PAUSE_SECONDS
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


def test_a_stopped_worker_loses_its_claims_and_all_readers_choose_the_same_results(tmp_path: Path) -> None:
    clock = Clock()
    worker = stopped_worker(tmp_path, ["aa", "bb", "cc"])
    with closing(Heartbeat(tmp_path, "run", clock=clock)) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        assert journal.claim(["aa", "bb"], 2) == []
        clock.now += LEASE_SECONDS
        assert journal.claim(["aa", "bb"], 2) == ["aa", "bb"]
        journal.append(entry("aa", "from its successor"))
        continue_worker(worker)
        journal.append(entry("bb", "from its successor"))
        journal.refresh()
        journal.close()
        assert load_all(journal) == load_all(read_journal(tmp_path))
    assert set(journal.entries) == {"aa", "bb", "cc"}


def test_a_worker_that_was_stopped_itself_declares_no_other_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All workers of a terminal are stopped and continued at once, and the first one looks at the claims."""
    clock = Clock()
    name = remote_worker(tmp_path)
    with closing(Heartbeat(tmp_path, "run", clock=clock)) as here:
        assert not here.is_dead(name)
        clock.now += LEASE_SECONDS
        monkeypatch.setattr(here, "_beaten", time.monotonic() - PAUSE_SECONDS)
        assert not here.is_dead(name)
        monkeypatch.setattr(here, "_beaten", time.monotonic())
        assert here.is_dead(name)
