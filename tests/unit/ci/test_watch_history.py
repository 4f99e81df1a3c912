"""The history of a watch loses nothing when its last line is torn."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.ci.watch.history import History, WatchedCheckpoint


@settings(deadline=None)
@given(st.integers(0, 400))
def test_a_torn_history_loses_no_complete_line(cut: int) -> None:
    measurements = [
        WatchedCheckpoint(
            step=step, checkpoint=f"/run/step-{step}", fingerprint="f", verdict="pass", exit_code=0, failed=(),
            report="r", baseline=None, effective_length=None, gpu_seconds=1.0, ended="now",
        )
        for step in (1, 2)
    ]  # fmt: skip
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
        assert ("/run/step-2", "f") in History(folder).measurements
        assert len(History(folder).measurements) == len({*read.measurements, ("/run/step-2", "f")})
