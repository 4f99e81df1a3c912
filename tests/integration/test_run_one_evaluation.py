"""Evaluation from the journal: workers send no results, and the controller reads and evaluates them once."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from longctx.plugins.runner.results import CaseReport
from tests.helpers.runs import CompletedRun, calibration_checkpoint, completed_run
from tests.helpers.servers import served_needles

CASES = 4
SAMPLES = 12
SIZE = ("--model", "calibration:512", "--lengths", "512,1k", "--samples", str(SAMPLES))
SELECTED = ("-k", "niah_single_1 or niah_single_3")
# Counts the operations on stored results in every process. A worker does not decode the lines that it writes.
COUNTS = """
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from longctx.fixtures.records import CaseResult
from longctx.plugins.verdicts.evaluate import GateEvaluator
from longctx.plugins.journal import reading

counts = Counter()

def count(owner, name):
    original = getattr(owner, name)
    def counted(*arguments, **settings):
        counts[name if name != "__init__" else owner.__name__] += 1
        return original(*arguments, **settings)
    setattr(owner, name, counted)

count(CaseResult, "__init__")
count(GateEvaluator, "__init__")
count(reading, "decode_line")

@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    role = "worker" if hasattr(config, "workerinput") else "controller"
    Path(__file__).with_name(f"counts-{role}-{os.getpid()}.json").write_text(json.dumps(counts))
"""


@pytest.fixture(scope="module", params=["0", "2"])
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    with served_needles(512, calibration_checkpoint("512")) as server:
        return completed_run(tmp_path_factory, *SIZE, *SELECTED, server, "-n", request.param, plugin=COUNTS)


def counts(run: CompletedRun, role: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for file in run.folder.glob(f"counts-{role}-*.json"):
        total.update(json.loads(file.read_text()))
    return total


def test_the_controller_evaluates_every_case_once(counted: CompletedRun) -> None:
    controller = counts(counted, "controller")
    assert len(counted.cases) == CASES
    assert controller["CaseResult"] == CASES
    assert controller["GateEvaluator"] == 1
    assert counts(counted, "worker").keys().isdisjoint({"CaseResult", "GateEvaluator"})


def test_the_controller_decodes_every_line_once_and_every_evaluated_result_once_more(counted: CompletedRun) -> None:
    """The first reading indexes the journal. The evaluated results are then read in full from their positions."""
    lines = [line for file in counted.folder.glob("journal/*/*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) > CASES * 8
    results = sum(len(result.outcomes) for result in counted.results.values())
    assert counts(counted, "controller")["decode_line"] == len(lines) + results


def test_workers_send_counts_and_no_results(counted: CompletedRun) -> None:
    assert len(counted.reports) == CASES
    for case, report in counted.reports:
        assert report == CaseReport(
            samples=counted.cases[case.partition("[")[2].rstrip("]")]["samples"],
            computed_samples=report.computed_samples,
            seconds=report.seconds,
            executions=report.executions,
            facts=report.facts,
        )
        assert len(json.dumps(msgspec.to_builtins(report))) < 1500


def test_reports_agree_with_the_journal(counted: CompletedRun) -> None:
    assert sum(case["samples"] for case in counted.cases.values()) <= CASES * SAMPLES
    for case, result in counted.results.items():
        properties = counted.junit_properties(case)
        assert result.score is not None
        assert float(properties["score"]) == pytest.approx(100 * result.score)
        assert int(properties["samples"]) == len(result.outcomes) > 0
