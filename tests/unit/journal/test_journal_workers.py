"""Workers share a journal: each element is done once, and a dead worker's are taken again."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.journal import LEASE_SECONDS, Heartbeat, Journal
from plugins.journal import heartbeat as presence_module
from plugins.journal.claims import owner_of
from plugins.journal.heartbeat import has_ended, worker_file
from plugins.journal.lines import encode
from tests.helpers.journals import SUBJECT, entry, keys, killed, output, read, started, written

FOLDER = SUBJECT.key
# Announces itself, waits until everybody is there, works, and says what it did.
SHARE = """
import random
print("ready", flush=True)
sys.stdin.readline()
elements = [f"{number:08x}" for number in range(200)]
done = []
while claimed := journal.take(elements, 3):
    for element in claimed:
        time.sleep(random.uniform(0.001, 0.004))
        journal.append(entry(element))
        done.append(element)
print(*done)
journal.close()
presence.close()
"""


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def presence(tmp_path: Path) -> Iterator[Heartbeat]:
    with Heartbeat(tmp_path, "run") as here:
        yield here


def foreign(directory: Path, name: str = "far-7-0123abcd", **changes: Any) -> str:
    """A worker's file as another machine would write it."""
    (directory / "workers").mkdir(exist_ok=True)
    worker = {"host": "far boot pid:[1]", "pid": os.getpid(), "started": 1, "run": "run", **changes}
    worker_file(directory, name).write_text(json.dumps(worker))
    return name


def claimed(directory: Path, element: str, content: str) -> Path:
    path = directory / FOLDER / "claims" / element
    path.write_text(content)
    return path


def test_workers_share_a_queue_and_no_element_is_done_twice(tmp_path: Path) -> None:
    workers = [started(SHARE, tmp_path) for _ in range(2)]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    shares = [output(worker).split() for worker in workers]
    assert sorted(shares[0] + shares[1]) == keys(200)
    assert min(map(len, shares)) > 50
    assert list((tmp_path / FOLDER / "claims").iterdir()) == []
    assert list((tmp_path / "workers").iterdir()) == []
    found = read(tmp_path)
    assert (set(found.entries), found.unreadable) == (set(keys(200)), 0)


def test_elements_are_taken_in_order_and_once(tmp_path: Path, presence: Heartbeat) -> None:
    written(tmp_path, entry("bb"))
    journal = Journal(tmp_path, SUBJECT, presence)
    assert journal.take(["aa", "bb", "cc", "cc", "dd"], 2) == ["aa", "cc"]
    with Heartbeat(tmp_path, "run") as other_presence:
        other = Journal(tmp_path, SUBJECT, other_presence)
        assert other.take(["aa", "bb", "cc", "dd"], 9) == ["dd"]
        assert journal.take(["aa", "bb", "cc", "dd"], 9) == []
        other.give_back("dd")
        other.give_back("aa")
        assert journal.take(["aa", "bb", "cc", "dd"], 9) == ["dd"]
        journal.close()
        assert other.take(["aa", "bb", "cc", "dd"], 9) == ["aa", "cc", "dd"]
    with pytest.raises(ValueError, match="not a key"):
        journal.take(["ee", "../ff"], 9)
    assert journal.take(["ee"], 0) == []


def test_a_result_that_came_between_look_and_claim_is_seen(
    tmp_path: Path, presence: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker finishes after this one read the journal and before it claims."""
    journal = Journal(tmp_path, SUBJECT, presence)
    look = os.listdir

    def late(path: Path) -> list[str]:
        if not journal.entries:
            (tmp_path / FOLDER / "late.jsonl").write_bytes(encode(entry("aa")))
        return look(path)

    monkeypatch.setattr(os, "listdir", late)
    assert journal.take(["aa", "bb", "cc"], 2) == ["bb", "cc"]
    assert sorted(path.name for path in (tmp_path / FOLDER / "claims").iterdir()) == ["bb", "cc"]


def test_the_claims_of_a_killed_worker_are_taken_at_once(tmp_path: Path, presence: Heartbeat) -> None:
    killed(tmp_path, "run", ["aa", "bb"])
    journal = Journal(tmp_path, SUBJECT, presence)
    assert journal.take(["aa", "bb", "cc"], 3) == ["aa", "bb", "cc"]
    assert journal.lost == Counter(aa=1, bb=1)
    assert sorted(path.name for path in (tmp_path / FOLDER / "claims").iterdir()) == ["aa", "bb", "cc"]
    for run, lost in (("run", Counter(aa=1, bb=1)), ("tomorrow", Counter())):
        with Heartbeat(tmp_path, run) as other:
            seen = Journal(tmp_path, SUBJECT, other)
            seen.refresh()
            assert seen.lost == lost
    journal.close()
    killed(tmp_path, "run", ["aa"])
    assert journal.take(["aa"], 1) == ["aa"]
    assert journal.lost == Counter(aa=2, bb=1)


def test_what_another_run_lost_is_not_counted(tmp_path: Path, presence: Heartbeat) -> None:
    killed(tmp_path, "yesterday", ["aa"])
    journal = Journal(tmp_path, SUBJECT, presence)
    assert journal.take(["aa"], 1) == ["aa"]
    assert journal.lost == Counter()


def test_a_killed_worker_is_gone_before_anybody_waited_for_it(tmp_path: Path, presence: Heartbeat) -> None:
    """A process that ended stays in the table until its parent asks; a number may be used again."""
    worker = started("print(presence.name, flush=True); time.sleep(60)", tmp_path)
    assert worker.stdout is not None
    name = worker.stdout.readline().strip()
    assert not presence.is_gone(name)
    worker.kill()
    os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert presence.is_gone(name)
    worker.communicate()
    assert presence.is_gone(name)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the start of a process is in /proc")
def test_a_process_that_began_later_is_another_worker(tmp_path: Path, presence: Heartbeat) -> None:
    own = json.loads(worker_file(tmp_path, presence.name).read_text())
    assert not presence.is_gone(foreign(tmp_path, "here-1-00000001", **own))
    assert presence.is_gone(foreign(tmp_path, "here-1-00000002", **{**own, "started": own["started"] + 1}))


def test_a_closed_worker_is_gone_and_its_claims_are_void(tmp_path: Path, presence: Heartbeat) -> None:
    with Heartbeat(tmp_path, "run") as other:
        assert Journal(tmp_path, SUBJECT, other).take(["aa"], 1) == ["aa"]
        assert (presence.is_gone(other.name), presence.run_of(other.name)) == (False, "run")
    assert (presence.is_gone(other.name), presence.run_of(other.name)) == (True, None)
    journal = Journal(tmp_path, SUBJECT, presence)
    assert journal.take(["aa"], 1) == ["aa"]
    assert journal.lost == Counter()
    assert not presence.is_gone(presence.name)
    assert presence.is_gone("../../etc/passwd")


@pytest.mark.parametrize("change", [{}, {"host": 3}])
def test_a_worker_of_another_machine_is_gone_after_a_lease_of_our_clock(tmp_path: Path, change: dict[str, Any]) -> None:
    """Its clock may say anything: only that its file changes counts. So also where its file is damaged."""
    clock = Clock()
    name = foreign(tmp_path, **change)
    file = worker_file(tmp_path, name)
    with Heartbeat(tmp_path, "run", clock=clock) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        claimed(tmp_path, "aa", f"{name}\n")
        for touched in (1.0, 4e9, 2.0):
            os.utime(file, (touched, touched))
            assert journal.take(["aa"], 1) == []
            clock.now += LEASE_SECONDS - 1
            assert journal.take(["aa"], 1) == []
        clock.now += 1
        assert journal.take(["aa"], 1) == ["aa"]
        assert journal.lost == (Counter() if change else Counter(aa=1))


def test_a_claim_without_a_name_waits_for_a_lease(tmp_path: Path) -> None:
    clock = Clock()
    with Heartbeat(tmp_path, "run", lease_seconds=10, clock=clock) as here:
        journal = Journal(tmp_path, SUBJECT, here)
        claimed(tmp_path, "aa", "")
        claimed(tmp_path, "bb", "half-a-na")
        assert journal.take(["aa", "bb"], 2) == []
        clock.now += 10
        assert journal.take(["aa", "bb"], 2) == ["aa", "bb"]


def test_a_claim_renewed_under_a_breaker_stays(
    tmp_path: Path, presence: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers see the same dead claim; one breaks it and claims before the other renames."""
    journal = Journal(tmp_path, SUBJECT, presence)
    path = claimed(tmp_path, "aa", "dead-1-00000000\n")
    rename = Path.rename

    def late(source: Path, target: Path) -> Path:
        source.write_text("quick-2-00000000\n")
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", late)
    assert journal.take(["aa"], 1) == []
    assert owner_of(path) == "quick-2-00000000"
    assert [each.name for each in path.parent.iterdir()] == ["aa"]


def test_a_worker_that_was_held_up_leaves_its_successors_claim(tmp_path: Path, presence: Heartbeat) -> None:
    journal = Journal(tmp_path, SUBJECT, presence)
    journal.take(["aa"], 1)
    path = claimed(tmp_path, "aa", "successor-2-00000000\n")
    journal.append(entry("aa"))
    assert path.exists()


def test_a_living_worker_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "HEARTBEAT_SECONDS", 0.02)
    with Heartbeat(tmp_path, "run") as here:
        file = worker_file(tmp_path, here.name)
        os.utime(file, (1.0, 1.0))
        assert waited(lambda: file.stat().st_mtime > 1.0)
        file.unlink()
        assert waited(file.exists)
    assert not file.exists()


def waited(holds: Callable[[], bool]) -> bool:
    for _ in range(500):
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_a_forked_child_neither_closes_nor_writes_for_its_parent(tmp_path: Path) -> None:
    script = """
journal.take(["aa"], 1)
child = os.fork()
if not child:
    journal.close()
    presence.close()
    try:
        journal.append(entry("aa"))
    except RuntimeError:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), *os.listdir(journal.folder / "claims"))
print((directory / "workers" / f"{presence.name}.json").exists())
"""
    assert output(started(script, tmp_path)).split() == ["7", "aa", "True"]


def test_only_the_machine_itself_tells_of_its_processes() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    here = presence_module.this_host()
    worker = presence_module.Worker(host=here, pid=ended.pid, started=1, run="run")
    assert has_ended(worker) is True
    assert has_ended(presence_module.Worker(host=f"{here}0", pid=ended.pid, started=1, run="run")) is None
    assert has_ended(presence_module.Worker(host=here, pid=os.getpid(), started=None, run="run")) is None
