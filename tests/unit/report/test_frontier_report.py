"""The frontier section of a report: where a ladder breaks, what a twin is worth, which reply was copied."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fixtures.records import CaseResult, Generation, Outcome, Score
from fixtures.tasks import TASKS
from plugins.gates.evaluate import Measured
from plugins.gates.evaluation import evaluate
from plugins.report.document import document
from plugins.report.frontier import CONTROLS, LADDERS, TWINS, breaking_rung, relative_length
from plugins.report.frontier_lines import frontier_findings, frontier_means
from plugins.report.history import Report, history
from plugins.report.markdown import markdown
from plugins.report.scalars import scalars
from plugins.report.terminal import summary_lines
from tests.helpers.reports import run_summary

SCORES = {"ladder_mk_basic": 1.0, "ladder_mk_easy": 0.4, "association": 0.25, "association_literal": 0.75}


def outcome(index: int, score: Score) -> Outcome:
    generation = Generation(
        text="x", prompt_tokens=9, generated_tokens=1, computed_tokens=9, reused_tokens=0, finish="stop", seconds=0.1
    )
    return Outcome(index=index, score=score, generation=generation, references=("r",), depths=())


def score_of(task: str, index: int) -> Score:
    if task.startswith("mrcr"):
        # The first answer copies the second reply for the first one.
        copied = 2.0 if index == 0 else 1.0
        parts = {"code": 1.0, "ratio": 0.1, "wanted": 1.0, "copied": copied}
        return Score(value=float(index > 0), parts=parts, failure=None if index else "wrong instance")
    if task == "not_in_text":
        return Score(value=float(index % 2), parts={("absent", "present")[index % 2]: float(index % 2)})
    value = SCORES.get(task, 1.0)
    return Score(value=value, parts={"r": value}, failure=None if value == 1 else "wrong")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """A run of the frontier suite at one length, of which every score is known."""
    summary = run_summary(suite="frontier", lengths=(4096,), samples=4)
    measured = summary.evaluation.measured
    results = {
        case.id: CaseResult(
            case=case, outcomes=tuple(outcome(index, score_of(case.task, index)) for index in range(4)), seconds=1.0
        )
        for case in measured.scope.cases
    }
    evaluation = evaluate(summary.evaluation.thresholds, Measured(scope=measured.scope, results=results))
    return document(replace(summary, evaluation=evaluation))


def test_the_report_is_valid_and_its_means_are_of_its_own(report: dict[str, Any]) -> None:
    schema = json.loads(files("plugins.report").joinpath("schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(report)), schema)
    assert frontier_means(report)["graphs"] == {"4096": 100}
    assert CONTROLS not in frontier_means(report)
    assert frontier_means(report)["association"] == {"4096": 62.5}
    assert report["helmet"] is None
    assert set(report["ruler"]["scores"].values()) == {None}
    assert scalars(report)["frontier/association/4k"] == 62.5
    assert {track.name: track.values for track in history([Report(step=1, path=Path("a"), document=report)]).means}[
        "association"
    ] == (62.5,)


def test_the_findings_name_the_rung_the_twin_and_the_reply(report: dict[str, Any]) -> None:
    lines = frontier_findings(report["frontier"])
    assert "ladder mk at 4K: breaks at copy (find 100.0, copy 40.0, copy and solve 100.0, solve 100.0)" in lines
    assert "ladder mv at 4K: no rung breaks (find 100.0, copy 100.0, copy and select 100.0, select 100.0)" in lines
    assert "association at 4K: +50.0 for its twin association_literal" in lines
    assert "mrcr_4 at 4K: code in 100 % of the answers, 1 of 4 copy another reply (reply 2 in place of 1: 1)" in lines
    assert "not_in_text at 4K: 100.0 where the text tells, 0.0 where it does not" in lines
    shown = " ".join(" ".join(text for text, _ in summary_lines(report)).split())
    assert lines[0] in shown
    assert "ladder mk at 4K: breaks at copy" in markdown(report, holds=True)


def test_the_tasks_of_ladders_and_twins_exist() -> None:
    assert {f"ladder_{ladder}_{step}" for ladder, steps in LADDERS.items() for step in steps} <= TASKS.keys()
    assert TWINS.keys() | set(TWINS.values()) <= TASKS.keys()
    assert {name for name, task in TASKS.items() if task.category == CONTROLS} == set(TWINS.values())


def test_a_ladder_breaks_at_its_first_rung_below_half() -> None:
    assert breaking_rung({"find": 90.0, "copy": 49.9, "solve": 0.0}) == "copy"
    assert breaking_rung({"find": 50.0, "copy": 50.0}) is None
    assert breaking_rung({"find": None, "copy": 0.0}) is None


def test_the_relative_length_keeps_its_share_of_the_shortest_score() -> None:
    assert relative_length({"4096": 20.0, "8192": 17.0, "16384": 16.9}) == 8192
    assert relative_length({"4096": 0.0, "8192": 17.0}) is None
    assert relative_length({"4096": None, "8192": 17.0}) is None
    assert relative_length({}) is None
