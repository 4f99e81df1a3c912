"""The frontier section of a report: where a ladder breaks, what a twin is worth, which reply was copied."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path

import jsonschema
import pytest
from msgspec import structs, to_builtins

from longctx.fixtures.cases import plan
from longctx.fixtures.records import Case, CaseResult, FailureKind, Score
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.tasks.questions.read_tasks import SHIPPED
from longctx.fixtures.tasks.ruler.configured import read_ruler
from longctx.plugins.report.document import document, part_means
from longctx.plugins.report.history import StepReport, mean_tracks
from longctx.plugins.report.markdown import markdown
from longctx.plugins.report.scalars import scalars
from longctx.plugins.report.sections.scores import part_table
from longctx.plugins.report.sections.suites import (
    CONTROLS,
    LADDERS,
    frontier_notes,
    question_notes,
    relative_length,
    wording_twins,
)
from longctx.plugins.report.terminal import terminal_summary
from longctx.plugins.runner.results import with_answers_from_memory
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import evaluate
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.outcomes import outcome_of
from tests.helpers.report_records import report_data
from tests.helpers.report_records import report_of as report_from_parts
from tests.helpers.reports import options_of, run_summary
from tests.helpers.tiny_tokenizers import GENERATED

SCORES = {"ladder_mk_basic": 1.0, "ladder_mk_easy": 0.4, "association": 0.25, "association_literal": 0.75}


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
            outcomes=tuple(outcome_of(index, score_of(case.task, index, scores)) for index in range(4)),
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
    assert report.frontier is not None
    assert report.frontier.categories["graphs"] == {"4096": 100}
    assert CONTROLS not in report.frontier.categories
    assert report.frontier.categories["association"] == {"4096": 62.5}
    assert report.helmet is None
    assert set(report.ruler.scores.values()) == {None}
    assert scalars(report)["frontier/association/4k"] == 62.5
    tracks = mean_tracks([StepReport(step=1, path=Path("a"), document=report)])
    assert {track.name: track.values for track in tracks}["frontier association"] == (62.5,)


def test_the_findings_name_the_rung_the_twin_and_the_reply(report: JsonReport) -> None:
    lines = [note.text for note in frontier_notes(report)]
    assert "ladder mk at 4K: breaks at copy (find 100.0, copy 40.0, copy and solve 100.0, solve 100.0)" in lines
    assert "ladder mv at 4K: no rung breaks (find 100.0, copy 100.0, copy and select 100.0, select 100.0)" in lines
    assert "association at 4K: +50.0 for its twin association_literal" in lines
    assert "mrcr_4 at 4K: code in 100 % of the answers, 1 of 4 copy another reply" in lines
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


def twin_result(case: Case, values: Mapping[int, float]) -> CaseResult:
    outcomes = tuple(outcome_of(index, Score(value=value)) for index, value in values.items())
    return CaseResult(case=case, outcomes=outcomes, seconds=1.0, error=None if values else "no memory")


def twin_cases(tmp_path: Path) -> Mapping[str, Case]:
    """Return the cases of a tasks file with two of RULER's tasks in two wordings, and one with samples of its own."""
    file = tmp_path / "own.toml"
    tables = []
    for name, category in product(("vt", "cwe"), ("old", "new")):
        tables.append(
            f'[[ruler]]\nname = "{name}_{category}"\nbase = "{name}"\ncategory = "{category}"\nsame_samples = true'
        )
    tables.append('[[ruler]]\nname = "fwe_old"\nbase = "fwe"\ncategory = "old"')
    file.write_text("\n".join(tables))
    tasks = {task.name: task for _, task in read_ruler(file)}
    cases = plan(options_of(suite="tasks", lengths=(4096,), samples=8), tasks, GENERATED)
    return {case.task: case for case in cases}


@pytest.mark.parametrize(
    ("vt", "cwe", "expected"),
    [
        # vt loses 100 on 2 of 4 pairs, cwe nothing on 2 pairs: both tasks weigh the same.
        ({0: 0.0, 1: 0.0, 2: 1.0, 3: 1.0}, {0: 1.0, 1: 1.0}, (25.0, 6, {"vt": 50.0, "cwe": 0.0})),
        ({0: 0.0, 9: 0.0}, {}, (None, 0, {"vt": 100.0, "cwe": None})),
    ],
)
def test_wordings_are_compared_on_the_samples_that_both_have_answered(
    tmp_path: Path, vt: Mapping[int, float], cwe: Mapping[int, float], expected: tuple[object, int, object]
) -> None:
    cases, all_right = twin_cases(tmp_path), dict.fromkeys(range(8), 1.0)
    values = {"vt_old": all_right, "vt_new": vt, "cwe_old": all_right, "cwe_new": cwe, "fwe_old": all_right}
    results = {case.id: twin_result(case, values[task]) for task, case in cases.items()}
    scope = replace(
        run_summary(suite="frontier", lengths=(4096,), samples=4).evaluation.measured.scope, cases=[*cases.values()]
    )
    (twins,) = wording_twins(Measured(scope=scope, results=results))
    assert (twins.first, twins.second) == ("old", "new")
    pairs = twins.total.pairs if twins.total else 0
    differences = {task: each and each.difference for task, each in twins.tasks.items()}
    assert (twins.total and twins.total.difference, pairs, differences) == expected
    (note,) = question_notes(report_from_parts({"wordings": [to_builtins(twins)]}))
    assert ("not measured" in note.text) == (twins.total is None)


def test_samples_that_two_tasks_share_are_measured_one_after_the_other(tmp_path: Path) -> None:
    cases = twin_cases(tmp_path)
    order = Panel("own", 4096, [cases["vt_old"], cases["vt_new"]], seed=0, hypotheses=()).order
    indices = [ref.sample_index for ref in order]
    assert indices[::2] == indices[1::2]


def test_a_failure_that_repeats_the_answer_without_the_text_is_from_memory() -> None:
    tasks = {task.name: task for _, task in read_ruler(SHIPPED / "ruler_sweeps.toml")}
    cases = {case.task: case for case in plan(options_of(suite="tasks", lengths=(4096,), samples=4), tasks, GENERATED)}

    def result(task: str, *answers: tuple[str, FailureKind | None]) -> CaseResult:
        outcomes = []
        for index, (text, failure) in enumerate(answers):
            given = outcome_of(index, Score(value=float(failure is None), failure=failure))
            outcomes.append(structs.replace(given, generation=structs.replace(given.generation, text=text)))
        return CaseResult(case=cases[task], outcomes=tuple(outcomes), seconds=1.0)

    alone = result("qa_1_alone", ("Paris", "wrong"), ("Rome", "wrong"), ("I don't know", "refused"), ("Oslo", None))
    # A line end and a stop do not matter; a right answer, a refusal and another answer stay what they are.
    asked = result(
        "qa_1_documents", ("paris.\nQuestion", "wrong"), ("Bern", "wrong"), ("I don't know", "refused"), ("Oslo", None)
    )
    other = result("qa_2_documents", ("Paris", "wrong"))
    results = {each.case.id: each for each in (alone, asked, other)}
    labelled = with_answers_from_memory(results)
    assert labelled[alone.case.id] == alone
    assert labelled[other.case.id] == other
    kinds = [each.score.failure for each in labelled[asked.case.id].outcomes]
    assert kinds == ["from memory", "wrong", "refused", None]
    assert with_answers_from_memory({asked.case.id: asked}) == {asked.case.id: asked}


def test_named_parts_of_scores_are_shown_beside_them() -> None:
    judged = [outcome_of(index, Score(value=0.5, parts={"fluency": 1.0, "rouge_l": index / 4})) for index in range(2)]
    assert part_means(judged) == {"fluency": 100.0, "rouge_l": 12.5}
    # A part by reference has no name, and one that a score lacks has no mean.
    assert part_means([outcome_of(0, Score(value=1.0, parts={"r": 1.0, "any": 1.0}))]) == {}
    assert part_means([*judged, outcome_of(2, Score(value=0.0, parts={"fluency": 0.0}))]) == {}
    case = {"id": "test_summ[multi_lexsum-4k]", "task": "multi_lexsum", "length": 4096, "parts": {"rouge_l": 12.5}}
    (row,) = part_table(report_from_parts({"cases": [case]})).rows
    assert (row.name, row.cells[0].text) == ("multi_lexsum: rouge-l", "12.5")
