"""A run that Ctrl-C ends: the samples so far are shown and kept, open gates are not measured, nothing is an error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import PYTEST
from tests.helpers.runs import UNRELATED_PLUGINS, calibration_checkpoint
from tests.helpers.servers import ChatServer, needles_within

PATIENCE_SECONDS = 600
# The requests before the run and the canaries included.
ANSWERED = 50


def heed_interrupts() -> None:
    """Undo what a shell does for a command in the background: ignore SIGINT, in all processes that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """A run of two lengths that got SIGINT after some answers: its folder, its output and its exit code."""
    folder = tmp_path_factory.mktemp("interrupted")
    checkpoint = calibration_checkpoint("full")
    server = ChatServer()
    server.answer = needles_within(4096, checkpoint, delay_seconds=0.1)
    with server.serving(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("COLUMNS", "100")
        names = {"json": "report.json", "html": "report.html", "md": "report.md"}
        reports = [f"--report-{kind}={folder}/{name}" for kind, name in names.items()]
        options = ["--model=calibration:full", "--suite=ruler", "--lengths=1k,2k", "--samples=20", "--full"]
        run = subprocess.Popen(
            [
                str(PYTEST), *UNRELATED_PLUGINS, "-q", f"--journal={folder}/journal", f"--base-url={server.url}",
                f"--junitxml={folder}/junit.xml", *options, *reports,
            ],
            cwd=REPOSITORY, env=dict(os.environ), stdout=subprocess.PIPE, text=True,
            preexec_fn=heed_interrupts,
        )  # fmt: skip
        ended = time.monotonic() + PATIENCE_SECONDS
        while len(server.requests) < ANSWERED and run.poll() is None and time.monotonic() < ended:
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=PATIENCE_SECONDS)
    return folder, output, run.returncode


def test_the_last_line_counts_the_samples_that_are_kept(interrupted: tuple[Path, str, int]) -> None:
    folder, output, code = interrupted
    assert code == 2
    match = re.search(r"interrupted: (\d+) of 520 samples kept; the same command continues", output.splitlines()[-1])
    assert match
    entries = [line for file in (folder / "journal").rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert 0 < int(match[1]) < 520
    assert int(match[1]) <= len(entries)
    assert "Traceback" not in output
    assert "threading.py" not in output


def test_open_gates_are_not_measured_and_no_case_is_an_error(interrupted: tuple[Path, str, int]) -> None:
    folder, output, _ = interrupted
    report = json.loads((folder / "report.json").read_text())
    assert report["run"]["interrupted"] is True
    assert {gate["verdict"] for gate in report["gates"]} == {"not measured"}
    assert all("interrupted after" in gate["reason"] for gate in report["gates"])
    assert "error" not in {case["verdict"] for case in report["cases"]}
    assert "gates: 1 not measured" in output
    outcomes = {child.tag for case in ElementTree.parse(folder / "junit.xml").iter("testcase") for child in case}
    assert outcomes <= {"properties", "skipped"}


def test_all_reports_show_the_scores_so_far(interrupted: tuple[Path, str, int]) -> None:
    folder, output, _ = interrupted
    report = json.loads((folder / "report.json").read_text())
    measured = [case for case in report["cases"] if case["score"] is not None]
    assert measured
    samples = sum(case["samples"] for case in report["cases"])
    assert report["run"]["computed_samples"] == samples
    note = f"interrupted: scores from {samples:,} of 520 samples; the same command continues"
    for text in (output, (folder / "report.html").read_text(), (folder / "report.md").read_text()):
        assert note in text
