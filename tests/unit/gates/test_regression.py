"""Worse than the baseline? Told for a panel by its pairs, and of single cases only where it was shown."""

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
# Of few pairs a loss of 2 points is neither shown nor ruled out.
COARSE = replace(thresholds(), regression=RegressionSettings(drop=10.0))
SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def compared(shares: Mapping[int, float], *, given: Thresholds = COARSE, **changed: object) -> GateEvaluator:
    """Against a baseline of 90 %; the model's right answers are among the baseline's, or the other way round."""
    return evaluator_of(given, PAIRED, shares, baseline=SHARES, **changed)  # type: ignore[arg-type]  # by name


def with_result(found: GateEvaluator, changed: CaseResult | None, name: str) -> GateEvaluator:
    results = {key: each for key, each in found.measured.results.items() if key != name}
    if changed is not None:
        results[name] = changed
    return GateEvaluator(found.thresholds, replace(found.measured, results=results))


def verdict_words(found: GateEvaluator) -> list[str]:
    return [verdict.verdict for verdict in regression_verdicts(found)]


def test_the_same_answers_pass_at_each_length_and_soon() -> None:
    found = regression_verdicts(compared(SHARES))
    assert [(each.name, each.length, each.verdict) for each in found] == [
        ("regression at 1k", 1024, "pass"),
        ("regression at 2k", 2048, "pass"),
        ("regression at 4k", 4096, "pass"),
    ]
    for each in found:
        assert (each.kind, each.measured, each.required, each.confidence) == ("regression", 0.0, -10.0, 0.99)
        assert each.samples < each.of == 300
        assert each.interval is not None
        assert -10 < each.interval[0] <= 0 <= each.interval[1]
        assert each.reason.endswith(f": no loss of 10 points (0 worse, 0 better of {each.samples} pairs)")


def test_a_finished_baseline_without_results_is_not_measured_and_one_that_ran_out_is_open() -> None:
    """Nothing compared is nothing passed, whatever an open comparison counts as."""
    found = evaluator_of(COARSE, replace(PAIRED, baseline_is_final=True), SHARES)
    verdicts = regression_verdicts(found)
    assert {each.verdict for each in verdicts} == {"not measured"}
    assert all(blocks(each, COARSE, narrowed=False) for each in verdicts)
    assert set(verdict_words(evaluator_of(COARSE, PAIRED, SHARES, most=dict.fromkeys(LENGTHS, 0)))) == {"inconclusive"}


def test_a_planted_drop_fails_where_it_was_planted() -> None:
    found = regression_verdicts(compared({1024: 0.9, 2048: 0.6, 4096: 0.95}))
    assert [each.verdict for each in found] == ["pass", "fail", "pass"]
    dropped = found[1]
    assert dropped.measured is not None
    assert dropped.measured < -15
    assert dropped.interval is not None
    assert dropped.interval[1] < -5
    worse = round(-dropped.measured * dropped.samples / 100)
    assert dropped.reason.endswith(
        f": a loss of more than half of 10 points ({worse} worse, 0 better of {dropped.samples} pairs)"
    )


def test_losses_and_gains_that_balance_are_no_drop() -> None:
    """Every fifth answer changed, half of them for the better."""
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
def test_too_few_pairs_are_inconclusive_and_count_as_the_file_says(most: int, counts: str) -> None:
    given = replace(thresholds(), regression=RegressionSettings(inconclusive=counts))  # type: ignore[arg-type]  # parametrized
    found = compared(SHARES, given=given, most=dict.fromkeys(LENGTHS, most))
    for each in regression_verdicts(found):
        # The model's sample is done first, so its last one has no partner yet.
        assert (each.verdict, each.samples, each.of) == ("inconclusive", max(0, most - 1), 300)
        assert (each.measured is None) == (most <= 1)
        said = "neither shown nor ruled out: 2 points" if most > 1 else "no sample has a result of both"
        assert said in each.reason
        assert blocks(each, given, narrowed=False) == (counts == "fail")


@pytest.mark.parametrize("share", [0.9, 0.2])
def test_a_broken_case_is_an_error_whatever_the_rest_says(share: float) -> None:
    found = compared(dict.fromkeys(LENGTHS, share))
    name = "test_ruler[n2-2048]"
    failed = with_result(found, replace(found.measured.results[name], error="out of memory"), name)
    rest = "pass" if share == 0.9 else "fail"
    assert verdict_words(failed) == [rest, "error", rest]
    broken = regression_verdicts(failed)[1]
    assert (broken.measured, broken.interval, broken.reason) == (None, None, f"{name}: out of memory")
    assert verdict_words(with_result(found, None, name)) == [rest, "error", rest]


def test_a_case_that_cannot_be_built_is_an_error_too() -> None:
    """It has no place in the queue, and no part in the mean: the pooled figure is not the panel's."""
    name = "test_ruler[n2-2048]"
    scope = scope_of(MANY, has_baseline=True, misfits={name})
    found = evaluator_of(COARSE, scope, SHARES, baseline=SHARES)
    assert verdict_words(with_result(found, result(case("n2", 2048, 100), error="does not fit"), name)) == [
        "pass", "error", "pass",
    ]  # fmt: skip


def test_without_a_baseline_there_is_no_such_gate() -> None:
    assert regression_verdicts(evaluator_of(COARSE, scope_of(MANY), SHARES)) == ()


def test_the_file_says_how_much_and_whether_it_blocks() -> None:
    given = replace(thresholds(), regression=RegressionSettings(drop=35.0, blocking=False))
    found = regression_verdicts(compared(dict.fromkeys(LENGTHS, 0.8), given=given))
    assert [(each.verdict, each.required, each.blocking) for each in found] == [("pass", -35.0, False)] * 3


def test_all_pairs_are_used_when_everything_is_asked_for() -> None:
    found = evaluator_of(COARSE, scope_of(MANY, has_baseline=True, full=True), SHARES, baseline=SHARES)
    assert [(each.verdict, each.samples) for each in regression_verdicts(found)] == [("pass", 300)] * 3


def test_pairs_are_those_of_the_workers() -> None:
    """What the verdict is computed from is what stopped the run, in the queue's order and not the cases'."""
    found = compared({1024: 0.9, 2048: 0.8, 4096: 0.5})
    baseline = baseline_scores(found.measured.results)
    for each, ((_, length), panel) in zip(regression_verdicts(found), found.panels.items(), strict=True):
        analysis = panel.status(found.scores, baseline=baseline).comparison
        assert analysis is not None
        assert (each.length, each.samples) == (length, analysis.samples)
        assert each.verdict == (analysis.decision.verdict if analysis.decision else "inconclusive")


def test_a_baseline_ends_where_its_scores_end() -> None:
    of = case("vt", 1024, 4)
    outcomes = (outcome(3, 1.0), outcome(0, 0.25), outcome(2, 0.0))
    found = CaseResult(case=of, outcomes=outcomes, seconds=0.0, baseline=(0.5, 0.5))
    assert found.differences == (0.5, -0.25)
    assert baseline_scores({of.id: found}) == {SampleRef(of.id, 3): 0.5, SampleRef(of.id, 0): 0.5}
    assert replace(found, baseline=()).differences == ()


# One case after the other: what is known of each.

NAMES = tuple(f"t{number:02}" for number in range(20))


def cases_of(samples: int = 100, names: tuple[str, ...] = NAMES) -> dict[str, Case]:
    return {name: case(name, 1024, samples) for name in names}


def known(results: list[CaseResult], floor: float | None = None, **regression: float) -> dict[str, Diagnosis]:
    """By task."""
    scope = scope_of([each.case for each in results], lengths=(1024,))
    floors = {} if floor is None else {each.case.task: floor for each in results}
    given = replace(thresholds(), floors=floors, regression=RegressionSettings(**regression))  # type: ignore[arg-type]  # by name
    found = GateEvaluator(given, Measured(scope=scope, results={each.case.id: each for each in results}))
    return {found.measured.results[name].case.task: each for name, each in diagnoses(found).items()}


def test_of_many_cases_at_their_floor_only_the_bad_one_is_told() -> None:
    values = {name: [1.0, 1.0, 1.0, 0.0] * 10 for name in NAMES} | {NAMES[7]: [0.0, 1.0] * 20}
    found = known([result(of, *values[name]) for name, of in cases_of().items()], floor=85.0)
    assert [name for name, each in found.items() if each.below] == [NAMES[7]]
    assert found[NAMES[7]].bad
    assert not found[NAMES[0]].bad
    assert {each.floor for each in found.values()} == {85.0}


def test_of_many_cases_like_the_baseline_only_the_dropped_one_is_told() -> None:
    baseline = (1.0, 0.0, 1.0, 1.0) * 15
    values = dict.fromkeys(NAMES, baseline) | {NAMES[3]: (0.0, 0.0, 1.0, 0.0) * 15}
    found = known([result(of, *values[name], baseline=baseline) for name, of in cases_of().items()])
    assert [name for name, each in found.items() if each.dropped] == [NAMES[3]]
    assert (found[NAMES[3]].flips, found[NAMES[3]].pairs, found[NAMES[3]].difference) == ((30, 0), 60, -50.0)
    assert (found[NAMES[0]].flips, found[NAMES[0]].difference, found[NAMES[0]].bad) == ((0, 0), 0.0, False)


def failures(bar: float) -> int:
    """How many zeros it takes for evidence of `bar` against a floor of 50."""
    return next(
        count for count in range(1, 100) if log_evidence_below([0.0] * count, 0.5, population=100) >= math.log(bar)
    )


def test_a_borderline_case_is_bad_alone_and_not_among_many() -> None:
    """One in twenty is found at random; the bar rises with the number of cases that are looked at."""
    borderline, cases = failures(20), cases_of()
    assert log_evidence_below([0.0] * borderline, 0.5, population=100) < math.log(100)
    first, *others = cases.values()
    good = [result(of, *[1.0] * 40) for of in others]
    assert known([result(first, *[0.0] * borderline)], floor=50.0)[first.task].below
    assert not known([result(first, *[0.0] * borderline), *good], floor=50.0)[first.task].below
    # It joins others that were found: then one more is a small share of the wrong ones.
    bad = [result(of, *[0.0] * 40) for of in others]
    assert known([result(first, *[0.0] * borderline), *bad], floor=50.0)[first.task].below
    # And a file that asks for fewer false alarms has them.
    assert not known([result(first, *[0.0] * borderline)], floor=50.0, false_discoveries=0.001)[first.task].below


def test_a_borderline_loss_is_bad_alone_and_not_among_many() -> None:
    lost = next(count for count in range(1, 100) if log_evidence_of_drop([-1.0] * count) >= math.log(20))
    first, *others = cases_of().values()
    same = [result(of, *[1.0] * 40, baseline=(1.0,) * 40) for of in others]
    alone = result(first, *[0.0] * lost, baseline=(1.0,) * lost)
    assert known([alone])[first.task].dropped
    assert not known([alone, *same])[first.task].dropped
    # Cases that were not compared are none that could be found by chance.
    assert known([alone, *(replace(each, baseline=()) for each in same)])[first.task].dropped


@pytest.mark.parametrize(("ones", "below"), [(79, True), (80, False), (81, False)])
def test_a_case_measured_in_full_is_below_its_floor_or_not(ones: int, below: bool) -> None:
    (of,) = cases_of(names=("vt",)).values()
    found = known([result(of, *[1.0] * ones, *[0.0] * (100 - ones))], floor=80.0)["vt"]
    assert (found.below, found.score) == (below, float(ones))


def test_false_alarms_are_rare() -> None:
    """Cases exactly at their floor, stopped anywhere: runs with any alarm are fewer than one in twenty."""
    alarms = 0
    for seed in range(60):
        random = Random(seed)
        values = {name: random.sample([1.0] * 80 + [0.0] * 20, random.randrange(1, 100)) for name in NAMES[:8]}
        found = known([result(of, *values[name]) for name, of in cases_of(names=NAMES[:8]).items()], floor=80.0)
        alarms += any(each.below for each in found.values())
    assert alarms <= 3


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=40), st.integers(0, 40), st.booleans())
def test_what_is_known_of_a_case_is_counted_right(pairs: list[tuple[float, float]], cut: int, floor: bool) -> None:
    values, baseline = [value for value, _ in pairs], tuple(other for _, other in pairs)[:cut]
    found = known([result(case("vt", 1024, 100), *values, baseline=baseline)], floor=50.0 if floor else None)["vt"]
    changes = [value - other for value, other in pairs[:cut]]
    assert found.score == pytest.approx(100 * sum(values) / len(values))
    assert found.interval is not None
    assert found.score is not None
    assert 0 <= found.interval[0] <= found.score <= found.interval[1] <= 100
    assert found.floor == (50.0 if floor else None)
    assert (floor, found.below) != (False, True)
    assert found.pairs == len(changes)
    assert found.flips == (sum(change < 0 for change in changes), sum(change > 0 for change in changes))
    if not changes:
        assert (found.difference, found.difference_interval, found.dropped) == (None, None, False)
        return
    assert found.difference == pytest.approx(100 * sum(changes) / len(changes))
    assert found.difference is not None
    assert found.difference_interval is not None
    assert -100 <= found.difference_interval[0] <= found.difference <= found.difference_interval[1] <= 100
    assert found.bad == (found.below or found.dropped)


def test_a_case_without_a_score_is_no_diagnosis() -> None:
    whole, failed, empty = cases_of(names=("n1", "n2", "vt")).values()
    found = known([result(whole, 1.0), result(failed, 0.0, error="out of memory"), result(empty)], floor=50.0)
    assert set(found) == {"n1"}
