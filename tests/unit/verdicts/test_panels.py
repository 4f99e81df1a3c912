"""Verdicts do not depend on the number, speed and crashes of workers, and no sample is measured needlessly."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from longctx.plugins.evidence.sequential import Hypothesis, InterimAnalysis
from longctx.plugins.evidence.statistics import Decision
from longctx.plugins.verdicts.panels import Comparison, Panel
from tests.helpers.panels import (
    PAIRING,
    SEEDS,
    TASKS,
    fast_settings,
    ids,
    panel_of,
    simulated_runs,
    unmeasured_copy,
    without_case,
)
from tests.helpers.queues import SimulatedRun, case, draw_exact_scores, draw_scores


@fast_settings
@given(simulated_runs(), st.integers(1, 6), SEEDS)
def test_workers_speeds_and_crashes_do_not_change_the_evidence(run: SimulatedRun, workers: int, seed: int) -> None:
    alone, other = run, unmeasured_copy(run)
    expected, status = alone.run_alone(), other.run_shared(workers, Random(seed))
    assert status == expected
    assert status.next_samples == ()
    assert other.evidence(status) == alone.evidence(expected)


@fast_settings
@given(simulated_runs(), st.integers(1, 5), SEEDS)
def test_a_failed_case_does_not_hold_up_the_rest(run: SimulatedRun, workers: int, seed: int) -> None:
    """The evidence on the other cases is that of a panel without the failed one."""
    panel, failing = run.panel, case("a").id
    scores_by_role = {role: without_case(failing, scores) for role, scores in run.truth.items()}
    broken = SimulatedRun(panel, scores_by_role, run.final_baseline)
    status = broken.run_shared(workers, Random(seed))
    assert failing not in status.evidence_counts
    assert status.next_samples == ()
    assume(broken.failed)
    rest = Panel(
        "ruler",
        1024,
        [of for name, of in panel.cases.items() if name != failing],
        seed=0,
        hypotheses=[replace(hypothesis, case_ids=hypothesis.case_ids - {failing}) for hypothesis in panel.hypotheses],
        comparisons=panel.comparisons,
        full=panel.full,
    )
    expected = SimulatedRun(
        rest, scores_by_role, run.final_baseline and without_case(failing, run.final_baseline)
    ).run_alone()
    assert (status.evidence_counts, status.paired_counts, status.comparisons) == (
        expected.evidence_counts,
        expected.paired_counts,
        expected.comparisons,
    )
    for hypothesis, analysis in status.analyses.items():
        assert analysis == expected.analyses[replace(hypothesis, case_ids=hypothesis.case_ids - {failing})]


@fast_settings
@given(simulated_runs())
def test_a_complete_journal_gives_the_verdict_of_the_run_that_stopped_early(run: SimulatedRun) -> None:
    complete = unmeasured_copy(run)
    for role, scores in run.truth.items():
        complete.journal[role] = dict(scores)
    assert complete.status() == run.run_alone()


@fast_settings
@given(simulated_runs(), SEEDS)
def test_a_verdict_never_changes(run: SimulatedRun, seed: int) -> None:
    queue = list(run.truth["model"])
    Random(seed).shuffle(queue)
    before: list[Decision | None] = []
    for ref in queue:
        for role in run.truth:
            run.measure(role, ref)
        now = run.status()
        analyses = [*now.analyses.values(), *now.comparisons.values()]
        decisions = [analysis.decision for analysis in analyses]
        assert all(was in (None, is_now) for was, is_now in zip(before, decisions, strict=False))
        before = decisions


@fast_settings
@given(simulated_runs())
def test_a_hypothesis_gets_the_verdict_that_it_would_get_alone(run: SimulatedRun) -> None:
    together, panel = run.run_alone(), run.panel
    assert set(together.analyses) == {hypothesis for hypothesis in panel.hypotheses if hypothesis.drives_sampling}
    for hypothesis, analysis in together.analyses.items():
        alone = Panel("ruler", 1024, tuple(panel.cases.values()), seed=0, hypotheses=[hypothesis], full=panel.full)
        status = SimulatedRun(alone, {"model": run.truth["model"]}, run.final_baseline).run_alone()
        assert status.analyses == {hypothesis: analysis}


def test_an_early_verdict_leaves_no_case_without_a_score() -> None:
    """Far more clusters than the fewest of a verdict are drawn before each of so many cases has one."""
    tasks = tuple(f"t{number}" for number in range(40))
    panel = panel_of(20, Hypothesis(case_ids=ids(*tasks), threshold=0.0), tasks=tasks)
    panel.comparisons = (Comparison(hypothesis=PAIRING),)
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 1.0))
    status = SimulatedRun(panel, {"model": truth, "baseline": truth}).run_alone()
    assert status.evidence_counts.keys() == status.paired_counts.keys() == panel.cases.keys()
    assert all(analysis.samples < len(panel.order) for analysis in status.analyses.values())


@fast_settings
@given(SEEDS, st.integers(1, 30), st.integers(0, 30), st.sets(st.sampled_from(TASKS), min_size=1))
def test_other_cases_and_more_samples_never_reorder_the_queue(
    seed: int, samples: int, more: int, chosen: set[str]
) -> None:
    large, small = panel_of(samples + more, seed=seed), panel_of(samples, seed=seed, tasks=tuple(sorted(chosen)))
    assert small.order == tuple(ref for ref in large.order if ref.case_id in small.cases and ref.sample_index < samples)
    assert small.queue(ids(*chosen)).refs == small.order
    assert large.queue(ids(*chosen)).refs == tuple(ref for ref in large.order if ref.case_id in small.cases)
    backwards = panel_of(samples, seed=seed, tasks=tuple(sorted(chosen, reverse=True)))
    assert backwards.order == small.order


@pytest.mark.parametrize(("tasks", "minimum"), [(TASKS[:1], 8), (TASKS[:2], 26)])
def test_no_verdict_is_reached_before_the_minimum_of_samples(tasks: tuple[str, ...], minimum: int) -> None:
    panel = panel_of(100, Hypothesis(case_ids=ids(*tasks), threshold=0.0), tasks=tasks)
    ones, zeros = dict.fromkeys(panel.order, 1.0), dict.fromkeys(panel.order, 0.0)
    panel.comparisons = (Comparison(hypothesis=replace(PAIRING, alpha=0.5)),)
    analyses = (panel.analyze(panel.hypotheses[0], ones), panel.analyze_pairs(panel.comparisons[0], zeros, ones))
    assert [(analysis.decision and analysis.decision.verdict, analysis.samples) for analysis in analyses] == [
        ("pass", minimum),
        ("fail", minimum),
    ]


def test_an_unfinished_sample_ends_the_evidence() -> None:
    panel = panel_of(50, Hypothesis(case_ids=ids(*TASKS), threshold=0.5))
    scores = {ref: 1.0 for place, ref in enumerate(panel.order) if place != 30}
    assert panel.analyze(panel.hypotheses[0], scores).samples <= 30
    scores = {ref: 1.0 for place, ref in enumerate(panel.order) if place != 10}
    assert panel.analyze(panel.hypotheses[0], scores) == InterimAnalysis(
        decision=None, samples=10, planned_samples=200, clusters=10
    )
    assert panel.status(scores).next_samples == (("model", panel.order[10]),)


def test_a_full_run_measures_all_samples_of_both_models() -> None:
    panel = panel_of(50, full=True)
    panel.comparisons = (Comparison(hypothesis=PAIRING),)
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 1.0))
    run = SimulatedRun(panel, {"model": truth, "baseline": truth})
    status = run.run_alone()
    assert run.journal == {"model": truth, "baseline": truth}
    (comparison,) = status.comparisons.values()
    assert (comparison.samples, set(status.paired_counts.values())) == (200, {50})


def test_pairs_are_measured_only_as_far_as_needed() -> None:
    panel = panel_of(100, hard := Hypothesis(case_ids=ids(*TASKS), threshold=0.8))
    panel.comparisons = (Comparison(hypothesis=PAIRING),)
    truth = draw_exact_scores(panel, dict.fromkeys(panel.cases, 80))
    run = SimulatedRun(panel, {"model": truth, "baseline": truth})
    status = run.run_alone()
    (comparison,) = status.comparisons.values()
    assert comparison.decision is not None
    assert comparison.decision.verdict == "pass"
    assert (
        len(run.journal["baseline"]) == comparison.samples < status.analyses[hard].samples == len(run.journal["model"])
    )


def test_the_comparison_ends_with_the_results_of_a_finished_baseline() -> None:
    panel = panel_of(100, Hypothesis(case_ids=ids(*TASKS), threshold=0.05))
    panel.comparisons = (Comparison(hypothesis=replace(PAIRING, drop=0.02)),)
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.9))
    known = {ref: truth[ref] for place, ref in enumerate(panel.order) if place != 70}
    run = SimulatedRun(panel, {"model": truth}, final_baseline=known)
    status = run.run_alone()
    assert status.next_samples == ()
    assert list(status.comparisons.values()) == [
        InterimAnalysis(decision=None, samples=70, planned_samples=400, clusters=70)
    ]
    assert len(run.journal["model"]) == 70
