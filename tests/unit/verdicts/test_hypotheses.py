"""The hypotheses of a run's panels follow from its gates, cases and thresholds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import Case
from longctx.plugins.evidence.sequential import Hypothesis, NonInferiority
from longctx.plugins.thresholds.records import Gate, RegressionSettings, VerdictSettings
from longctx.plugins.verdicts.hypotheses import Scope, hypothesis_of
from tests.helpers.queues import ASPECTS, LENGTHS, LEVEL, case, evaluator_of, panels_by_length, scope_of, thresholds

CASES = tuple(case(task, length, 100) for task in ASPECTS for length in LENGTHS)
REACH = replace(LEVEL, name="reach", kind="effective_length")
AVERAGE = replace(LEVEL, name="average", kind="weighted_average", rising=True)
NEEDLES = replace(LEVEL, name="needles", aspect="retrieval")


def ids(length: int, *tasks: str) -> frozenset[str]:
    return frozenset(case(task, length).id for task in tasks)


def hypotheses_of(*gates: Gate, scope: Scope | None = None) -> dict[int, tuple[Hypothesis, ...]]:
    panels = panels_by_length(thresholds(*gates), scope or scope_of(CASES))
    return {length: panel.hypotheses for length, panel in panels.items()}


def means_tested(*gates: Gate, scope: Scope | None = None) -> dict[int, list[tuple[frozenset[str], float | None]]]:
    panels = hypotheses_of(*gates, scope=scope)
    assert all(hypothesis.drives_sampling for hypotheses in panels.values() for hypothesis in hypotheses)
    return {
        length: [(hypothesis.case_ids, hypothesis.threshold) for hypothesis in hypotheses]
        for length, hypotheses in panels.items()
    }


def number_of_tests(*gates: Gate, scope: Scope | None = None) -> float:
    """Return the number of tests among which the run's error probability of 1 % is divided."""
    (alpha,) = {
        hypothesis.alpha for hypotheses in hypotheses_of(*gates, scope=scope).values() for hypothesis in hypotheses
    }
    return round(0.01 / alpha, 6)


@pytest.mark.parametrize("gates", [(), (replace(NEEDLES, blocking=False),), (REACH,), (LEVEL,)])
def test_the_whole_suite_is_always_tested(gates: tuple[Gate, ...]) -> None:
    """Every report has the headline. A gate with the same hypothesis, or one that does not block, adds no test."""
    assert means_tested(*gates) == {length: [(ids(length, *ASPECTS), 0.8)] for length in LENGTHS}
    assert number_of_tests(*gates) == 3


def test_the_whole_suite_is_tested_only_at_lengths_with_all_tasks() -> None:
    scope = scope_of([item for item in CASES if (item.task, item.length) != ("vt", 2048)])
    everything = (ids(2048, "n1", "n2"), None)
    panels = means_tested(scope=scope)
    assert panels == {length: [(ids(length, *ASPECTS), 0.8)] for length in LENGTHS} | {2048: [everything]}
    assert number_of_tests(scope=scope) == 2


def test_every_blocking_gate_is_tested_on_its_tasks_and_lengths() -> None:
    gates = (replace(NEEDLES, lengths=(2048,)), replace(LEVEL, tasks=("vt",), above=30.0))
    panels = means_tested(*gates)
    assert panels[1024] == [(ids(1024, *ASPECTS), 0.8), (ids(1024, "vt"), 0.3)]
    assert panels[2048] == [(ids(2048, *ASPECTS), 0.8), (ids(2048, "n1", "n2"), 0.9), (ids(2048, "vt"), 0.3)]
    assert number_of_tests(*gates) == 7


def test_distinct_hypotheses_share_the_error_probability() -> None:
    """One set of cases against two thresholds makes two tests; the same hypothesis of two gates makes one."""
    twice = (NEEDLES, replace(NEEDLES, name="needles again"), replace(NEEDLES, kind="effective_length"))
    assert number_of_tests(*twice) == 6
    assert number_of_tests(*twice, replace(NEEDLES, above=70.0)) == 9
    assert number_of_tests(NEEDLES, AVERAGE) == 6


def test_a_blocking_weighted_average_needs_all_samples() -> None:
    assert means_tested(AVERAGE) == {
        length: [(ids(length, *ASPECTS), 0.8), (ids(length, *ASPECTS), None)] for length in LENGTHS
    }
    panels = evaluator_of(thresholds(AVERAGE), scope_of(CASES), dict.fromkeys(LENGTHS, 1.0))
    assert {len(result.outcomes) for result in panels.measured.results.values()} == {100}
    part = evaluator_of(thresholds(replace(AVERAGE, blocking=False)), scope_of(CASES), dict.fromkeys(LENGTHS, 1.0))
    assert max(len(result.outcomes) for result in part.measured.results.values()) < 40


def test_cases_without_a_gate_are_measured_to_a_precision() -> None:
    extra = case("rag", 2048, 100)
    scope = scope_of([*CASES, extra])
    assert means_tested(scope=scope)[2048] == [(ids(2048, *ASPECTS), 0.8), (ids(2048, "rag"), None)]
    panels = evaluator_of(thresholds(), scope, dict.fromkeys(LENGTHS, 1.0)).measured.results
    assert len(panels[extra.id].outcomes) < 40
    assert len(panels[case("vt", 2048).id].outcomes) < 40
    narrowed = [item for item in CASES if item.task == "n1"]
    alone = {
        precision: evaluator_of(
            replace(thresholds(NEEDLES), verdict=VerdictSettings(precision=precision)),
            scope_of(narrowed, full=precision == 5.0),
            dict.fromkeys(LENGTHS, 0.6),
        ).measured.results.values()
        for precision in (12.5, 5.0, 0.0)
    }
    samples = {precision: {len(result.outcomes) for result in results} for precision, results in alone.items()}
    assert samples[5.0] == samples[0.0] == {100}
    assert all(26 < count < 90 for count in samples[12.5])


def test_a_misfit_is_in_no_queue() -> None:
    misfit = case("n1", 1024).id
    panels = panels_by_length(thresholds(NEEDLES), scope_of(CASES, misfits={misfit}))
    assert misfit not in panels[1024].cases
    assert not any(misfit in hypothesis.case_ids for hypothesis in panels[1024].hypotheses)
    assert [hypothesis.case_ids for hypothesis in panels[1024].hypotheses] == [ids(1024, "n2", "vt"), ids(1024, "n2")]


def test_a_gate_that_is_not_blocking_is_tested_like_the_others() -> None:
    scope = scope_of(CASES)
    given = replace(thresholds(NEEDLES), verdict=VerdictSettings(indifference_zone=2.0))
    panel = panels_by_length(given, scope)[1024]
    assert hypothesis_of(NEEDLES, scope, 1024, panel) is panel.hypotheses[1]
    tracing = replace(LEVEL, aspect="tracing", blocking=False)
    other = Hypothesis(
        case_ids=ids(1024, "vt"),
        threshold=0.5,
        indifference_zone=0.02,
        alpha=panel.hypotheses[0].alpha,
        drives_sampling=False,
    )
    assert hypothesis_of(tracing, scope, 1024, panel) == other
    # A hypothesis that it shares with a blocking gate is the same one.
    assert hypothesis_of(replace(LEVEL, blocking=False), scope, 1024, panel) is panel.hypotheses[0]


def test_the_thresholds_file_sets_alpha_zone_and_drop() -> None:
    given = replace(
        thresholds(),
        verdict=VerdictSettings(confidence=0.95, indifference_zone=1.0),
        regression=RegressionSettings(drop=3.0, blocking=False),
    )
    panels = panels_by_length(given, scope_of(CASES, has_baseline=True, full=True, seed=5))
    hypotheses = {hypothesis for panel in panels.values() for hypothesis in panel.hypotheses}
    assert {round(0.05 / hypothesis.alpha, 6) for hypothesis in hypotheses} == {3}
    assert {hypothesis.indifference_zone for hypothesis in hypotheses} == {0.01}
    pairings = [comparison.hypothesis for panel in panels.values() for comparison in panel.comparisons]
    assert {isinstance(test, NonInferiority) and (test.drop, test.limit(0.5)) for test in pairings} == {(0.03, 0.0225)}
    assert [round(0.05 / hypothesis.alpha, 6) for hypothesis in pairings] == [3, 3, 3]
    assert all(panel.full for panel in panels.values())
    assert panels[1024].order != panels_by_length(given, scope_of(CASES))[1024].order


def test_pairs_are_tested_only_with_a_baseline() -> None:
    assert not any(panel.comparisons for panel in panels_by_length(thresholds(), scope_of(CASES)).values())
    one = scope_of([item for item in CASES if item.length == 2048], has_baseline=True)
    (panel,) = panels_by_length(thresholds(), one).values()
    (comparison,) = panel.comparisons
    assert comparison.hypothesis.alpha == pytest.approx(0.01)


def test_the_queue_order_depends_on_neither_checkpoint_nor_thresholds() -> None:
    scope = scope_of(CASES)
    others = (replace(scope, claimed_length=None), replace(scope, has_baseline=True), replace(scope, full=True))
    orders = {
        panels_by_length(thresholds(*gates), changed_scope)[1024].order
        for gates in ((), (NEEDLES,))
        for changed_scope in others
    }
    assert orders == {panels_by_length(thresholds(), scope)[1024].order}


@settings(deadline=None, derandomize=True)
@given(st.sets(st.sampled_from(CASES), min_size=1), st.lists(st.sampled_from([LEVEL, NEEDLES, AVERAGE, REACH])))
def test_every_selected_case_has_a_hypothesis(selected: set[Case], gates: list[Gate]) -> None:
    scope = scope_of([item for item in CASES if item in selected])
    panels = panels_by_length(thresholds(*gates), scope)
    assert {name for panel in panels.values() for name in panel.cases} == {item.id for item in selected}
    for panel in panels.values():
        assert frozenset[str]().union(*(hypothesis.case_ids for hypothesis in panel.hypotheses)) == set(panel.cases)
        assert len(set(panel.hypotheses)) == len(panel.hypotheses)
    questions = sum(hypothesis.threshold is not None for panel in panels.values() for hypothesis in panel.hypotheses)
    assert number_of_tests(*gates, scope=scope) == max(1, questions)


@pytest.mark.parametrize(("final", "is_estimated"), [(False, False), (True, True)])
def test_cases_without_a_gate_are_measured_beside_a_finished_baseline(final: bool, is_estimated: bool) -> None:
    """A finished baseline may have few results or none; with one that runs too, the comparison decides."""
    panel = panels_by_length(thresholds(), scope_of(CASES[:1], has_baseline=True, baseline_is_final=final))[
        CASES[0].length
    ]
    assert (panel.hypotheses[0].case_ids == {CASES[0].id}) is is_estimated
    next_samples = panel.status({}, baseline={}, final_baseline={} if final else None).next_samples
    assert {role for role, _ in next_samples} == ({"model"} if final else {"model", "baseline"})


def test_a_baseline_that_is_the_best_of_ten_shares_the_error_among_ten() -> None:
    def compared(chosen_from: int) -> NonInferiority:
        scope = replace(scope_of(CASES, has_baseline=True), chosen_from=chosen_from)
        (comparison,) = next(iter(panels_by_length(thresholds(), scope).values())).comparisons
        assert isinstance(comparison.hypothesis, NonInferiority)
        return comparison.hypothesis

    one, ten = (compared(count).confirmation for count in (1, 10))
    assert one is not None
    assert ten is not None
    assert (10 * ten.early, 10 * ten.complete) == pytest.approx((one.early, one.complete))
    assert compared(10).pass_alpha == compared(1).pass_alpha
