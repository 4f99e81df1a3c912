"""The verdict against a baseline rests on a panel's pairs, and a case is called worse only if that is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.records import Case, CaseResult
from plugins.gates.clusters import SampleRef
from plugins.gates.evaluate import GateEvaluator, Measured, blocks
from plugins.gates.hypotheses import build_panels
from plugins.gates.regression import Diagnosis, baseline_scores, diagnoses, regression_verdicts
from plugins.gates.statistics import log_evidence_below, log_evidence_of_drop
from plugins.gates.thresholds import RegressionSettings, Thresholds
from tests.helpers.queues import (
    ASPECTS,
    LENGTHS,
    SimulatedRun,
    case,
    draw_scores,
    evaluator_of,
    outcome,
    result,
    scope_of,
    thresholds,
)

MANY = tuple(case(task, length, 100) for task in ASPECTS for length in LENGTHS)
PAIRED = scope_of(MANY, has_baseline=True)
SHARES = dict.fromkeys(LENGTHS, 0.9)
# Few pairs can neither show nor rule out a loss of 2 points.
COARSE = replace(thresholds(), regression=RegressionSettings(drop=10.0))
SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def compared(shares: Mapping[int, float], *, given: Thresholds = COARSE, **changed: object) -> GateEvaluator:
    """Return the evaluator of a run against a baseline of 90; one model's right answers contain the other's."""
    return evaluator_of(given, PAIRED, shares, baseline=SHARES, **changed)  # type: ignore[arg-type]  # by name


def with_result(evaluator: GateEvaluator, changed: CaseResult | None, name: str) -> GateEvaluator:
    results = {key: old_result for key, old_result in evaluator.measured.results.items() if key != name}
    if changed is not None:
        results[name] = changed
    return GateEvaluator(evaluator.thresholds, replace(evaluator.measured, results=results))


def verdict_words(evaluator: GateEvaluator) -> list[str]:
    return [verdict.verdict for verdict in regression_verdicts(evaluator)]


def test_the_same_scores_pass_early_at_every_length() -> None:
    verdicts = regression_verdicts(compared(SHARES))
    assert [(verdict.name, verdict.length, verdict.verdict) for verdict in verdicts] == [
        ("regression at 1k", 1024, "pass"),
        ("regression at 2k", 2048, "pass"),
        ("regression at 4k", 4096, "pass"),
    ]
    for verdict in verdicts:
        assert (verdict.kind, verdict.measured, verdict.required, verdict.confidence) == (
            "regression",
            0.0,
            -10.0,
            0.99,
        )
        assert verdict.samples < verdict.of == 300
        assert verdict.interval is not None
        assert -10 < verdict.interval[0] <= 0 <= verdict.interval[1]
        assert verdict.reason.endswith(f": no loss of 10 points (0 worse, 0 better of {verdict.samples} pairs)")


def test_without_pairs_a_finished_baseline_is_not_measured_and_a_running_one_is_inconclusive() -> None:
    """A comparison without pairs never passes, even if inconclusive ones count as passed."""
    evaluator = evaluator_of(COARSE, replace(PAIRED, baseline_is_final=True), SHARES)
    verdicts = regression_verdicts(evaluator)
    assert {each.verdict for each in verdicts} == {"not measured"}
    assert all(blocks(each, COARSE, narrowed=False) for each in verdicts)
    assert set(verdict_words(evaluator_of(COARSE, PAIRED, SHARES, most=dict.fromkeys(LENGTHS, 0)))) == {"inconclusive"}


def test_a_drop_fails_only_at_its_length() -> None:
    verdicts = regression_verdicts(compared({1024: 0.9, 2048: 0.6, 4096: 0.95}))
    assert [verdict.verdict for verdict in verdicts] == ["pass", "fail", "pass"]
    dropped = verdicts[1]
    assert dropped.measured is not None
    assert dropped.measured < -15
    assert dropped.interval is not None
    assert dropped.interval[1] < -5
    worse = round(-dropped.measured * dropped.samples / 100)
    assert dropped.reason.endswith(
        f": a loss of more than half of 10 points ({worse} worse, 0 better of {dropped.samples} pairs)"
    )


def test_equal_losses_and_gains_pass() -> None:
    """A tenth of the answers change, half of them for the better."""
    scope = scope_of(MANY, has_baseline=True)
    panel = build_panels(COARSE, scope)["ruler", 1024]
    baseline = draw_scores(panel, dict.fromkeys(panel.cases, 0.5))
    places = {ref: place for place, ref in enumerate(panel.order)}
    changed = {ref: float(places[ref] % 20 == 0) if places[ref] % 10 == 0 else score for ref, score in baseline.items()}
    run = SimulatedRun(panel, {"model": changed, "baseline": baseline})
    measured = Measured(scope=scope, results=run.results(run.run_alone()))
    assert regression_verdicts(GateEvaluator(COARSE, measured))[0].verdict == "pass"


@pytest.mark.parametrize("most", [0, 1, 20])
@pytest.mark.parametrize("counts", ["pass", "fail"])
def test_too_few_pairs_are_inconclusive_and_count_as_configured(most: int, counts: str) -> None:
    given = replace(thresholds(), regression=RegressionSettings(inconclusive=counts))  # type: ignore[arg-type]  # parametrized
    evaluator = compared(SHARES, given=given, most=dict.fromkeys(LENGTHS, most))
    for each in regression_verdicts(evaluator):
        # The model's sample is measured first, so its last one has no pair yet.
        assert (each.verdict, each.samples, each.of) == ("inconclusive", max(0, most - 1), 300)
        assert (each.measured is None) == (most <= 1)
        said = "neither shown nor ruled out: 2 points" if most > 1 else "no sample has a result of both"
        assert said in each.reason
        assert blocks(each, given, narrowed=False) == (counts == "fail")


@pytest.mark.parametrize("share", [0.9, 0.2])
def test_a_failed_case_makes_the_comparison_an_error(share: float) -> None:
    evaluator = compared(dict.fromkeys(LENGTHS, share))
    name = "test_ruler[n2-2048]"
    failed = with_result(evaluator, replace(evaluator.measured.results[name], error="out of memory"), name)
    rest = "pass" if share == 0.9 else "fail"
    assert verdict_words(failed) == [rest, "error", rest]
    broken = regression_verdicts(failed)[1]
    assert (broken.measured, broken.interval, broken.reason) == (None, None, f"{name}: out of memory")
    assert verdict_words(with_result(evaluator, None, name)) == [rest, "error", rest]


def test_a_misfit_makes_the_comparison_an_error() -> None:
    """A misfit is in no queue, so the mean of the pairs is not the panel's."""
    name = "test_ruler[n2-2048]"
    scope = scope_of(MANY, has_baseline=True, misfits={name})
    evaluator = evaluator_of(COARSE, scope, SHARES, baseline=SHARES)
    assert verdict_words(with_result(evaluator, result(case("n2", 2048, 100), error="does not fit"), name)) == [
        "pass", "error", "pass",
    ]  # fmt: skip


def test_without_a_baseline_there_is_no_comparison() -> None:
    assert regression_verdicts(evaluator_of(COARSE, scope_of(MANY), SHARES)) == ()


def test_the_thresholds_file_sets_drop_and_blocking() -> None:
    given = replace(thresholds(), regression=RegressionSettings(drop=35.0, blocking=False))
    verdicts = regression_verdicts(compared(dict.fromkeys(LENGTHS, 0.8), given=given))
    assert [(verdict.verdict, verdict.required, verdict.blocking) for verdict in verdicts] == [
        ("pass", -35.0, False)
    ] * 3


def test_a_full_run_uses_all_pairs() -> None:
    evaluator = evaluator_of(COARSE, scope_of(MANY, has_baseline=True, full=True), SHARES, baseline=SHARES)
    assert [(verdict.verdict, verdict.samples) for verdict in regression_verdicts(evaluator)] == [("pass", 300)] * 3


def test_the_verdict_rests_on_the_pairs_that_stopped_the_run() -> None:
    evaluator = compared({1024: 0.9, 2048: 0.8, 4096: 0.5})
    baseline = baseline_scores(evaluator.measured.results)
    for each, ((_, length), panel) in zip(regression_verdicts(evaluator), evaluator.panels.items(), strict=True):
        analysis = panel.status(evaluator.scores, baseline=baseline).comparison
        assert analysis is not None
        assert (each.length, each.samples) == (length, analysis.samples)
        assert each.verdict == (analysis.decision.verdict if analysis.decision else "inconclusive")


def test_differences_end_with_the_scores_of_the_baseline() -> None:
    of = case("vt", 1024, 4)
    outcomes = (outcome(3, 1.0), outcome(0, 0.25), outcome(2, 0.0))
    compared_result = CaseResult(case=of, outcomes=outcomes, seconds=0.0, baseline=(0.5, 0.5))
    assert compared_result.differences == (0.5, -0.25)
    assert baseline_scores({of.id: compared_result}) == {SampleRef(of.id, 3): 0.5, SampleRef(of.id, 0): 0.5}
    assert replace(compared_result, baseline=()).differences == ()


# Diagnoses of single cases

NAMES = tuple(f"t{number:02}" for number in range(20))


def cases_of(samples: int = 100, names: tuple[str, ...] = NAMES) -> dict[str, Case]:
    return {name: case(name, 1024, samples) for name in names}


def diagnoses_by_task(
    results: list[CaseResult], floor: float | None = None, **regression: float
) -> dict[str, Diagnosis]:
    """Return the diagnoses of a run with these results, keyed by task."""
    scope = scope_of([one.case for one in results], lengths=(1024,))
    floors = {} if floor is None else {one.case.task: floor for one in results}
    given = replace(thresholds(), floors=floors, regression=RegressionSettings(**regression))  # type: ignore[arg-type]  # by name
    evaluator = GateEvaluator(given, Measured(scope=scope, results={one.case.id: one for one in results}))
    return {evaluator.measured.results[name].case.task: diagnosis for name, diagnosis in diagnoses(evaluator).items()}


def test_among_cases_at_their_floor_only_the_bad_one_is_reported() -> None:
    values = {name: [1.0, 1.0, 1.0, 0.0] * 10 for name in NAMES} | {NAMES[7]: [0.0, 1.0] * 20}
    by_task = diagnoses_by_task([result(of, *values[name]) for name, of in cases_of().items()], floor=85.0)
    assert [name for name, diagnosis in by_task.items() if diagnosis.below] == [NAMES[7]]
    assert by_task[NAMES[7]].bad
    assert not by_task[NAMES[0]].bad
    assert {diagnosis.floor for diagnosis in by_task.values()} == {85.0}


def test_among_cases_like_the_baseline_only_the_dropped_one_is_reported() -> None:
    baseline = (1.0, 0.0, 1.0, 1.0) * 15
    values = dict.fromkeys(NAMES, baseline) | {NAMES[3]: (0.0, 0.0, 1.0, 0.0) * 15}
    by_task = diagnoses_by_task([result(of, *values[name], baseline=baseline) for name, of in cases_of().items()])
    assert [name for name, diagnosis in by_task.items() if diagnosis.dropped] == [NAMES[3]]
    assert (by_task[NAMES[3]].flips, by_task[NAMES[3]].pairs, by_task[NAMES[3]].difference) == ((30, 0), 60, -50.0)
    assert (by_task[NAMES[0]].flips, by_task[NAMES[0]].difference, by_task[NAMES[0]].bad) == ((0, 0), 0.0, False)


def failures(bar: float) -> int:
    """Return the number of zeros whose e-value against a floor of 50 reaches `bar`."""
    return next(
        count for count in range(1, 100) if log_evidence_below([0.0] * count, 0.5, population=100) >= math.log(bar)
    )


def test_a_borderline_case_is_bad_alone_and_not_among_many() -> None:
    """The required e-value rises with the number of cases that are tested."""
    borderline, cases = failures(20), cases_of()
    assert log_evidence_below([0.0] * borderline, 0.5, population=100) < math.log(100)
    first, *others = cases.values()
    good = [result(of, *[1.0] * 40) for of in others]
    assert diagnoses_by_task([result(first, *[0.0] * borderline)], floor=50.0)[first.task].below
    assert not diagnoses_by_task([result(first, *[0.0] * borderline), *good], floor=50.0)[first.task].below
    # Beside other discoveries, one more false one is a small share.
    bad = [result(of, *[0.0] * 40) for of in others]
    assert diagnoses_by_task([result(first, *[0.0] * borderline), *bad], floor=50.0)[first.task].below
    # A lower false discovery rate needs more evidence.
    assert not diagnoses_by_task([result(first, *[0.0] * borderline)], floor=50.0, false_discoveries=0.001)[
        first.task
    ].below


def test_a_borderline_loss_is_bad_alone_and_not_among_many() -> None:
    lost = next(count for count in range(1, 100) if log_evidence_of_drop([-1.0] * count) >= math.log(20))
    first, *others = cases_of().values()
    same = [result(of, *[1.0] * 40, baseline=(1.0,) * 40) for of in others]
    alone = result(first, *[0.0] * lost, baseline=(1.0,) * lost)
    assert diagnoses_by_task([alone])[first.task].dropped
    assert not diagnoses_by_task([alone, *same])[first.task].dropped
    # Cases without pairs are not among the tests.
    assert diagnoses_by_task([alone, *(replace(each, baseline=()) for each in same)])[first.task].dropped


@pytest.mark.parametrize(("ones", "below"), [(79, True), (80, False), (81, False)])
def test_a_case_measured_in_full_is_below_its_floor_exactly_if_its_score_is(ones: int, below: bool) -> None:
    (of,) = cases_of(names=("vt",)).values()
    diagnosis = diagnoses_by_task([result(of, *[1.0] * ones, *[0.0] * (100 - ones))], floor=80.0)["vt"]
    assert (diagnosis.below, diagnosis.score) == (below, float(ones))


def test_false_alarms_are_rare() -> None:
    """With all cases exactly at their floor, stopped anywhere, fewer than one run in twenty reports one."""
    alarms = 0
    for seed in range(60):
        random = Random(seed)
        values = {name: random.sample([1.0] * 80 + [0.0] * 20, random.randrange(1, 100)) for name in NAMES[:8]}
        by_task = diagnoses_by_task(
            [result(of, *values[name]) for name, of in cases_of(names=NAMES[:8]).items()], floor=80.0
        )
        alarms += any(diagnosis.below for diagnosis in by_task.values())
    assert alarms <= 3


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=40), st.integers(0, 40), st.booleans())
def test_a_diagnosis_has_the_right_figures(pairs: list[tuple[float, float]], cut: int, floor: bool) -> None:
    values, baseline = [value for value, _ in pairs], tuple(other for _, other in pairs)[:cut]
    diagnosis = diagnoses_by_task(
        [result(case("vt", 1024, 100), *values, baseline=baseline)], floor=50.0 if floor else None
    )["vt"]
    changes = [value - other for value, other in pairs[:cut]]
    assert diagnosis.score == pytest.approx(100 * sum(values) / len(values))
    assert diagnosis.interval is not None
    assert diagnosis.score is not None
    assert 0 <= diagnosis.interval[0] <= diagnosis.score <= diagnosis.interval[1] <= 100
    assert diagnosis.floor == (50.0 if floor else None)
    assert (floor, diagnosis.below) != (False, True)
    assert diagnosis.pairs == len(changes)
    assert diagnosis.flips == (sum(change < 0 for change in changes), sum(change > 0 for change in changes))
    if not changes:
        assert (diagnosis.difference, diagnosis.difference_interval, diagnosis.dropped) == (None, None, False)
        return
    assert diagnosis.difference == pytest.approx(100 * sum(changes) / len(changes))
    assert diagnosis.difference is not None
    assert diagnosis.difference_interval is not None
    assert -100 <= diagnosis.difference_interval[0] <= diagnosis.difference <= diagnosis.difference_interval[1] <= 100
    assert diagnosis.bad == (diagnosis.below or diagnosis.dropped)


def test_a_case_without_a_score_has_no_diagnosis() -> None:
    whole, failed, empty = cases_of(names=("n1", "n2", "vt")).values()
    by_task = diagnoses_by_task(
        [result(whole, 1.0), result(failed, 0.0, error="out of memory"), result(empty)], floor=50.0
    )
    assert set(by_task) == {"n1"}
