"""Evidence does not depend on who finished what when, and no more is measured than the questions need."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel
from plugins.gates.sequential import Hypothesis, InterimAnalysis
from plugins.gates.statistics import Decision
from tests.helpers.panels import PAIRING, SEEDS, TASKS, ids, panel_of, quickly, restarted, simulated_runs, without
from tests.helpers.queues import SimulatedRun, case, draw_exact_scores, draw_scores


@quickly
@given(simulated_runs(), st.integers(1, 6), SEEDS)
def test_evidence_is_the_same_for_any_number_of_workers_speeds_and_crashes(
    work: SimulatedRun, workers: int, seed: int
) -> None:
    alone, other = work, restarted(work)
    expected, status = alone.run_alone(), other.run_shared(workers, Random(seed))
    assert status == expected
    assert status.next_samples == ()
    assert other.evidence(status) == alone.evidence(expected)


@quickly
@given(simulated_runs(), st.integers(1, 5), SEEDS)
def test_a_failed_case_does_not_hold_up_the_rest(work: SimulatedRun, workers: int, seed: int) -> None:
    """Whoever meets it, the others' evidence is that of a panel without the case."""
    panel, failing = work.panel, case("a").id
    scores_by_role = {role: without(failing, scores) for role, scores in work.truth.items()}
    broken = SimulatedRun(panel, scores_by_role, work.control_variate)
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
        non_inferiority=panel.non_inferiority,
        full=panel.full,
    )
    expected = SimulatedRun(
        rest, scores_by_role, work.control_variate and without(failing, work.control_variate)
    ).run_alone()
    assert (status.evidence_counts, status.paired_counts, status.comparison) == (
        expected.evidence_counts,
        expected.paired_counts,
        expected.comparison,
    )
    for hypothesis, analysis in status.analyses.items():
        assert analysis == expected.analyses[replace(hypothesis, case_ids=hypothesis.case_ids - {failing})]


@quickly
@given(simulated_runs())
def test_a_verdict_needs_no_more_than_its_own_part_of_what_is_known(work: SimulatedRun) -> None:
    """A journal that holds everything gives the verdict of the run that stopped in time."""
    complete = restarted(work)
    for role, scores in work.truth.items():
        complete.journal[role] = dict(scores)
    assert complete.status() == work.run_alone()


@quickly
@given(simulated_runs(), SEEDS)
def test_a_verdict_once_reached_stands(work: SimulatedRun, seed: int) -> None:
    queue = list(work.truth["model"])
    Random(seed).shuffle(queue)
    before: list[Decision | None] = []
    for ref in queue:
        for role in work.truth:
            work.measure(role, ref)
        now = work.status()
        analyses = [*now.analyses.values(), *([now.comparison] if now.comparison else [])]
        decisions = [analysis.decision for analysis in analyses]
        assert all(was in (None, is_now) for was, is_now in zip(before, decisions, strict=False))
        before = decisions


@quickly
@given(simulated_runs())
def test_a_question_gets_the_answer_that_it_would_get_alone(work: SimulatedRun) -> None:
    together, panel = work.run_alone(), work.panel
    assert set(together.analyses) == {hypothesis for hypothesis in panel.hypotheses if hypothesis.drives_sampling}
    for hypothesis, analysis in together.analyses.items():
        alone = Panel("ruler", 1024, tuple(panel.cases.values()), seed=0, hypotheses=[hypothesis], full=panel.full)
        status = SimulatedRun(alone, {"model": work.truth["model"]}, work.control_variate).run_alone()
        assert status.analyses == {hypothesis: analysis}


@quickly
@given(simulated_runs())
def test_an_early_verdict_leaves_no_case_without_a_score(work: SimulatedRun) -> None:
    status = work.run_alone()
    for hypothesis, analysis in status.analyses.items():
        if analysis.decision is not None:
            assert all(status.evidence_counts[name] > 0 for name in hypothesis.case_ids)
    if status.comparison is not None and status.comparison.decision is not None:
        assert all(status.paired_counts[name] > 0 for name in work.panel.cases)


@quickly
@given(SEEDS, st.integers(1, 30), st.integers(0, 30), st.sets(st.sampled_from(TASKS), min_size=1))
def test_other_cases_and_more_samples_never_reorder(seed: int, samples: int, more: int, chosen: set[str]) -> None:
    large, small = panel_of(samples + more, seed=seed), panel_of(samples, seed=seed, tasks=tuple(sorted(chosen)))
    assert small.order == tuple(e for e in large.order if e.case_id in small.cases and e.sample_index < samples)
    assert small.sample_refs(ids(*chosen)) == small.order
    assert large.sample_refs(ids(*chosen)) == tuple(e for e in large.order if e.case_id in small.cases)
    backwards = panel_of(samples, seed=seed, tasks=tuple(sorted(chosen, reverse=True)))
    assert backwards.order == small.order


def test_every_sample_has_one_place_and_cases_are_mixed() -> None:
    order = panel_of(100).order
    assert sorted(order) == sorted(SampleRef(name, index) for name in ids(*TASKS) for index in range(100))
    assert all(sum(ref.case_id == name for ref in order[:200]) in range(30, 71) for name in ids(*TASKS))


def test_another_seed_is_another_order() -> None:
    assert len({panel_of(20, seed=seed).order for seed in range(20)}) == 20


@pytest.mark.parametrize(("tasks", "least"), [(TASKS[:1], 8), (TASKS[:2], 26)])
def test_nothing_is_said_before_a_few_elements(tasks: tuple[str, ...], minimum: int) -> None:
    panel = panel_of(100, Hypothesis(case_ids=ids(*tasks), threshold=0.0), tasks=tasks)
    ones, zeros = dict.fromkeys(panel.order, 1.0), dict.fromkeys(panel.order, 0.0)
    panel.non_inferiority = replace(PAIRING, alpha=0.5)
    analyses = (panel.analyze(panel.hypotheses[0], ones), panel.analyze_pairs(zeros, ones))
    assert [(analysis.decision and analysis.decision.verdict, analysis.samples) for analysis in analyses] == [
        ("pass", minimum),
        ("fail", minimum),
    ]


def test_nothing_is_said_before_the_rarest_case_was_seen() -> None:
    rare, common = case("a", 1024, 1), case("b", 1024, 400)
    panel = Panel("ruler", 1024, [rare, common], seed=1, hypotheses=[Hypothesis(case_ids=ids("a", "b"), threshold=0.0)])
    place = panel.order.index(SampleRef(rare.id, 0)) + 1
    assert place > 26
    assert panel.analyze(panel.hypotheses[0], dict.fromkeys(panel.order, 1.0)).samples == place


def test_a_gap_ends_the_evidence() -> None:
    panel = panel_of(50, Hypothesis(case_ids=ids(*TASKS), threshold=0.5))
    scores = {ref: 1.0 for place, ref in enumerate(panel.order) if place != 30}
    assert panel.analyze(panel.hypotheses[0], scores).samples <= 30
    scores = {ref: 1.0 for place, ref in enumerate(panel.order) if place != 10}
    assert panel.analyze(panel.hypotheses[0], scores) == InterimAnalysis(
        decision=None, samples=10, planned_samples=200, clusters=10
    )
    assert panel.status(scores).next_samples == (("model", panel.order[10]),)


@pytest.mark.parametrize("ones", [49, 50, 51])
def test_everything_asked_for_is_compared_exactly(ones: int) -> None:
    panel = panel_of(25, Hypothesis(case_ids=ids(*TASKS), threshold=0.5), full=True)
    truth = draw_exact_scores(panel, dict(zip(panel.cases, (25, ones - 30, 5, 0), strict=True)))
    work = SimulatedRun(panel, {"model": truth})
    status = work.run_alone(99)
    assert (status.analyses[panel.hypotheses[0]].decision, len(status.next_samples)) == (None, 1)
    (analysis,) = work.run_alone().analyses.values()
    assert analysis.decision is not None
    assert (analysis.decision.verdict, analysis.samples, analysis.planned_samples) == (
        "pass" if ones > 50 else "fail",
        100,
        100,
    )


def test_everything_asked_for_is_asked_of_both_sides() -> None:
    panel = panel_of(50, full=True)
    panel.non_inferiority = PAIRING
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 1.0))
    work = SimulatedRun(panel, {"model": truth, "baseline": truth})
    status = work.run_alone()
    assert work.journal == {"model": truth, "baseline": truth}
    assert status.comparison is not None
    assert (status.comparison.samples, set(status.paired_counts.values())) == (200, {50})


def test_two_gates_at_one_length_each_get_their_evidence() -> None:
    hypotheses = close, clear = (
        Hypothesis(case_ids=ids("a", "b"), threshold=0.75),
        Hypothesis(case_ids=ids("b", "c"), threshold=0.1),
    )
    panel = panel_of(200, *hypotheses)
    work = SimulatedRun(panel, {"model": draw_scores(panel, dict.fromkeys(panel.cases, 0.8))})
    status = work.run_alone()
    assert all(analysis.decision is not None for analysis in status.analyses.values())
    assert status.analyses[clear].samples < status.analyses[close].samples
    assert case("d").id not in status.evidence_counts
    assert status.evidence_counts[case("c").id] < status.evidence_counts[case("a").id]
    refs = panel.sample_refs(close.case_ids)[: status.analyses[close].samples]
    assert status.evidence_counts[case("b").id] == sum(ref.case_id == case("b").id for ref in refs)


def test_pairs_are_measured_on_both_sides_and_only_as_far_as_needed() -> None:
    panel = panel_of(100, hard := Hypothesis(case_ids=ids(*TASKS), threshold=0.8))
    panel.non_inferiority = PAIRING
    truth = draw_exact_scores(panel, dict.fromkeys(panel.cases, 80))
    work = SimulatedRun(panel, {"model": truth, "baseline": truth})
    status = work.run_alone()
    assert status.comparison is not None
    assert status.comparison.decision is not None
    assert status.comparison.decision.verdict == "pass"
    assert (
        len(work.journal["baseline"])
        == status.comparison.samples
        < status.analyses[hard].samples
        == len(work.journal["model"])
    )


def test_pairs_go_on_where_the_level_is_settled() -> None:
    panel = panel_of(100, easy := Hypothesis(case_ids=ids(*TASKS), threshold=0.1))
    panel.non_inferiority = replace(PAIRING, drop=0.05, clear=0.02)
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.9))
    work = SimulatedRun(panel, {"model": truth, "baseline": truth})
    status = work.run_alone()
    assert status.comparison is not None
    assert (
        status.analyses[easy].samples
        < status.comparison.samples
        == len(work.journal["model"])
        == len(work.journal["baseline"])
    )


def test_a_finished_baseline_ends_the_comparison_where_its_results_end() -> None:
    panel = panel_of(100, Hypothesis(case_ids=ids(*TASKS), threshold=0.05))
    panel.non_inferiority = replace(PAIRING, drop=0.02, clear=0.01)
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.9))
    known = {ref: truth[ref] for place, ref in enumerate(panel.order) if place != 70}
    work = SimulatedRun(panel, {"model": truth}, control_variate=known)
    status = work.run_alone()
    assert status.next_samples == ()
    assert status.comparison == InterimAnalysis(decision=None, samples=70, planned_samples=400, clusters=70)
    assert len(work.journal["model"]) == 70


@quickly
@given(SEEDS, st.sampled_from([0.3, 0.6, 0.9]), st.sampled_from([0.0, 0.05, 0.5]))
def test_a_known_baseline_costs_at_most_half_of_the_evidence(seed: int, share: float, changed: float) -> None:
    """Whatever the baseline scored: the verdict is there when the one without it would be at alpha / 2."""
    panel = panel_of(60, hypothesis := Hypothesis(case_ids=ids(*TASKS), threshold=0.7))
    truth, random = draw_scores(panel, dict.fromkeys(panel.cases, share), seed), Random(seed)
    control_variate = {e: 1 - score if random.random() < changed else score for e, score in truth.items()}
    helped = panel.analyze(hypothesis, truth, control_variate=control_variate)
    assert helped.samples <= panel.analyze(replace(hypothesis, alpha=hypothesis.alpha / 2), truth).samples


@pytest.mark.parametrize("share", [0.78, 0.88])
def test_a_baseline_that_scores_alike_saves_samples(share: float) -> None:
    panel = panel_of(250, hypothesis := Hypothesis(case_ids=ids(*TASKS), threshold=0.83))
    analyses = []
    for seed in range(10):
        truth, random = draw_scores(panel, dict.fromkeys(panel.cases, share), seed), Random(seed)
        control_variate = {e: 1 - score if random.random() < 0.03 else score for e, score in truth.items()}
        analyses.append(
            (panel.analyze(hypothesis, truth, control_variate=control_variate), panel.analyze(hypothesis, truth))
        )
    assert {analysis.decision and analysis.decision.verdict for pair in analyses for analysis in pair} == {
        "pass" if share > 0.83 else "fail"
    }
    assert sum(helped.samples for helped, _ in analyses) < 0.8 * sum(plain.samples for _, plain in analyses)


def test_a_baseline_that_is_not_known_in_full_does_not_help() -> None:
    panel = panel_of(250, hypothesis := Hypothesis(case_ids=ids(*TASKS), threshold=0.83))
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.75))
    part = {ref: truth[ref] for ref in panel.order[:-1]}
    assert panel.analyze(hypothesis, truth, control_variate=part) == panel.analyze(hypothesis, truth)
    # Of the gate's own cases it is.
    other = Hypothesis(case_ids=ids("a", "b"), threshold=0.83)
    whole = {ref: score for ref, score in truth.items() if ref.case_id in other.case_ids}
    assert panel.analyze(other, truth, control_variate=whole).samples < panel.analyze(other, truth).samples
