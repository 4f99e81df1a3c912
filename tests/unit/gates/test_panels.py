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
from tests.helpers.panels import PAIRING, SEEDS, TASKS, again, ids, panel_of, quickly, without, works
from tests.helpers.queues import Work, case, drawn, exactly


@quickly
@given(works(), st.integers(1, 6), SEEDS)
def test_evidence_is_the_same_for_any_number_of_workers_speeds_and_crashes(work: Work, workers: int, seed: int) -> None:
    alone, other = work, again(work)
    expected, found = alone.in_order(), other.shared(workers, Random(seed))
    assert found == expected
    assert found.next_samples == ()
    assert other.counted(found) == alone.counted(expected)


@quickly
@given(works(), st.integers(1, 5), SEEDS)
def test_a_failed_case_does_not_hold_up_the_rest(work: Work, workers: int, seed: int) -> None:
    """Whoever meets it, the others' evidence is that of a panel without the case."""
    panel, failing = work.panel, case("a").id
    kept = {who: without(failing, scores) for who, scores in work.truth.items()}
    broken = Work(panel, kept, work.control)
    found = broken.shared(workers, Random(seed))
    assert failing not in found.evidence_counts
    assert found.next_samples == ()
    assume(broken.failed)
    rest = Panel(
        "ruler",
        1024,
        [of for name, of in panel.cases.items() if name != failing],
        seed=0,
        hypotheses=[replace(rule, case_ids=rule.case_ids - {failing}) for rule in panel.hypotheses],
        non_inferiority=panel.non_inferiority,
        full=panel.full,
    )
    expected = Work(rest, kept, work.control and without(failing, work.control)).in_order()
    assert (found.evidence_counts, found.paired_counts, found.comparison) == (
        expected.evidence_counts,
        expected.paired_counts,
        expected.comparison,
    )
    for rule, look in found.analyses.items():
        assert look == expected.analyses[replace(rule, case_ids=rule.case_ids - {failing})]


@quickly
@given(works())
def test_a_verdict_needs_no_more_than_its_own_part_of_what_is_known(work: Work) -> None:
    """A journal that holds everything gives the verdict of the run that stopped in time."""
    complete = again(work)
    for who, scores in work.truth.items():
        complete.journal[who] = dict(scores)
    assert complete.standing() == work.in_order()


@quickly
@given(works(), SEEDS)
def test_a_verdict_once_reached_stands(work: Work, seed: int) -> None:
    queue = list(work.truth["model"])
    Random(seed).shuffle(queue)
    before: list[Decision | None] = []
    for element in queue:
        for who in work.truth:
            work.do(who, element)
        now = work.standing()
        looks = [*now.analyses.values(), *([now.comparison] if now.comparison else [])]
        decisions = [look.decision for look in looks]
        assert all(was in (None, is_now) for was, is_now in zip(before, decisions, strict=False))
        before = decisions


@quickly
@given(works())
def test_a_question_gets_the_answer_that_it_would_get_alone(work: Work) -> None:
    together, panel = work.in_order(), work.panel
    assert set(together.analyses) == {rule for rule in panel.hypotheses if rule.drives_sampling}
    for rule, look in together.analyses.items():
        alone = Panel("ruler", 1024, tuple(panel.cases.values()), seed=0, hypotheses=[rule], full=panel.full)
        found = Work(alone, {"model": work.truth["model"]}, work.control).in_order()
        assert found.analyses == {rule: look}


@quickly
@given(works())
def test_an_early_verdict_leaves_no_case_without_a_score(work: Work) -> None:
    found = work.in_order()
    for rule, look in found.analyses.items():
        if look.decision is not None:
            assert all(found.evidence_counts[name] > 0 for name in rule.case_ids)
    if found.comparison is not None and found.comparison.decision is not None:
        assert all(found.paired_counts[name] > 0 for name in work.panel.cases)


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
    assert all(sum(element.case_id == name for element in order[:200]) in range(30, 71) for name in ids(*TASKS))


def test_another_seed_is_another_order() -> None:
    assert len({panel_of(20, seed=seed).order for seed in range(20)}) == 20


@pytest.mark.parametrize(("tasks", "least"), [(TASKS[:1], 8), (TASKS[:2], 26)])
def test_nothing_is_said_before_a_few_elements(tasks: tuple[str, ...], least: int) -> None:
    panel = panel_of(100, Hypothesis(case_ids=ids(*tasks), threshold=0.0), tasks=tasks)
    ones, zeros = dict.fromkeys(panel.order, 1.0), dict.fromkeys(panel.order, 0.0)
    panel.non_inferiority = replace(PAIRING, alpha=0.5)
    looks = (panel.analyze(panel.hypotheses[0], ones), panel.analyze_pairs(zeros, ones))
    assert [(look.decision and look.decision.verdict, look.samples) for look in looks] == [
        ("pass", least),
        ("fail", least),
    ]


def test_nothing_is_said_before_the_rarest_case_was_seen() -> None:
    rare, common = case("a", 1024, 1), case("b", 1024, 400)
    panel = Panel("ruler", 1024, [rare, common], seed=1, hypotheses=[Hypothesis(case_ids=ids("a", "b"), threshold=0.0)])
    place = panel.order.index(SampleRef(rare.id, 0)) + 1
    assert place > 26
    assert panel.analyze(panel.hypotheses[0], dict.fromkeys(panel.order, 1.0)).samples == place


def test_a_gap_ends_the_evidence() -> None:
    panel = panel_of(50, Hypothesis(case_ids=ids(*TASKS), threshold=0.5))
    scores = {element: 1.0 for place, element in enumerate(panel.order) if place != 30}
    assert panel.analyze(panel.hypotheses[0], scores).samples <= 30
    scores = {element: 1.0 for place, element in enumerate(panel.order) if place != 10}
    assert panel.analyze(panel.hypotheses[0], scores) == InterimAnalysis(
        decision=None, samples=10, planned_samples=200, clusters=10
    )
    assert panel.status(scores).next_samples == (("model", panel.order[10]),)


@pytest.mark.parametrize("ones", [49, 50, 51])
def test_everything_asked_for_is_compared_exactly(ones: int) -> None:
    panel = panel_of(25, Hypothesis(case_ids=ids(*TASKS), threshold=0.5), full=True)
    truth = exactly(panel, dict(zip(panel.cases, (25, ones - 30, 5, 0), strict=True)))
    work = Work(panel, {"model": truth})
    found = work.in_order(99)
    assert (found.analyses[panel.hypotheses[0]].decision, len(found.next_samples)) == (None, 1)
    (look,) = work.in_order().analyses.values()
    assert look.decision is not None
    assert (look.decision.verdict, look.samples, look.planned_samples) == ("pass" if ones > 50 else "fail", 100, 100)


def test_everything_asked_for_is_asked_of_both_sides() -> None:
    panel = panel_of(50, full=True)
    panel.non_inferiority = PAIRING
    truth = drawn(panel, dict.fromkeys(panel.cases, 1.0))
    work = Work(panel, {"model": truth, "baseline": truth})
    found = work.in_order()
    assert work.journal == {"model": truth, "baseline": truth}
    assert found.comparison is not None
    assert (found.comparison.samples, set(found.paired_counts.values())) == (200, {50})


def test_two_gates_at_one_length_each_get_their_evidence() -> None:
    rules = close, clear = (
        Hypothesis(case_ids=ids("a", "b"), threshold=0.75),
        Hypothesis(case_ids=ids("b", "c"), threshold=0.1),
    )
    panel = panel_of(200, *rules)
    work = Work(panel, {"model": drawn(panel, dict.fromkeys(panel.cases, 0.8))})
    found = work.in_order()
    assert all(look.decision is not None for look in found.analyses.values())
    assert found.analyses[clear].samples < found.analyses[close].samples
    assert case("d").id not in found.evidence_counts
    assert found.evidence_counts[case("c").id] < found.evidence_counts[case("a").id]
    looked_at = panel.sample_refs(close.case_ids)[: found.analyses[close].samples]
    assert found.evidence_counts[case("b").id] == sum(element.case_id == case("b").id for element in looked_at)


def test_pairs_are_measured_on_both_sides_and_only_as_far_as_needed() -> None:
    panel = panel_of(100, hard := Hypothesis(case_ids=ids(*TASKS), threshold=0.8))
    panel.non_inferiority = PAIRING
    truth = exactly(panel, dict.fromkeys(panel.cases, 80))
    work = Work(panel, {"model": truth, "baseline": truth})
    found = work.in_order()
    assert found.comparison is not None
    assert found.comparison.decision is not None
    assert found.comparison.decision.verdict == "pass"
    assert (
        len(work.journal["baseline"])
        == found.comparison.samples
        < found.analyses[hard].samples
        == len(work.journal["model"])
    )


def test_pairs_go_on_where_the_level_is_settled() -> None:
    panel = panel_of(100, easy := Hypothesis(case_ids=ids(*TASKS), threshold=0.1))
    panel.non_inferiority = replace(PAIRING, drop=0.05, clear=0.02)
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.9))
    work = Work(panel, {"model": truth, "baseline": truth})
    found = work.in_order()
    assert found.comparison is not None
    assert (
        found.analyses[easy].samples
        < found.comparison.samples
        == len(work.journal["model"])
        == len(work.journal["baseline"])
    )


def test_a_finished_baseline_ends_the_comparison_where_its_results_end() -> None:
    panel = panel_of(100, Hypothesis(case_ids=ids(*TASKS), threshold=0.05))
    panel.non_inferiority = replace(PAIRING, drop=0.02, clear=0.01)
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.9))
    known = {element: truth[element] for place, element in enumerate(panel.order) if place != 70}
    work = Work(panel, {"model": truth}, control=known)
    found = work.in_order()
    assert found.next_samples == ()
    assert found.comparison == InterimAnalysis(decision=None, samples=70, planned_samples=400, clusters=70)
    assert len(work.journal["model"]) == 70


@quickly
@given(SEEDS, st.sampled_from([0.3, 0.6, 0.9]), st.sampled_from([0.0, 0.05, 0.5]))
def test_a_known_baseline_costs_at_most_half_of_the_evidence(seed: int, share: float, changed: float) -> None:
    """Whatever the baseline scored: the verdict is there when the one without it would be at alpha / 2."""
    panel = panel_of(60, rule := Hypothesis(case_ids=ids(*TASKS), threshold=0.7))
    truth, random = drawn(panel, dict.fromkeys(panel.cases, share), seed), Random(seed)
    control = {e: 1 - score if random.random() < changed else score for e, score in truth.items()}
    helped = panel.analyze(rule, truth, control_variate=control)
    assert helped.samples <= panel.analyze(replace(rule, alpha=rule.alpha / 2), truth).samples


@pytest.mark.parametrize("share", [0.78, 0.88])
def test_a_baseline_that_scores_alike_saves_samples(share: float) -> None:
    panel = panel_of(250, rule := Hypothesis(case_ids=ids(*TASKS), threshold=0.83))
    looks = []
    for seed in range(10):
        truth, random = drawn(panel, dict.fromkeys(panel.cases, share), seed), Random(seed)
        control = {e: 1 - score if random.random() < 0.03 else score for e, score in truth.items()}
        looks.append((panel.analyze(rule, truth, control_variate=control), panel.analyze(rule, truth)))
    assert {look.decision and look.decision.verdict for pair in looks for look in pair} == {
        "pass" if share > 0.83 else "fail"
    }
    assert sum(helped.samples for helped, _ in looks) < 0.8 * sum(plain.samples for _, plain in looks)


def test_a_baseline_that_is_not_known_in_full_does_not_help() -> None:
    panel = panel_of(250, rule := Hypothesis(case_ids=ids(*TASKS), threshold=0.83))
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.75))
    part = {element: truth[element] for element in panel.order[:-1]}
    assert panel.analyze(rule, truth, control_variate=part) == panel.analyze(rule, truth)
    # Of the gate's own cases it is.
    other = Hypothesis(case_ids=ids("a", "b"), threshold=0.83)
    whole = {element: score for element, score in truth.items() if element.case_id in other.case_ids}
    assert panel.analyze(other, truth, control_variate=whole).samples < panel.analyze(other, truth).samples
