"""SIGKILL at random moments, samples that kill their worker and a full disk: no finished result is lost or wrong.

A server answers, so that a restarted worker has no model to load.
"""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import pytest

from benchmarks import kill_runs
from benchmarks.kill_runs import RUN, comparable, finished_samples, run_with_kills, start, strip_seconds
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import (
    ONLY_NEEDLES,
    TIMEOUT_SECONDS,
    UNRELATED_PLUGINS,
    CompletedRun,
    calibration_checkpoint,
    completed_run,
)
from tests.helpers.servers import served_needles

LENGTH = "512"
MODEL = ("--model", "calibration:512")
SMALL = (*MODEL, "--lengths", LENGTH, "--samples", "4", "--full", "-n", "2", *ONLY_NEEDLES)
# A worker sends one request at a time, so that a kill interrupts its work, and the run outlasts a stopped worker.
ANSWER_SECONDS = 0.15
ONE_BY_ONE = (*MODEL, "--lengths", "512,1k", "--batch-size", "1")
POISON = """
import os
import signal
from pathlib import Path

from longctx.plugins.runner.samples import SampleBuilder

TIMES = {times}
sample = SampleBuilder.sample

def poisoned(self, case, index):
    marks = list(Path(__file__).parent.glob("death-*"))
    if case.id == "test_ruler[niah_single_1-512]" and index == 2 and len(marks) < TIMES:
        Path(__file__).with_name(f"death-{{os.getpid()}}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return sample(self, case, index)

SampleBuilder.sample = poisoned
"""
FULL_DISK = """
import errno
import os

from longctx.plugins.journal import lines

write_all = lines.write_all
written = []

def full(descriptor, data):
    written.append(data)
    if len(written) > 4:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write_all(descriptor, data)

lines.write_all = full
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The option for a server that finds needles at most 200 tokens back."""
    serving = served_needles(200, calibration_checkpoint("512"), delay_seconds=ANSWER_SECONDS)
    with serving as option, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kill_runs, "RUN", (*UNRELATED_PLUGINS, *RUN, *ONE_BY_ONE, option))
        yield option


@pytest.fixture(scope="module")
def undisturbed(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(preloaded("python")))
        process = start(folder / "journal", folder / "report.json")
    assert process.wait(TIMEOUT_SECONDS) in (0, 1)
    return folder / "report.json"


@pytest.mark.whole_loop
def test_the_same_command_gives_the_same_report_after_signals(undisturbed: Path, tmp_path: Path) -> None:
    signals = [("worker", SIGKILL), ("worker", SIGSTOP), ("all", SIGKILL)]
    report, received, repeated = run_with_kills(tmp_path, signals, random.Random(f"{RUN}"), most=40)
    assert received == {("worker", "SIGKILL"): 1, ("worker", "SIGSTOP"): 1, ("all", "SIGKILL"): 1}
    assert repeated == 0
    assert report == strip_seconds(comparable(undisturbed))


@pytest.fixture(scope="module")
def complete(server: str, tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    run = completed_run(tmp_path_factory, *SMALL, server)
    assert len({case["score"] for case in run.cases.values()}) > 1
    return run


def test_a_sample_whose_worker_dies_is_retried(
    complete: CompletedRun, server: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A single death of a worker, for example because the system is out of memory, costs no result."""
    run = completed_run(tmp_path_factory, *SMALL, server, plugin=POISON.format(times=1))
    assert len(list(run.folder.glob("death-*"))) == 1
    assert run.counts["retried"] == 1
    assert {"failed", "without a score"}.isdisjoint(run.counts)
    assert run.counts.get("gate fail") == complete.counts.get("gate fail")
    assert (
        strip_seconds(comparable(run.folder / "report.json"))["cases"]
        == (strip_seconds(comparable(complete.folder / "report.json"))["cases"])
    )


@pytest.mark.whole_loop
def test_a_sample_that_kills_every_worker_is_an_error_and_the_rest_is_measured(
    complete: CompletedRun, server: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = completed_run(tmp_path_factory, *SMALL, server, plugin=POISON.format(times=99))
    assert run.exit_code == 1
    broken = {name: case for name, case in run.cases.items() if case["verdict"] == "error"}
    assert list(broken) == [f"niah_single_1-{LENGTH}"]
    assert "workers died over it" in broken[f"niah_single_1-{LENGTH}"]["error"]
    assert len(list(run.folder.glob("death-*"))) == 3
    others = {name: case["score"] for name, case in run.cases.items() if name not in broken}
    assert others == {name: case["score"] for name, case in complete.cases.items() if name not in broken}


@pytest.mark.whole_loop
def test_a_full_disk_is_reported_in_one_line_and_loses_no_finished_sample(
    complete: CompletedRun, server: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = completed_run(tmp_path_factory, *SMALL, server, plugin=FULL_DISK)
    assert run.exit_code == 1
    errors = {case["error"] for case in run.cases.values() if case["verdict"] == "error"}
    assert len(errors) == 1
    assert "No space left on device" in errors.pop()
    assert "Traceback" not in run.output
    stored = finished_samples(run.folder / "journal")
    # Another test may have computed them already, in a journal that both share.
    assert 0 < len(stored) <= sum(case["samples"] for case in complete.report["cases"])
    assert set(stored.values()) == {1}
    again = completed_run(tmp_path_factory, *SMALL, server, "--journal", str(run.folder / "journal"), own_journal=True)
    assert again.report["run"]["computed_samples"] == 24 - len(stored)
    assert Counter(case["verdict"] for case in again.cases.values()) == Counter(
        case["verdict"] for case in complete.cases.values()
    )


@pytest.mark.whole_loop
def test_a_case_without_retries_fails_the_run(server: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = completed_run(
        tmp_path_factory, *SMALL, server, "--max-worker-restart=0", "-k", "niah_single_1",
        plugin=POISON.format(times=99), thresholds="",
    )  # fmt: skip
    assert run.exit_code == 1
    assert run.cases[f"niah_single_1-{LENGTH}"]["verdict"] == "error"
