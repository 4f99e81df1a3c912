"""Runs on two clients of one remote file system, which shows changes late, share a journal and lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import delayed_files
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.servers import forget_keys, served_needles

SAMPLES = 24
IN_FLIGHT = 2
SECONDS = 900
OPTIONS = (
    "--suite=ruler", "--lengths=512", f"--samples={SAMPLES}", "--full", "-k", "niah_single_2",
    f"--batch-size={IN_FLIGHT}", "-q", "-p", "no:cacheprovider",
)  # fmt: skip
NO_DELAYED = delayed_files.missing()
pytestmark = pytest.mark.skipif(NO_DELAYED is not None, reason=str(NO_DELAYED))


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """Yield the directory on which two clients work, mounted by each of them."""
    forget_keys(monkeypatch)
    backing = tmp_path / "backing"
    backing.mkdir()
    one, two = (delayed_files.delayed_mount(backing, tmp_path / name) for name in ("one", "two"))
    with one as first, two as second:
        yield first, second


def start_run(journal: Path, report: Path, *options: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [str(preloaded("pytest")), f"--journal={journal}", f"--report-json={report}", *OPTIONS, *options]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def computed_samples(journal: Path) -> Counter[str]:
    """Return how often each sample was answered."""
    lines = (line for file in journal.glob("*/*.jsonl") for line in file.read_text().splitlines(keepends=True))
    return Counter(json.loads(line)["element"] for line in lines if line.startswith('{"element"') and line[-1] == "\n")


def verdicts(report: Path) -> list[Any]:
    content = json.loads(report.read_text())
    keys = ("name", "verdict", "measured", "interval", "samples")
    cases = [(case["id"], case["score"], case["samples"]) for case in content["cases"]]
    return [*cases, *({key: gate[key] for key in keys} for gate in content["gates"])]


@pytest.mark.whole_loop
def test_two_clients_answer_every_sample_once_and_reach_the_verdict_of_one_process(
    clients: tuple[Path, Path], tmp_path: Path
) -> None:
    model = calibration_checkpoint("full")
    with served_needles(100_000, model, delay_seconds=0.3) as server:
        options = (f"--model={model}", server)
        alone = start_run(tmp_path / "alone", tmp_path / "alone.json", *options)
        runs = [start_run(mount / "journal", tmp_path / f"{mount.name}.json", *options) for mount in clients]
        printed = [run.communicate(timeout=SECONDS)[0] for run in (alone, *runs)]
    assert [run.returncode for run in (alone, *runs)] == [0, 0, 0], printed
    computed = computed_samples(tmp_path / "backing" / "journal")
    assert (len(computed), max(computed.values())) == (SAMPLES, 1)
    assert [verdicts(tmp_path / f"{mount.name}.json") for mount in clients] == 2 * [verdicts(tmp_path / "alone.json")]


@pytest.mark.whole_loop
def test_a_killed_client_costs_at_most_the_samples_that_it_had_in_flight(
    clients: tuple[Path, Path], tmp_path: Path
) -> None:
    model, journal = calibration_checkpoint("full"), tmp_path / "backing" / "journal"
    with served_needles(100_000, model, delay_seconds=0.5) as server:
        killed, other = (
            start_run(mount / "journal", tmp_path / f"{mount.name}.json", f"--model={model}", server)
            for mount in clients
        )
        deadline = time.monotonic() + SECONDS
        while computed_samples(journal).total() < SAMPLES // 4:
            assert time.monotonic() < deadline, "no run has answered"
            time.sleep(0.05)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        printed = other.communicate(timeout=SECONDS)[0]
    assert other.returncode == 0, printed
    computed = computed_samples(journal)
    assert len(computed) == SAMPLES
    # A result that was written just before the kill may not be visible yet when the other client continues.
    assert computed.total() - SAMPLES <= 4 * IN_FLIGHT


@pytest.mark.parametrize("fault", delayed_files.FAULTS)
def test_a_run_on_a_file_system_that_breaks_a_promise_ends_with_one_line(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_keys(monkeypatch)
    (tmp_path / "backing").mkdir()
    model = calibration_checkpoint("full")
    with (
        served_needles(100_000, model) as server,
        delayed_files.delayed_mount(tmp_path / "backing", tmp_path / "mount", fault=fault) as mount,
    ):
        run = start_run(mount, tmp_path / "report.json", f"--model={model}", server)
        printed = run.communicate(timeout=SECONDS)[0]
    lines = [line for line in printed.splitlines() if str(mount) in line]
    assert (run.returncode, len(lines)) == (4, 1), printed
    assert f"--journal: the file system of {mount}" in lines[0]
