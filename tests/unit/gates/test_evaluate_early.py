"""Verdicts from the first part of a queue: those that stand, and those that a time budget left open."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.records import VerdictWord
from plugins.gates.effective_length import effective_length
from plugins.gates.evaluate import GateEvaluator
from plugins.gates.findings import effective_length_finding
from plugins.gates.hypotheses import tasks_of
from plugins.gates.thresholds import VerdictSettings
from tests.helpers.queues import ASPECTS, LENGTHS, LEVEL, case, evaluator_of, scope_of, thresholds

REACH = replace(LEVEL, name="reach", kind="effective_length")
AVERAGE = replace(LEVEL, name="average", kind="weighted_average", rising=True)
MANY = tuple(case(task, length, 100) for task in ASPECTS for length in LENGTHS)


def test_a_clear_verdict_needs_a_part_of_the_samples() -> None:
    found = evaluator_of(thresholds(LEVEL), scope_of(MANY), {1024: 0.98, 2048: 0.55, 4096: 0.0}).verdicts()
    assert [each.verdict for each in found] == ["pass", "fail", "fail"]
    for each in found:
        assert each.samples < each.of == 300
        assert each.interval is not None
        assert each.measured is not None
        assert each.interval[0] <= each.measured <= each.interval[1]
        assert (each.interval[0] > 80, each.interval[1] <= 80) == (each.verdict == "pass", each.verdict == "fail")
    assert found[2].reason == f"0.0 is not above 80 ({found[2].samples} of 300 samples)"


@settings(deadline=None, derandomize=True, max_examples=20)
@given(st.tuples(*[st.sampled_from([0.3, 0.8, 1.0])] * 3), st.integers(0, 99), st.integers(0, 330))
def test_gates_say_what_stopped_the_workers(shares: tuple[float, ...], seed: int, most: int) -> None:
    """The controller sees what the evidence rests on, and no more; it comes to the same verdicts."""
    gates = (LEVEL, replace(LEVEL, aspect="tracing", above=60.0))
    asked = dict(zip(LENGTHS, shares, strict=True))
    found = evaluator_of(thresholds(*gates), scope_of(MANY), asked, most=dict.fromkeys(LENGTHS, most), seed=seed)
    verdicts = iter(found.verdicts())
    for gate, length in itertools.product(gates, LENGTHS):
        standing = found.panels["ruler", length].status(found.scores)
        (look,) = [
            look
            for rule, look in standing.analyses.items()
            if {task for task in ASPECTS if case(task, length).id in rule.case_ids}
            == set(tasks_of(gate, scope_of(MANY)))
        ]
        verdict = next(verdicts)
        assert verdict.verdict == (look.decision.verdict if look.decision else "inconclusive")
        assert (verdict.samples, verdict.of) == (look.samples, look.planned_samples)


def test_a_budget_leaves_a_close_call_open() -> None:
    found = evaluator_of(
        thresholds(LEVEL), scope_of(MANY), dict.fromkeys(LENGTHS, 0.8), most={1024: 0, 2048: 1, 4096: 60}
    )
    none, few, open_ = found.verdicts()
    assert {each.verdict for each in found.verdicts()} == {"inconclusive"}
    assert (none.reason, none.measured, none.samples, none.of) == ("cases without a sample: 3 of 3", None, 0, 300)
    assert (few.reason, few.measured, few.samples) == ("cases without a sample: 2 of 3", None, 1)
    assert open_.interval is not None
    assert open_.interval[0] < 80 < open_.interval[1]
    assert open_.samples == 60
    assert open_.reason.endswith("is not yet told from 80 (60 of 300 samples)")


@pytest.mark.parametrize("seed", range(12))
def test_the_interval_leaves_out_the_threshold_where_a_gate_is_decided(seed: int) -> None:
    """Also with one length only, where the question has all of the error to itself."""
    scope = scope_of([each for each in MANY if each.length == 2048], lengths=(2048,))
    for share in (0.65, 0.92):
        (found,) = evaluator_of(thresholds(LEVEL), scope, {2048: share}, seed=seed).verdicts()
        assert found.interval is not None
        if found.samples < found.of:
            low, high = found.interval
            assert (low >= 80) if found.verdict == "pass" else (high <= 80)


def test_a_gap_ends_what_counts() -> None:
    """A case that came back with less than the others bounds the evidence, not what is known of the others."""
    found = evaluator_of(
        thresholds(LEVEL), scope_of(MANY), dict.fromkeys(LENGTHS, 0.8), most=dict.fromkeys(LENGTHS, 60)
    )
    short = replace(found.measured.results["test_ruler[vt-1024]"], outcomes=())
    queue = found.panels["ruler", 1024].order
    for count in range(1, 4):
        (*_, last) = itertools.islice((e for e in queue if e.case_id == short.case.id), count + 1)
        short = replace(short, outcomes=found.measured.results[short.case.id].outcomes[:count])
        measured = replace(found.measured, results={**found.measured.results, short.case.id: short})
        assert GateEvaluator(found.thresholds, measured).verdicts()[0].samples == queue.index(last)


@pytest.mark.parametrize("most", [0, 5, 300])
def test_a_failed_case_is_an_error_however_clear_the_rest(most: int) -> None:
    found = evaluator_of(thresholds(), scope_of(MANY), dict.fromkeys(LENGTHS, 0.0), most=dict.fromkeys(LENGTHS, most))
    broken = replace(found.measured.results["test_ruler[n1-2048]"], error="out of memory")
    measured = replace(found.measured, results={**found.measured.results, broken.case.id: broken})
    others = "fail" if most == 300 else "inconclusive"
    said = [each.verdict for each in GateEvaluator(thresholds(LEVEL, REACH, AVERAGE), measured).verdicts()]
    assert said == [others, "error", others, "error", "error"]


@settings(deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from(LENGTHS), st.sampled_from(["pass", "fail", "inconclusive"]), min_size=1),
    st.sampled_from((512, *LENGTHS)),
)
def test_an_effective_length_is_sure_when_open_lengths_cannot_change_it(
    said: dict[int, VerdictWord], required: int
) -> None:
    outcomes = set()
    for ends in itertools.product((0.0, 100.0), repeat=len(said)):
        scores = dict(zip(said, ends, strict=True))
        if all(said[n] == "inconclusive" or (said[n] == "pass") == (score > 50) for n, score in scores.items()):
            outcomes.add("pass" if (effective_length(scores, 50.0) or 0) >= required else "fail")
    expected = "not measured" if required > max(said) else outcomes.pop() if len(outcomes) == 1 else "inconclusive"
    assert effective_length_finding(said, required, 80.0).word == expected


@pytest.mark.parametrize(
    ("shares", "at_least", "word"),
    [
        ({1024: 0.8, 2048: 1.0, 4096: 0.2}, 2048, "pass"),
        ({1024: 0.8, 2048: 0.2, 4096: 0.2}, 2048, "fail"),
        ({1024: 1.0, 2048: 0.8, 4096: 0.2}, 2048, "inconclusive"),
    ],
)
def test_an_open_length_is_told(shares: dict[int, float], at_least: int, word: str) -> None:
    gate = replace(REACH, at_least=at_least)
    (found,) = evaluator_of(thresholds(gate), scope_of(MANY), shares, most=dict.fromkeys(LENGTHS, 40)).verdicts()
    open_ = "2k" if word == "inconclusive" else "1k"
    assert (found.verdict, found.measured) == (word, None)
    assert found.reason == f"undecided at {open_}, asks for {at_least} above 80 ({found.samples} of 900 samples)"


def test_a_weighted_average_of_everything_is_compared_exactly() -> None:
    """Its panels were decided long before, for other gates."""
    for above, word in ((-0.5, "pass"), (0.5, "fail")):
        full = evaluator_of(thresholds(AVERAGE), scope_of(MANY), {1024: 1.0, 2048: 0.8, 4096: 0.6})
        (value,) = [each.measured for each in full.verdicts()]
        assert value is not None
        (found,) = GateEvaluator(thresholds(replace(AVERAGE, above=value + above)), full.measured).verdicts()
        assert (found.verdict, found.samples, found.of) == (word, 900, 900)
        assert found.interval == pytest.approx((value, value))


def test_a_weighted_average_of_a_part_is_told_by_its_interval() -> None:
    part = evaluator_of(
        thresholds(LEVEL), scope_of(MANY), dict.fromkeys(LENGTHS, 0.8), most=dict.fromkeys(LENGTHS, 150)
    )
    gates = [replace(AVERAGE, above=above) for above in (40.0, 80.0, 99.0)]
    low, close, high = GateEvaluator(thresholds(*gates), part.measured).verdicts()
    assert [each.verdict for each in (low, close, high)] == ["pass", "inconclusive", "fail"]
    assert close.reason.endswith("is not yet told from 80 (450 of 900 samples)")
    assert close.interval is not None
    levels = [each.interval for each in part.verdicts()]
    for side, sign in ((0, 1), (1, -1)):
        mean = sum(weight * bounds[side] for weight, bounds in enumerate(levels, start=1) if bounds) / 6
        # Three intervals hold together less often than each.
        assert sign * close.interval[side] < sign * mean


def test_a_weighted_average_without_a_sample_of_each_case_is_open() -> None:
    part = evaluator_of(thresholds(), scope_of(MANY), dict.fromkeys(LENGTHS, 1.0), most={1024: 2})
    (found,) = GateEvaluator(thresholds(AVERAGE), part.measured).verdicts()
    assert (found.verdict, found.measured, found.interval) == ("inconclusive", None, None)


@pytest.mark.parametrize("share", [0.79, 0.8, 0.81])
def test_asking_for_everything_compares_exactly(share: float) -> None:
    scope = scope_of(MANY, full=True)
    found = evaluator_of(thresholds(LEVEL), scope, dict.fromkeys(LENGTHS, share))
    for each in found.verdicts():
        assert each.samples == each.of == 300
        assert each.measured is not None
        assert each.interval == pytest.approx((each.measured, each.measured))
        assert each.verdict == ("pass" if each.measured > 80 else "fail")


def test_a_zone_ends_a_close_call_sooner() -> None:
    close = evaluator_of(thresholds(LEVEL), scope_of(MANY), dict.fromkeys(LENGTHS, 0.86))
    wide = evaluator_of(
        replace(thresholds(LEVEL), verdict=VerdictSettings(indifference_zone=10.0)),
        scope_of(MANY),
        dict.fromkeys(LENGTHS, 0.86),
    )
    sooner = [(one.samples, other.samples) for one, other in zip(wide.verdicts(), close.verdicts(), strict=True)]
    assert all(one < other for one, other in sooner)
