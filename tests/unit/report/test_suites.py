"""The frontier section of a report: where a ladder breaks, what a twin is worth, which reply was copied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from longctx.fixtures.records import CaseResult, Generation, Outcome, Score
from longctx.fixtures.records.report import JsonReport, report_data
from longctx.plugins.report.document import document
from longctx.plugins.report.history import StepReport, mean_tracks
from longctx.plugins.report.markdown import markdown
from longctx.plugins.report.scalars import scalars
from longctx.plugins.report.sections.suites import (
    CONTROLS,
    LADDERS,
    frontier_means,
    frontier_notes,
    question_notes,
    relative_length,
)
from longctx.plugins.report.terminal import terminal_summary
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import evaluate
from tests.helpers.report_records import report_of as report_from_parts
from tests.helpers.reports import run_summary

SCORES = {"ladder_mk_basic": 1.0, "ladder_mk_easy": 0.4, "association": 0.25, "association_literal": 0.75}


def outcome(index: int, score: Score) -> Outcome:
    generation = Generation(
        text="x", prompt_tokens=9, generated_tokens=1, computed_tokens=9, reused_tokens=0, finish="stop", seconds=0.1
    )
    return Outcome(index=index, score=score, generation=generation, references=("r",), depths=())


def score_of(task: str, index: int, scores: Mapping[str, float]) -> Score:
    if task.startswith("mrcr"):
        # The first answer copies the second reply for the first one.
        copied = 2.0 if index == 0 else 1.0
        parts = {"code": 1.0, "ratio": 0.1, "wanted": 1.0, "copied": copied}
        return Score(value=float(index > 0), parts=parts, failure=None if index else "wrong instance")
    if task == "not_in_text":
        return Score(value=float(index % 2), parts={("absent", "present")[index % 2]: float(index % 2)})
    value = scores.get(task, 1.0)
    return Score(value=value, parts={"r": value}, failure=None if value == 1 else "wrong")


def report_of(scores: Mapping[str, float], unmeasured: Sequence[str] = ()) -> JsonReport:
    """Return the report of a run of the frontier suite at one length; tasks without a given score have 1."""
    summary = run_summary(suite="frontier", lengths=(4096,), samples=4)
    measured = summary.evaluation.measured
    results = {
        case.id: CaseResult(
            case=case,
            outcomes=tuple(outcome(index, score_of(case.task, index, scores)) for index in range(4)),
            seconds=1.0,
        )
        for case in measured.scope.cases
        if case.task not in unmeasured
    }
    evaluation = evaluate(summary.evaluation.thresholds, Measured(scope=measured.scope, results=results))
    return document(replace(summary, evaluation=evaluation))


@pytest.fixture(scope="module")
def report() -> JsonReport:
    return report_of(SCORES)


def test_the_report_is_valid_and_its_means_are_of_its_own(report: JsonReport) -> None:
    schema = json.loads(files("longctx.plugins.report").joinpath("schema.json").read_text())
    jsonschema.validate(report_data(report), schema)
    assert frontier_means(report)["graphs"] == {"4096": 100}
    assert CONTROLS not in frontier_means(report)
    assert frontier_means(report)["association"] == {"4096": 62.5}
    assert report.helmet is None
    assert set(report.ruler.scores.values()) == {None}
    assert scalars(report)["frontier/association/4k"] == 62.5
    tracks = mean_tracks([StepReport(step=1, path=Path("a"), document=report)])
    assert {track.name: track.values for track in tracks}["association"] == (62.5,)


def test_the_findings_name_the_rung_the_twin_and_the_reply(report: JsonReport) -> None:
    lines = [note.text for note in frontier_notes(report)]
    assert "ladder mk at 4K: breaks at copy (find 100.0, copy 40.0, copy and solve 100.0, solve 100.0)" in lines
    assert "ladder mv at 4K: no rung breaks (find 100.0, copy 100.0, copy and select 100.0, select 100.0)" in lines
    assert "association at 4K: +50.0 for its twin association_literal" in lines
    assert "mrcr_4 at 4K: code in 100 % of the answers, 1 of 4 copy another reply (reply 2 in place of 1: 1)" in lines
    assert "not_in_text at 4K: 100.0 where the text tells, 0.0 where it does not" in lines
    shown = " ".join(" ".join(text for text, _ in terminal_summary(report)).split())
    assert lines[0] in shown
    assert "ladder mk at 4K: breaks at copy" in markdown(report)


def test_a_ladder_breaks_at_its_first_rung_below_half() -> None:
    half = {f"ladder_mv_{step}": 0.5 for step in LADDERS["mv"]}
    scores = {"ladder_mk_basic": 0.9, "ladder_mk_easy": 0.499, "ladder_mk_hard": 0.0, **half, "ladder_qa_easy": 0.0}
    frontier = report_of(scores, unmeasured=["ladder_qa_basic"]).frontier
    assert frontier is not None
    assert {ladder.ladder: ladder.breaks_at for ladder in frontier.ladders} == {"mk": "copy", "mv": None, "qa": None}


def test_the_relative_length_keeps_its_share_of_the_shortest_score() -> None:
    assert relative_length({"4096": 20.0, "8192": 17.0, "16384": 16.9}) == 8192
    assert relative_length({"4096": 0.0, "8192": 17.0}) is None
    assert relative_length({"4096": None, "8192": 17.0}) is None
    assert relative_length({}) is None


@pytest.mark.parametrize(("test", "is_advised"), [("test_questions", True), ("test_ruler", False)])
def test_another_metric_is_advised_only_where_a_tasks_file_can_name_one(test: str, is_advised: bool) -> None:
    case = {"id": f"{test}[contracts-1k]", "task": "contracts", "length": 1024, "samples": 20}
    report = report_from_parts({"cases": [{**case, "failures": {"right but wordy": 3}}]})
    lines = [note.text for note in question_notes(report)]
    assert ["contracts at 1k: 3 of 20 answers state the reference" in line for line in lines] == [True] * is_advised
