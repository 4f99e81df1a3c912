"""Evidence does not depend on who finished what when, and no more is measured than the questions need."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from queues import Scores, Work, case, drawn, exactly

from plugins.gates import pools
from plugins.gates.panels import Panel, Who
from plugins.gates.pools import Element
from plugins.gates.questions import ESTIMATE_AHEAD, LOOK_AHEAD, Look, Pairing, Rule, ahead
from plugins.gates.statistics import Decision, Floats, interval, level_evidence

TASKS = ("a", "b", "c", "d")
SEEDS = st.integers(0, 1000)
THRESHOLDS = st.sampled_from([None, 0.3, 0.5, 0.85])
SHARES = st.sampled_from([0.0, 0.4, 0.8, 0.95, 1.0])
PAIRING = Pairing(drop=0.3, clear=0.1, alpha=0.01)
quickly = settings(deadline=None, derandomize=True, max_examples=50)


def ids(*tasks: str) -> frozenset[str]:
    return frozenset(case(task).id for task in tasks)


def panel_of(samples: int, *rules: Rule, tasks: tuple[str, ...] = TASKS, seed: int = 0, full: bool = False) -> Panel:
    return Panel("ruler", 1024, [case(task, 1024, samples) for task in tasks], seed=seed, rules=rules, full=full)


@st.composite
def works(draw: st.DrawFn) -> Work:
    """A panel with any questions, what its sides would score, and nothing done yet."""
    tasks = TASKS[: draw(st.integers(1, 4))]
    rules = draw(
        st.lists(
            st.builds(
                Rule,
                cases=st.sets(st.sampled_from(tasks), min_size=1).map(lambda some: ids(*some)),
                threshold=THRESHOLDS,
                zone=st.sampled_from([0.0, 0.05]),
                driving=st.sampled_from([True, True, True, False]),
            ),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    panel = panel_of(draw(st.integers(3, 45)), *rules, tasks=tasks, full=draw(st.integers(0, 4)) == 0)
    shares = {name: draw(SHARES) for name in panel.cases}
    truth: dict[Who, Scores] = {"model": drawn(panel, shares, draw(SEEDS))}
    control = None
    if draw(st.booleans()):
        panel.pairing = PAIRING
        baseline = drawn(panel, {name: draw(SHARES) for name in shares}, draw(SEEDS))
        if draw(st.booleans()):
            truth["baseline"] = baseline
        else:
            gap = draw(st.integers(0, len(baseline)))
            control = {element: score for at, (element, score) in enumerate(baseline.items()) if at != gap}
    return Work(panel, truth, control)


def without(failing: str, scores: Scores) -> Scores:
    return {element: score for element, score in scores.items() if element.case != failing}


def again(work: Work) -> Work:
    """The same work, with nothing done."""
    return Work(work.panel, work.truth, work.control)


@quickly
@given(works(), st.integers(1, 6), SEEDS)
def test_evidence_is_the_same_for_any_number_of_workers_speeds_and_crashes(work: Work, workers: int, seed: int) -> None:
    alone, other = work, again(work)
    expected, found = alone.in_order(), other.shared(workers, Random(seed))
    assert found == expected
    assert found.wanted == ()
    assert other.counted(found) == alone.counted(expected)


@quickly
@given(works(), st.integers(1, 5), SEEDS)
def test_a_failed_case_does_not_hold_up_the_rest(work: Work, workers: int, seed: int) -> None:
    """Whoever meets it, the others' evidence is that of a panel without the case."""
    panel, failing = work.panel, case("a").id
    kept = {who: without(failing, scores) for who, scores in work.truth.items()}
    broken = Work(panel, kept, work.control)
    found = broken.shared(workers, Random(seed))
    assert failing not in found.asked
    assert found.wanted == ()
    assume(broken.failed)
    rest = Panel(
        "ruler",
        1024,
        [of for name, of in panel.cases.items() if name != failing],
        seed=0,
        rules=[replace(rule, cases=rule.cases - {failing}) for rule in panel.rules],
        pairing=panel.pairing,
        full=panel.full,
    )
    expected = Work(rest, kept, work.control and without(failing, work.control)).in_order()
    assert (found.asked, found.paired, found.pairing) == (expected.asked, expected.paired, expected.pairing)
    for rule, look in found.rules.items():
        assert look == expected.rules[replace(rule, cases=rule.cases - {failing})]


@quickly
@given(works())
def test_one_worker_computes_nothing_that_does_not_count(work: Work) -> None:
    assert work.counted(work.in_order())["model"] == work.journal["model"]
    if "baseline" in work.truth:
        assert work.counted(work.standing())["baseline"] == work.journal["baseline"]


@quickly
@given(works(), st.integers(2, 20), st.integers(1, 8), SEEDS)
def test_many_workers_do_the_work_of_one_and_a_twentieth(work: Work, workers: int, at_once: int, seed: int) -> None:
    """However many take however much at a time, and whoever ends first."""
    random = Random(seed)
    held: list[list[tuple[Who, Element]]] = []
    while (wanted := work.standing().wanted) or held:
        taken = {each for batch in held for each in batch}
        free = [each for each in wanted if each not in taken]
        if free and len(held) < workers:
            held.append(free[:at_once])
        else:
            batch = held[random.randrange(len(held))]
            work.do(*batch.pop(0))
            held = [batch for batch in held if batch]
    found = work.standing()
    looks = [*found.rules.values(), *([found.pairing] if found.pairing else [])]
    spare = sum(int(0.05 * look.seen) for look in looks)
    counted = work.counted(found)
    assert all(len(work.journal[who]) - len(counted[who]) <= spare for who in work.truth)


@quickly
@given(works(), st.integers(2, 6))
def test_workers_of_one_speed_waste_less_than_they_hold_for_each_question(work: Work, workers: int) -> None:
    while wanted := work.standing().wanted:
        for who, element in wanted[:workers]:
            work.do(who, element)
    counted = work.counted(work.standing())
    wasted = sum(len(work.journal[who]) - len(counted[who]) for who in work.truth)
    questions = sum(rule.driving for rule in work.panel.rules) + (work.panel.pairing is not None)
    assert wasted <= questions * (workers - 1)


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
        looks = [*now.rules.values(), *([now.pairing] if now.pairing else [])]
        decisions = [look.decision for look in looks]
        assert all(was in (None, is_now) for was, is_now in zip(before, decisions, strict=False))
        before = decisions


@quickly
@given(works())
def test_a_question_gets_the_answer_that_it_would_get_alone(work: Work) -> None:
    together, panel = work.in_order(), work.panel
    assert set(together.rules) == {rule for rule in panel.rules if rule.driving}
    for rule, look in together.rules.items():
        alone = Panel("ruler", 1024, tuple(panel.cases.values()), seed=0, rules=[rule], full=panel.full)
        found = Work(alone, {"model": work.truth["model"]}, work.control).in_order()
        assert found.rules == {rule: look}


@quickly
@given(works())
def test_an_early_verdict_leaves_no_case_without_a_score(work: Work) -> None:
    found = work.in_order()
    for rule, look in found.rules.items():
        if look.decision is not None:
            assert all(found.asked[name] > 0 for name in rule.cases)
    if found.pairing is not None and found.pairing.decision is not None:
        assert all(found.paired[name] > 0 for name in work.panel.cases)


@quickly
@given(works(), st.integers(0, 40))
def test_what_is_wanted_is_new_and_in_the_order_of_the_queue(work: Work, done: int) -> None:
    wanted = work.in_order(done).wanted
    places = {element: place for place, element in enumerate(work.panel.order)}
    steps = [(places[element], who != "model") for who, element in wanted]
    assert steps == sorted(set(steps))
    assert all(element not in work.journal[who] for who, element in wanted)
    assert {who for who, _ in wanted} <= set(work.truth)


@quickly
@given(SEEDS, st.integers(1, 30), st.integers(0, 30), st.sets(st.sampled_from(TASKS), min_size=1))
def test_other_cases_and_more_samples_never_reorder(seed: int, samples: int, more: int, chosen: set[str]) -> None:
    large, small = panel_of(samples + more, seed=seed), panel_of(samples, seed=seed, tasks=tuple(sorted(chosen)))
    assert small.order == tuple(e for e in large.order if e.case in small.cases and e.sample < samples)
    assert small.queue(ids(*chosen)) == small.order
    assert large.queue(ids(*chosen)) == tuple(e for e in large.order if e.case in small.cases)
    backwards = panel_of(samples, seed=seed, tasks=tuple(sorted(chosen, reverse=True)))
    assert backwards.order == small.order


def test_every_sample_has_one_place_and_cases_are_mixed() -> None:
    order = panel_of(100).order
    assert sorted(order) == sorted(Element(name, index) for name in ids(*TASKS) for index in range(100))
    assert all(sum(element.case == name for element in order[:200]) in range(30, 71) for name in ids(*TASKS))


def test_a_mean_that_is_soon_known_takes_no_more_with_many_workers() -> None:
    """Scores that hardly differ: then neither ones nor zeros would bring the estimate about soonest."""
    for seed in range(8):
        panel = panel_of(100, rule := Rule(cases=ids(*TASKS), threshold=None, precision=0.125), seed=seed)
        random = Random(seed)
        truth = {element: min(1.0, max(0.0, random.gauss(0.3, 0.1))) for element in panel.order}
        needed = panel.look(rule, truth).seen
        for done in range(needed):
            scores = {element: truth[element] for element in panel.order[:done]}
            wanted = panel.standing(scores).wanted
            assert 0 < len(wanted) <= needed - done + int(0.05 * needed)


def test_an_estimate_is_looked_ahead_with_few_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a millisecond or more, and a worker looks after every batch."""
    panel = panel_of(500, rule := Rule(cases=ids(*TASKS), threshold=None, precision=0.03))
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.5))
    scores = {element: truth[element] for element in panel.order[:200]}
    panel.look(rule, scores)
    taken: list[int] = []

    def counted(values: Floats, **settings: Any) -> tuple[float, float]:
        taken.append(len(values))
        return interval(values, **settings)

    monkeypatch.setattr(pools, "interval", counted)
    assert len(panel.standing(scores).wanted) == ESTIMATE_AHEAD
    assert len(taken) == 3


def test_a_verdict_that_rounding_holds_off_leaves_something_to_do() -> None:
    """Its evidence is summed otherwise in a longer array, and may there have reached what it just misses here."""
    edges = 0
    # Where there are too few for a twentieth to spare.
    for seed, done in product(range(40), range(8, 20)):
        panel = panel_of(400, tasks=TASKS[:1], seed=seed)
        truth = drawn(panel, dict.fromkeys(panel.cases, 0.9), seed)
        pool, scores = panel.pool(panel.cases), {element: truth[element] for element in panel.order[:done]}
        values = pool.values(scores)
        (here, _), (there, _) = (
            level_evidence(each, 0.6, population=400) for each in (values, np.append(values, np.ones(400 - done)))
        )
        if not here.max() <= here[-1] < there[done - 1]:
            continue
        # The logarithm of its alpha is rounded too.
        near = [float(np.exp(-there[done - 1])) * (1 + ulps * 2**-52) for ulps in range(6)]
        rules = [Rule(cases=frozenset(panel.cases), threshold=0.6, alpha=alpha) for alpha in near]
        looks = [(rule, look) for rule in rules if not (look := panel.look(rule, scores)).is_settled]
        edges += len(looks)
        assert all(set(ahead(rule, pool, look, scores)) - scores.keys() for rule, look in looks)
    assert edges


def test_another_seed_is_another_order() -> None:
    assert len({panel_of(20, seed=seed).order for seed in range(20)}) == 20


def test_a_long_queue_is_handed_out_in_parts() -> None:
    panel = panel_of(400, Rule(cases=ids(*TASKS), threshold=None))
    assert panel.standing({}).wanted == tuple(("model", element) for element in panel.order[:LOOK_AHEAD])
    assert panel.standing(dict.fromkeys(panel.order[:1000], 1.0)).wanted[0] == ("model", panel.order[1000])


@pytest.mark.parametrize(("tasks", "least"), [(TASKS[:1], 8), (TASKS[:2], 26)])
def test_nothing_is_said_before_a_few_elements(tasks: tuple[str, ...], least: int) -> None:
    panel = panel_of(100, Rule(cases=ids(*tasks), threshold=0.0), tasks=tasks)
    ones, zeros = dict.fromkeys(panel.order, 1.0), dict.fromkeys(panel.order, 0.0)
    panel.pairing = replace(PAIRING, alpha=0.5)
    looks = (panel.look(panel.rules[0], ones), panel.look_at_pairs(zeros, ones))
    assert [(look.decision and look.decision.verdict, look.seen) for look in looks] == [
        ("pass", least),
        ("fail", least),
    ]


def test_nothing_is_said_before_the_rarest_case_was_seen() -> None:
    rare, common = case("a", 1024, 1), case("b", 1024, 400)
    panel = Panel("ruler", 1024, [rare, common], seed=1, rules=[Rule(cases=ids("a", "b"), threshold=0.0)])
    place = panel.order.index(Element(rare.id, 0)) + 1
    assert place > 26
    assert panel.look(panel.rules[0], dict.fromkeys(panel.order, 1.0)).seen == place


def test_a_gap_ends_the_evidence() -> None:
    panel = panel_of(50, Rule(cases=ids(*TASKS), threshold=0.5))
    scores = {element: 1.0 for place, element in enumerate(panel.order) if place != 30}
    assert panel.look(panel.rules[0], scores).seen <= 30
    scores = {element: 1.0 for place, element in enumerate(panel.order) if place != 10}
    assert panel.look(panel.rules[0], scores) == Look(None, 10, 200, 10)
    assert panel.standing(scores).wanted == (("model", panel.order[10]),)


@pytest.mark.parametrize("ones", [49, 50, 51])
def test_everything_asked_for_is_compared_exactly(ones: int) -> None:
    panel = panel_of(25, Rule(cases=ids(*TASKS), threshold=0.5), full=True)
    truth = exactly(panel, dict(zip(panel.cases, (25, ones - 30, 5, 0), strict=True)))
    work = Work(panel, {"model": truth})
    found = work.in_order(99)
    assert (found.rules[panel.rules[0]].decision, len(found.wanted)) == (None, 1)
    (look,) = work.in_order().rules.values()
    assert look.decision is not None
    assert (look.decision.verdict, look.seen, look.of) == ("pass" if ones > 50 else "fail", 100, 100)


def test_everything_asked_for_is_asked_of_both_sides() -> None:
    panel = panel_of(50, full=True)
    panel.pairing = PAIRING
    truth = drawn(panel, dict.fromkeys(panel.cases, 1.0))
    work = Work(panel, {"model": truth, "baseline": truth})
    found = work.in_order()
    assert work.journal == {"model": truth, "baseline": truth}
    assert found.pairing is not None
    assert (found.pairing.seen, set(found.paired.values())) == (200, {50})


def test_two_gates_at_one_length_each_get_their_evidence() -> None:
    rules = close, clear = Rule(cases=ids("a", "b"), threshold=0.75), Rule(cases=ids("b", "c"), threshold=0.1)
    panel = panel_of(200, *rules)
    work = Work(panel, {"model": drawn(panel, dict.fromkeys(panel.cases, 0.8))})
    found = work.in_order()
    assert all(look.decision is not None for look in found.rules.values())
    assert found.rules[clear].seen < found.rules[close].seen
    assert case("d").id not in found.asked
    assert found.asked[case("c").id] < found.asked[case("a").id]
    looked_at = panel.queue(close.cases)[: found.rules[close].seen]
    assert found.asked[case("b").id] == sum(element.case == case("b").id for element in looked_at)


def test_pairs_are_measured_on_both_sides_and_only_as_far_as_needed() -> None:
    panel = panel_of(100, hard := Rule(cases=ids(*TASKS), threshold=0.8))
    panel.pairing = PAIRING
    truth = exactly(panel, dict.fromkeys(panel.cases, 80))
    work = Work(panel, {"model": truth, "baseline": truth})
    found = work.in_order()
    assert found.pairing is not None
    assert found.pairing.decision is not None
    assert found.pairing.decision.verdict == "pass"
    assert len(work.journal["baseline"]) == found.pairing.seen < found.rules[hard].seen == len(work.journal["model"])


def test_pairs_go_on_where_the_level_is_settled() -> None:
    panel = panel_of(100, easy := Rule(cases=ids(*TASKS), threshold=0.1))
    panel.pairing = replace(PAIRING, drop=0.05, clear=0.02)
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.9))
    work = Work(panel, {"model": truth, "baseline": truth})
    found = work.in_order()
    assert found.pairing is not None
    assert found.rules[easy].seen < found.pairing.seen == len(work.journal["model"]) == len(work.journal["baseline"])


def test_a_finished_baseline_ends_the_comparison_where_its_results_end() -> None:
    panel = panel_of(100, Rule(cases=ids(*TASKS), threshold=0.05))
    panel.pairing = replace(PAIRING, drop=0.02, clear=0.01)
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.9))
    known = {element: truth[element] for place, element in enumerate(panel.order) if place != 70}
    work = Work(panel, {"model": truth}, control=known)
    found = work.in_order()
    assert found.wanted == ()
    assert found.pairing == Look(None, 70, 400, 70)
    assert len(work.journal["model"]) == 70


@quickly
@given(SEEDS, st.sampled_from([0.3, 0.6, 0.9]), st.sampled_from([0.0, 0.05, 0.5]))
def test_a_known_baseline_costs_at_most_half_of_the_evidence(seed: int, share: float, changed: float) -> None:
    """Whatever the baseline scored: the verdict is there when the one without it would be at alpha / 2."""
    panel = panel_of(60, rule := Rule(cases=ids(*TASKS), threshold=0.7))
    truth, random = drawn(panel, dict.fromkeys(panel.cases, share), seed), Random(seed)
    control = {e: 1 - score if random.random() < changed else score for e, score in truth.items()}
    helped = panel.look(rule, truth, control=control)
    assert helped.seen <= panel.look(replace(rule, alpha=rule.alpha / 2), truth).seen


@pytest.mark.parametrize("share", [0.78, 0.88])
def test_a_baseline_that_scores_alike_saves_samples(share: float) -> None:
    panel = panel_of(250, rule := Rule(cases=ids(*TASKS), threshold=0.83))
    looks = []
    for seed in range(10):
        truth, random = drawn(panel, dict.fromkeys(panel.cases, share), seed), Random(seed)
        control = {e: 1 - score if random.random() < 0.03 else score for e, score in truth.items()}
        looks.append((panel.look(rule, truth, control=control), panel.look(rule, truth)))
    assert {look.decision and look.decision.verdict for pair in looks for look in pair} == {
        "pass" if share > 0.83 else "fail"
    }
    assert sum(helped.seen for helped, _ in looks) < 0.8 * sum(plain.seen for _, plain in looks)


def test_a_baseline_that_is_not_known_in_full_does_not_help() -> None:
    panel = panel_of(250, rule := Rule(cases=ids(*TASKS), threshold=0.83))
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.75))
    part = {element: truth[element] for element in panel.order[:-1]}
    assert panel.look(rule, truth, control=part) == panel.look(rule, truth)
    # Of the gate's own cases it is.
    other = Rule(cases=ids("a", "b"), threshold=0.83)
    whole = {element: score for element, score in truth.items() if element.case in other.cases}
    assert panel.look(other, truth, control=whole).seen < panel.look(other, truth).seen
