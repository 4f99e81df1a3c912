"""The history of a watch loses nothing when its last line is torn, and reads what another watch appends."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.ci.watch.history import History, WatchedCheckpoint

MEASUREMENT = WatchedCheckpoint(
    step=1, checkpoint="/run/step-1", fingerprint="f", verdict="fail", exit_code=1, failed=("low",), report="r",
    baseline=None, effective_length=None, gpu_seconds=1.0, ended="now",
)  # fmt: skip


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_torn_history_loses_no_complete_line(cut: int) -> None:
    measurements = [replace(MEASUREMENT, step=step, checkpoint=f"/run/step-{step}") for step in (1, 2)]
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


def test_two_histories_of_one_file_know_the_same(tmp_path: Path) -> None:
    first, second = History(tmp_path), History(tmp_path)
    first.add(MEASUREMENT)
    assert not second.is_settled(Path("/run/step-1"), "f")
    second.refresh()
    assert second.is_settled(Path("/run/step-1"), "f")
    first.mark_gone(MEASUREMENT, "deleted")
    second.refresh()
    assert first.measurements == second.measurements == History(tmp_path).measurements
    assert (second.failures, second.is_settled(Path("/run/step-1"), "f")) == ([], False)
    assert second.gpu_seconds == 1.0


def test_a_line_that_another_watch_is_writing_is_read_once_it_is_complete(tmp_path: Path) -> None:
    written, read = History(tmp_path), History(tmp_path)
    written.add(MEASUREMENT)
    data = written.path.read_bytes()
    written.path.write_bytes(data[:40])
    read.refresh()
    assert read.measurements == {}
    written.path.write_bytes(data)
    for _ in range(2):
        read.refresh()
        assert (list(read.measurements), read.gpu_seconds) == (["/run/step-1"], 1.0)
    # A file that was begun anew is read from its beginning.
    written.path.write_bytes(b"")
    read.refresh()
    assert (read.measurements, read.gpu_seconds) == ({}, 0.0)


def test_an_error_of_another_watch_is_not_retried_but_one_of_an_earlier_start_is(tmp_path: Path) -> None:
    error = replace(MEASUREMENT, verdict="error")
    waiting = History(tmp_path)
    History(tmp_path).add(error)
    waiting.refresh()
    assert waiting.is_settled(Path("/run/step-1"), "f")
    assert not History(tmp_path).is_settled(Path("/run/step-1"), "f")


def test_a_checkpoint_that_passed_stays_a_baseline_unless_it_was_replaced(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("{}")
    passed = replace(MEASUREMENT, verdict="pass", report=str(report))
    history = History(tmp_path)
    history.add(passed)
    history.mark_gone(passed, "deleted")
    kept = replace(passed, is_gone=True, is_deleted=True)
    assert (history.lowest_passed, history.last_good(2), history.latest(1)) == (kept, kept, kept)
    history.add(passed)
    history.mark_gone(passed, "replaced")
    assert (history.lowest_passed, history.last_good(2), history.latest(1)) == (None, None, None)
    assert history.failures == []


def test_a_checkpoint_that_was_moved_and_then_deleted_is_there_once(tmp_path: Path) -> None:
    history = History(tmp_path)
    for step in (2, 7):
        moved = replace(MEASUREMENT, step=step, checkpoint=f"/run/step-{step}", ended=f"day {step}")
        history.add(moved)
        history.mark_gone(moved, "deleted")
    assert [known.step for known in history.by_step] == [7]
    # Two copies on disk are two checkpoints.
    for step in (3, 4):
        history.add(replace(MEASUREMENT, step=step, checkpoint=f"/run/step-{step}"))
    assert [known.step for known in history.by_step] == [3, 4]


def test_lines_of_earlier_versions_end_no_watch(tmp_path: Path) -> None:
    """A checkpoint that was only screened is measured again; alerts had a file and events of their own."""
    (tmp_path / "alerts.jsonl").write_text('{"event": "opened", "alert": 1}\n')
    history = History(tmp_path)
    history.add(MEASUREMENT)
    line = json.loads(history.path.read_text())
    screened = line | {"checkpoint": "/run/step-2", "word": "screened", "screen": {"verdict": "no loss"}}
    history.path.write_text("".join(json.dumps(each) + "\n" for each in (screened, {"event": "noted"}, line)))
    assert list(History(tmp_path).measurements) == ["/run/step-1"]
