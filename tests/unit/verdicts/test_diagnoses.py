"""A case is called worse, or below its floor, only if that is shown among all cases of a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import Case, CaseResult
from longctx.plugins.thresholds.records import RegressionSettings
from longctx.plugins.verdicts.diagnoses import Diagnosis, diagnoses
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured
from tests.helpers.queues import case, result, scope_of, thresholds
from tests.helpers.scores import evidence_against

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
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
    assert [name for name, diagnosis in by_task.items() if diagnosis.comparison.dropped] == [NAMES[3]]
    dropped, same = by_task[NAMES[3]].comparison, by_task[NAMES[0]].comparison
    assert (dropped.worse, dropped.better, dropped.pairs, dropped.difference) == (30, 0, 60, -50.0)
    assert (same.worse, same.better, same.difference, by_task[NAMES[0]].bad) == (0, 0, 0.0, False)


def failures(bar: float) -> int:
    """Return the number of zeros whose e-value against a floor of 50 reaches `bar`."""
    # Zeros are evidence against a mean of at least a half as ones are against one of at most a half.
    return int((evidence_against(np.ones(100), 0.5, 100) >= math.log(bar)).argmax()) + 1


def test_a_borderline_case_is_bad_alone_and_not_among_many() -> None:
    """The required e-value rises with the number of cases that are tested."""
    borderline, cases = failures(20), cases_of()
    assert borderline < failures(100)
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
    lost = 5
    first, *others = cases_of().values()
    # Cases without a vote do not count among the tests, so each of these has one.
    same = [result(of, *[1.0] * 40, baseline=(*[1.0] * 39, 0.0)) for of in others]
    alone = result(first, *[0.0] * lost, baseline=(1.0,) * lost)
    assert diagnoses_by_task([alone])[first.task].comparison.dropped
    assert not diagnoses_by_task([alone, *same])[first.task].comparison.dropped
    # Cases without pairs are not among the tests.
    assert diagnoses_by_task([alone, *(replace(each, baseline=()) for each in same)])[first.task].comparison.dropped


@pytest.mark.parametrize(("cases", "haystacks"), [(1, 5), (13, 9), (39, 10)])
def test_a_case_that_is_worse_on_all_haystacks_needs_so_many(cases: int, haystacks: int) -> None:
    """docs/verdicts.md states these numbers."""
    first, *others = cases_of(names=tuple(f"t{number:02}" for number in range(cases))).values()
    same = [result(of, *[1.0] * 40, baseline=(*[1.0] * 39, 0.0)) for of in others]
    for lost in (haystacks - 1, haystacks):
        worse = result(first, *[0.0] * lost, baseline=(1.0,) * lost)
        assert diagnoses_by_task([worse, *same])[first.task].comparison.dropped == (lost == haystacks)


@pytest.mark.parametrize(("ones", "below"), [(79, True), (80, False), (81, False)])
def test_a_case_measured_in_full_is_below_its_floor_exactly_if_its_score_is(ones: int, below: bool) -> None:
    (of,) = cases_of(names=("vt",)).values()
    diagnosis = diagnoses_by_task([result(of, *[1.0] * ones, *[0.0] * (100 - ones))], floor=80.0)["vt"]
    assert (diagnosis.below, diagnosis.score) == (below, float(ones))


@settings(deadline=None, derandomize=True, max_examples=25)
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
    compared = diagnosis.comparison
    assert compared.pairs == len(changes)
    assert compared.worse == sum(change < 0 for change in changes)
    assert compared.better == sum(change > 0 for change in changes)
    if not changes:
        assert (compared.difference, compared.interval, compared.dropped) == (None, None, False)
        return
    assert compared.difference == pytest.approx(100 * sum(changes) / len(changes))
    assert compared.difference is not None
    assert compared.interval is not None
    assert -100 <= compared.interval[0] <= compared.difference <= compared.interval[1] <= 100
    assert diagnosis.bad == (diagnosis.below or compared.dropped)


def test_a_case_without_a_score_has_no_diagnosis() -> None:
    whole, failed, empty = cases_of(names=("n1", "n2", "vt")).values()
    by_task = diagnoses_by_task(
        [result(whole, 1.0), result(failed, 0.0, error="out of memory"), result(empty)], floor=50.0
    )
    assert set(by_task) == {"n1"}


def test_a_case_with_a_higher_mean_is_not_worse_however_many_haystacks_are() -> None:
    """28 haystacks lose a little, and four gain so much that the mean is higher."""
    of = case("vt", 1024, 64)
    baseline = (1.0,) * 56 + (0.0,) * 8
    lost = [0.9] * 56
    assert diagnoses_by_task([result(of, *lost, *[0.0] * 8, baseline=baseline)])["vt"].comparison.dropped
    gained = diagnoses_by_task([result(of, *lost, *[1.0] * 8, baseline=baseline)])["vt"].comparison
    assert (gained.haystacks_worse, gained.haystacks_better) == (56, 8)
    assert gained.difference is not None
    assert gained.difference > 0
    assert not gained.dropped
