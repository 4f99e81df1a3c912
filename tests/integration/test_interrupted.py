"""A run that SIGTERM ends: the samples so far are shown and kept, open gates are not measured, nothing is an error."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import UNRELATED_PLUGINS, calibration_checkpoint
from tests.helpers.servers import ChatServer, needles_within

PATIENCE_SECONDS = 600
# The requests before the run and the canaries included.
ANSWERED = 50


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    """A run of two lengths that got SIGTERM twice after some answers: its folder, its output and its exit code."""
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
                str(preloaded("pytest")), *UNRELATED_PLUGINS, "-q", f"--journal={folder}/journal",
                f"--base-url={server.url}",
                f"--junitxml={folder}/junit.xml", *options, *reports,
            ],
            cwd=REPOSITORY, env=dict(os.environ), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        ended = time.monotonic() + PATIENCE_SECONDS
        while len(server.requests) < ANSWERED and run.poll() is None and time.monotonic() < ended:
            time.sleep(0.02)
        # `timeout` sends it twice.
        run.send_signal(signal.SIGTERM)
        run.send_signal(signal.SIGTERM)
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
    tests = list(ElementTree.parse(folder / "junit.xml").iter("testcase"))
    assert {child.tag for case in tests for child in case} <= {"properties", "skipped", "failure"}
    # CI shows a file without a failed test as passed.
    (failed,) = [case for case in tests if case.find("failure") is not None]
    assert failed.attrib["name"] == "run"


def test_all_reports_show_the_scores_so_far(interrupted: tuple[Path, str, int]) -> None:
    folder, output, _ = interrupted
    report = json.loads((folder / "report.json").read_text())
    measured = [case for case in report["cases"] if case["score"] is not None]
    assert measured
    samples = sum(case["samples"] for case in report["cases"])
    assert report["run"]["computed_samples"] == samples
    note = f"interrupted: scores from {samples:,} of 520 samples; the same command continues"
    for text in (output, (folder / "report.html").read_text(), (folder / "report.md").read_text()):
        # A line of the terminal is broken where its number of samples makes it longer than 80 columns.
        assert note in " ".join(text.split())


PYTEST = [sys.executable, "-m", "pytest"]
COMMANDS = {
    "one worker": [*PYTEST, "-n1"], "two workers": [*PYTEST, "-n2"], "pytest": PYTEST,
    "longctx run": [sys.executable, "-m", "longctx", "run"],
}  # fmt: skip


@pytest.mark.whole_loop
@pytest.mark.parametrize(
    ("command", "share"), [*zip(itertools.cycle(COMMANDS), [0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])]
)
def test_a_run_that_ends_at_any_moment_keeps_every_answer(command: str, share: float, tmp_path: Path) -> None:
    """`share` is the part of the samples that the journal has at the signal; at 0 the model is not loaded yet."""
    planned = 130
    options = [
        "--model=calibration:full", "--suite=ruler", "--lengths=1k", "--samples=10", "--full", "-q",
        f"--journal={tmp_path}/journal", f"--report-json={tmp_path}/report.json", f"--junitxml={tmp_path}/junit.xml",
    ]  # fmt: skip
    words = [*COMMANDS[command], *UNRELATED_PLUGINS, *options]

    def stored() -> int:
        lines = [line for file in tmp_path.glob("journal/**/*.jsonl") for line in file.read_text().splitlines()]
        return sum('"outcome"' in line for line in lines)

    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        if not share:
            assert run.stdout is not None
            run.stdout.readline()
        while stored() < share * planned and run.poll() is None:
            time.sleep(0.02)
        run.send_signal(signal.SIGTERM)
        output, _ = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 2, output
    assert "Traceback" not in output
    kept = stored()
    assert kept >= share * planned
    if share:
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["verdict"]["exit_code"] == 2
        assert "<failure" in (tmp_path / "junit.xml").read_text()
    again = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (again.returncode, report["run"]["computed_samples"]) == (report["verdict"]["exit_code"], planned - kept)
