"""The history of a watch loses nothing when its last line is torn, and knows what is no longer on disk."""

import errno
import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from longctx.ci.checkpoint_dirs import Loss
from longctx.ci.watch.history import History, Search, WatchedCheckpoint, locked

MEASUREMENT = WatchedCheckpoint(
    step=1, checkpoint="/run/step-1", fingerprint="f", verdict="fail", failed=("low",), report="r",
    gpu_seconds=1.0, ended="now",
)  # fmt: skip


def gone(known: WatchedCheckpoint, loss: Loss) -> WatchedCheckpoint:
    return structs.replace(known, lost=loss)


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_torn_history_loses_no_complete_line(cut: int) -> None:
    measurements = [structs.replace(MEASUREMENT, step=step, checkpoint=f"/run/step-{step}") for step in (1, 2)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = History(folder)
        for measurement in measurements:
            written.add(measurement)
        data = written.path.read_bytes()
        written.path.write_bytes(data[: max(0, len(data) - cut)])
        complete = written.path.read_bytes().count(b"\n")
        read = History(folder)
        # A last line that lacks only its newline is complete as well.
        assert len(read.measurements) - complete in (0, 1)
        read.add(measurements[1])
        assert "/run/step-2" in History(folder).measurements
        assert len(History(folder).measurements) == len({*read.measurements, "/run/step-2"})


def test_a_restart_knows_the_same_and_retries_errors(tmp_path: Path) -> None:
    first = History(tmp_path)
    first.add(MEASUREMENT)
    assert History(tmp_path).is_settled(Path("/run/step-1"), "f")
    first.add(gone(MEASUREMENT, "deleted"))
    again = History(tmp_path)
    assert again.measurements == first.measurements
    assert not again.is_settled(Path("/run/step-1"), "f")
    first.add(structs.replace(MEASUREMENT, verdict="error"))
    assert first.is_settled(Path("/run/step-1"), "f")
    assert not History(tmp_path).is_settled(Path("/run/step-1"), "f")


def test_a_checkpoint_that_was_renamed_counts_once_and_where_it_is(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add(gone(MEASUREMENT, "deleted"))
    assert history.by_step == [gone(MEASUREMENT, "deleted")]
    moved = structs.replace(MEASUREMENT, checkpoint="/run/step-1-kept")
    history.add(moved)
    assert history.by_step == [moved]
    history.add(gone(moved, "deleted"))
    assert history.by_step == [gone(moved, "deleted")]


def test_a_search_that_was_killed_is_due_again_at_the_next_start(tmp_path: Path) -> None:
    first = History(tmp_path)
    ended = Search(good="g", bad="b", cases=("c",), line="nothing shown")
    killed = structs.replace(ended, line="the search was killed", was_killed=True)
    first.add(ended)
    first.add(killed)
    assert (first.searches, History(tmp_path).searches) == ([ended, killed], [ended])


def test_a_checkpoint_that_passed_stays_a_baseline_unless_it_was_replaced(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    passed = structs.replace(MEASUREMENT, verdict="pass", report=str(report))
    history = History(tmp_path)
    history.add(passed)
    history.add(gone(passed, "deleted"))
    kept = structs.replace(passed, lost="deleted")
    assert (history.lowest_passed, history.last_good(2), history.latest(1)) == (kept, kept, kept)
    history.add(passed)
    history.add(gone(passed, "replaced"))
    assert (history.lowest_passed, history.last_good(2), history.latest(1)) == (None, None, None)


def test_lines_of_earlier_versions_end_no_watch(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add(MEASUREMENT)
    line = json.loads(history.path.read_text())
    screened = line | {"checkpoint": "/run/step-2", "word": "screened", "screen": {"verdict": "no loss"}}
    others: list[object] = [screened, {"event": "noted"}, [], line]
    history.path.write_text("".join(json.dumps(each) + "\n" for each in others))
    assert list(History(tmp_path).measurements) == ["/run/step-1"]


def test_a_file_system_without_locks_is_named_and_the_watch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lines: list[str] = []
    with locked(tmp_path, waits=False, show=lines.append) as holds:
        assert holds
    assert lines == [
        f"the file system of {tmp_path} has no locks (Function not implemented); start only one watch with this --out"
    ]
