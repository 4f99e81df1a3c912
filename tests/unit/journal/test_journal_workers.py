"""Workers share a journal: all samples are computed once, and the samples of a dead worker are claimed again."""

import errno
import fcntl
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from longctx.plugins.journal import LEASE_SECONDS, Heartbeat, Journal
from longctx.plugins.journal import heartbeat as heartbeat_module
from longctx.plugins.journal.heartbeat import PAUSE_SECONDS, worker_file
from tests.helpers.journals import (
    SUBJECT,
    Clock,
    entry,
    kill_worker,
    load_all,
    read_journal,
    remote_worker,
    sample_keys,
    start_worker,
    unreadable_lines,
    worker_output,
    write_journal,
)

FOLDER = SUBJECT.key
# Waits until all workers have started, works, and prints the keys of its samples.
SHARE = """
import random
print("ready", flush=True)
sys.stdin.readline()
keys = [f"{number:08x}" for number in range(200)]
done = []
while claimed := journal.claim(keys, 3):
    for key in claimed:
        time.sleep(random.uniform(0.001, 0.004))
        journal.append(entry(key))
        done.append(key)
print(*done)
journal.close()
heartbeat.close()
"""


@pytest.fixture
def heartbeat(tmp_path: Path) -> Iterator[Heartbeat]:
    with closing(Heartbeat(tmp_path, "run")) as here:
        yield here


@pytest.fixture
def other_heartbeat(tmp_path: Path) -> Iterator[Heartbeat]:
    with closing(Heartbeat(tmp_path, "run")) as other:
        yield other


def claims_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / FOLDER / "claims").iterdir())


def write_claim(directory: Path, key: str, content: str) -> Path:
    path = directory / FOLDER / "claims" / key
    path.write_text(content)
    return path


def go_on(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


def test_workers_share_a_queue_and_compute_no_sample_twice(tmp_path: Path) -> None:
    workers = [start_worker(SHARE, tmp_path) for _ in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        go_on(worker)
    shares = [worker_output(worker).split() for worker in workers]
    assert sorted(shares[0] + shares[1]) == sample_keys(200)
    assert min(map(len, shares)) > 50
    assert claims_in(tmp_path) == []
    assert list((tmp_path / "workers").iterdir()) == []
    journal = read_journal(tmp_path)
    assert (set(journal.entries), unreadable_lines(journal)) == (set(sample_keys(200)), 0)


def test_samples_are_claimed_in_order_and_once(
    tmp_path: Path, heartbeat: Heartbeat, other_heartbeat: Heartbeat
) -> None:
    write_journal(tmp_path, entry("bb"))
    journal, other = (Journal(tmp_path, SUBJECT, each) for each in (heartbeat, other_heartbeat))
    assert journal.claim(["aa", "bb", "cc", "cc", "dd"], 2) == ["aa", "cc"]
    assert other.claim(["aa", "bb", "cc", "dd"], 9) == ["dd"]
    assert journal.claim(["aa", "bb", "cc", "dd"], 9) == []
    other.release("dd")
    other.release("aa")
    assert journal.claim(["aa", "bb", "cc", "dd"], 9) == ["dd"]
    journal.close()
    assert other.claim(["aa", "bb", "cc", "dd"], 9) == ["aa", "cc", "dd"]
    assert journal.claim(["ee"], 0) == []


def test_a_result_that_is_written_just_before_the_claim_is_not_computed_again(
    tmp_path: Path, heartbeat: Heartbeat, other_heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker finishes after this one has read the journal and before it claims."""
    journal, other = (Journal(tmp_path, SUBJECT, each) for each in (heartbeat, other_heartbeat))
    listdir = os.listdir

    def finish_first(path: Path) -> list[str]:
        names = listdir(path)
        monkeypatch.undo()
        other.append(entry(*other.claim(["aa"], 1)))
        return names

    monkeypatch.setattr(os, "listdir", finish_first)
    assert journal.claim(["aa", "bb", "cc"], 2) == ["bb", "cc"]


def test_a_result_that_is_not_visible_yet_is_not_computed_again(
    tmp_path: Path, heartbeat: Heartbeat, other_heartbeat: Heartbeat
) -> None:
    """The claim outlives the result, whose file another machine may see late."""
    first, second = (Journal(tmp_path, SUBJECT, each) for each in (heartbeat, other_heartbeat))
    first.append(entry(*first.claim(["aa"], 1)))
    file = tmp_path / FOLDER / f"{heartbeat.name}.jsonl"
    file.rename(file.with_suffix(".hidden"))
    assert second.claim(["aa"], 1) == []


def test_the_last_worker_removes_all_claims(tmp_path: Path, heartbeat: Heartbeat, other_heartbeat: Heartbeat) -> None:
    heartbeats = (heartbeat, other_heartbeat)
    journals = [Journal(tmp_path, SUBJECT, each) for each in heartbeats]
    for journal, key in zip(journals, ("aa", "bb"), strict=True):
        journal.append(entry(*journal.claim([key], 1)))
    write_claim(tmp_path, "cc", "killed-1-00000000\n")
    for journal, each, left in zip(journals, heartbeats, (["aa", "bb", "cc"], []), strict=True):
        journal.close()
        each.close()
        assert claims_in(tmp_path) == left


def test_the_samples_of_a_killed_worker_are_claimed_again_at_once(tmp_path: Path, heartbeat: Heartbeat) -> None:
    kill_worker(tmp_path, "run", ["aa", "bb"])
    journal = Journal(tmp_path, SUBJECT, heartbeat)
    assert journal.claim(["aa", "bb", "cc"], 3) == ["aa", "bb", "cc"]
    assert journal.lost_claims == Counter(aa=1, bb=1)
    assert claims_in(tmp_path) == ["aa", "bb", "cc"]
    for run, lost in (("run", Counter(aa=1, bb=1)), ("tomorrow", Counter())):
        with closing(Heartbeat(tmp_path, run)) as other:
            seen = Journal(tmp_path, SUBJECT, other)
            seen.refresh()
            assert seen.lost_claims == lost
    journal.close()
    for _ in range(3):
        # Each of them records the death of the one before.
        kill_worker(tmp_path, "run", ["aa"])
    kill_worker(tmp_path, "yesterday", ["dd"])
    assert journal.claim(["aa", "dd"], 2) == ["aa", "dd"]
    assert journal.lost_claims == Counter(aa=4, bb=1)


def test_a_killed_worker_is_dead_before_its_parent_waits_for_it(tmp_path: Path, heartbeat: Heartbeat) -> None:
    """An ended process stays in the process table until its parent waits for it."""
    worker = start_worker("print(heartbeat.name, flush=True); time.sleep(60)", tmp_path)
    assert worker.stdout is not None
    name = worker.stdout.readline().strip()
    assert not heartbeat.is_dead(name)
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert heartbeat.is_dead(name)
    worker.communicate()
    assert heartbeat.is_dead(name)


def test_a_worker_without_a_lock_is_dead_after_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems have no locks; a new file without one must not look like that of a dead worker."""
    clock = Clock()
    with closing(Heartbeat(tmp_path, "run", clock=clock)) as here, monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
        with closing(Heartbeat(tmp_path, "run")) as other:
            patch.undo()
            assert not here.is_dead(other.name)
            clock.now += LEASE_SECONDS
            assert here.is_dead(other.name)


def test_a_closed_worker_is_dead_and_its_claims_are_void(tmp_path: Path, heartbeat: Heartbeat) -> None:
    with closing(Heartbeat(tmp_path, "run")) as other:
        assert Journal(tmp_path, SUBJECT, other).claim(["aa"], 1) == ["aa"]
        assert (heartbeat.is_dead(other.name), heartbeat.run_of(other.name)) == (False, "run")
    assert (heartbeat.is_dead(other.name), heartbeat.run_of(other.name)) == (True, None)
    journal = Journal(tmp_path, SUBJECT, heartbeat)
    assert journal.claim(["aa"], 1) == ["aa"]
    assert journal.lost_claims == Counter()
    assert not heartbeat.is_dead(heartbeat.name)
    assert heartbeat.is_dead("../../etc/passwd")


@pytest.mark.parametrize("change", [{}, {"host": 3}])
def test_a_worker_on_another_machine_is_dead_after_a_lease(tmp_path: Path, change: dict[str, Any]) -> None:
    """The other machine's clock may be wrong and the file may be damaged: only changes of the file count."""
    clock = Clock()
    name = remote_worker(tmp_path, **change)
    file = worker_file(tmp_path, name)
    with closing(Heartbeat(tmp_path, "run", clock=clock)) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        write_claim(tmp_path, "aa", f"{name}\n")
        for touched in (1.0, 4e9, 2.0):
            os.utime(file, (touched, touched))
            assert journal.claim(["aa"], 1) == []
            clock.now += LEASE_SECONDS - 1
            assert journal.claim(["aa"], 1) == []
        clock.now += 1
        assert journal.claim(["aa"], 1) == ["aa"]
        assert journal.lost_claims == (Counter() if change else Counter(aa=1))


def test_a_claim_without_a_name_is_removed_after_a_lease(tmp_path: Path) -> None:
    clock = Clock()
    with closing(Heartbeat(tmp_path, "run", clock=clock)) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        write_claim(tmp_path, "aa", "")
        write_claim(tmp_path, "bb", "half-a-na")
        assert journal.claim(["aa", "bb"], 2) == []
        clock.now += LEASE_SECONDS
        assert journal.claim(["aa", "bb"], 2) == ["aa", "bb"]


def test_a_suspended_worker_keeps_the_claim_of_its_successor(tmp_path: Path, heartbeat: Heartbeat) -> None:
    journal = Journal(tmp_path, SUBJECT, heartbeat)
    journal.claim(["aa"], 1)
    path = write_claim(tmp_path, "aa", "successor-2-00000000\n")
    journal.append(entry("aa"))
    assert path.exists()


def test_a_living_worker_touches_its_file_and_restores_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "HEARTBEAT_SECONDS", 0.02)
    with closing(Heartbeat(tmp_path, "run")) as here:
        file = worker_file(tmp_path, here.name)
        os.utime(file, (1.0, 1.0))
        assert holds_soon(lambda: file.stat().st_mtime > 1.0)
        file.unlink()
        assert holds_soon(file.exists)
    assert not file.exists()


def holds_soon(condition: Callable[[], bool]) -> bool:
    for _ in range(3000):
        if condition():
            return True
        time.sleep(0.02)
    return False


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


def test_a_stopped_worker_loses_its_claims_and_all_readers_choose_the_same_results(tmp_path: Path) -> None:
    clock = Clock()
    worker = stopped_worker(tmp_path, ["aa", "bb", "cc"])
    with closing(Heartbeat(tmp_path, "run", clock=clock)) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        assert journal.claim(["aa", "bb"], 2) == []
        clock.now += LEASE_SECONDS
        assert journal.claim(["aa", "bb"], 2) == ["aa", "bb"]
        journal.append(entry("aa", "from its successor"))
        worker.send_signal(signal.SIGCONT)
        go_on(worker)
        worker_output(worker)
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
