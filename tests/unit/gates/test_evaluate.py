"""Verdicts: what a gate says of complete, failed, lost and unselected cases. An error is never a score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.records import Case, CaseResult, Verdict
from plugins.gates.evaluate import GateEvaluator, Measured
from plugins.gates.thresholds import Gate
from tests.helpers.queues import ASPECTS, LENGTHS, LEVEL, case, result, scope_of, thresholds

SAMPLES = 4
REACH = replace(LEVEL, name="reach", kind="effective_length")
AVERAGE = replace(LEVEL, name="average", kind="weighted_average", rising=True)
VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
CASES = tuple(case(task, length, SAMPLES) for task in ASPECTS for length in LENGTHS)
FALLING = {1024: 1.0, 2048: 0.75, 4096: 0.5}


def run(
    scores: Mapping[int, float],
    *,
    cases: Sequence[Case] = CASES,
    claimed: int | None = 4096,
    **changed: CaseResult | None,
) -> Measured:
    """A run in which all tasks score the same at a length; `changed` by task and length, None for a lost case."""
    results = {each.id: result(each, *(scores[each.length],) * each.samples) for each in cases}
    for name, other in changed.items():
        task, _, length = name.partition("_")
        if other is None:
            del results[f"test_ruler[{task}-{length}]"]
        else:
            results[f"test_ruler[{task}-{length}]"] = other
    scope = scope_of(cases, lengths=tuple(sorted(scores)), claimed_length=claimed)
    return Measured(scope=scope, results=results)


def judged(measured: Measured, *gates: Gate) -> list[Verdict]:
    return list(GateEvaluator(thresholds(*gates), measured).verdicts())


def words(measured: Measured, *gates: Gate) -> list[str]:
    return [verdict.verdict for verdict in judged(measured, *gates)]


def test_a_level_gate_is_one_verdict_for_each_length() -> None:
    found = judged(run(FALLING), LEVEL)
    assert [(each.name, each.length, each.measured, each.verdict) for each in found] == [
        ("level at 1k", 1024, 100.0, "pass"),
        ("level at 2k", 2048, 75.0, "fail"),
        ("level at 4k", 4096, 50.0, "fail"),
    ]
    assert {(each.required, each.samples, each.of) for each in found} == {(80.0, 12, 12)}
    assert [each.interval for each in found] == [(100.0, 100.0), (75.0, 75.0), (50.0, 50.0)]
    assert {each.confidence for each in found} == {0.99}
    assert found[1].reason == "75.0 is not above 80 (all 12 samples)"


@pytest.mark.parametrize(("above", "word"), [(74.999, "pass"), (75.0, "fail"), (75.001, "fail")])
def test_a_score_has_to_be_strictly_above(above: float, word: str) -> None:
    assert words(run(FALLING), replace(LEVEL, above=above, lengths=(2048,))) == [word]
    only = run({2048: 0.75}, cases=[each for each in CASES if each.length == 2048])
    assert words(only, replace(REACH, above=above, at_least=2048)) == [word]
    assert words(only, replace(AVERAGE, above=above)) == [word]


@pytest.mark.parametrize("gate", [LEVEL, REACH, AVERAGE], ids=lambda gate: gate.kind)
def test_no_rounding_lifts_a_score_above_its_threshold(gate: Gate) -> None:
    """7 of 50 are 14.000000000000002 points."""
    cases = [case(task, 1024, 50) for task in ASPECTS]
    scope = scope_of(cases, lengths=(1024,), full=True)
    for ones in range(1, 50):
        results = {each.id: result(each, *(1.0,) * ones, *(0.0,) * (50 - ones)) for each in cases}
        measured = Measured(scope=scope, results=results)
        assert words(measured, replace(gate, above=2.0 * ones)) == ["fail"]
        assert words(measured, replace(gate, above=2.0 * ones - 0.001)) == ["pass"]


def test_a_gate_takes_the_yardstick_of_its_tasks() -> None:
    gates = [replace(LEVEL, lengths=(1024,), aspect=aspect) for aspect in (None, "retrieval", "tracing")]
    assert [each.required for each in judged(run(FALLING), *gates)] == [80.0, 90.0, 50.0]


def test_a_gate_averages_over_its_tasks_alone() -> None:
    measured = run(FALLING, vt_1024=result(case("vt", 1024), 0, 0, 0, 0))
    gates = (LEVEL, replace(LEVEL, aspect="retrieval"), replace(LEVEL, tasks=("vt",), above=1.0))
    found = [judged(measured, replace(gate, lengths=(1024,)))[0].measured for gate in gates]
    assert found == [pytest.approx(200 / 3), 100.0, 0.0]


ERROR = result(case("n2", 2048), 1, 1, error="out of memory")


@pytest.mark.parametrize("gone", [None, ERROR], ids=["lost", "failed"])
@pytest.mark.parametrize("gate", [LEVEL, REACH, AVERAGE], ids=lambda gate: gate.kind)
def test_a_case_without_a_score_makes_its_gate_an_error(gone: CaseResult | None, gate: Gate) -> None:
    found = judged(run(FALLING, n2_2048=gone), replace(gate, lengths=(2048,) if gate.kind == "level" else ()))
    assert [(each.verdict, each.measured, each.interval) for each in found] == [("error", None, None)]
    assert found[0].reason.startswith("test_ruler[n2-2048]: ")
    assert found[0].samples < found[0].of


def test_an_error_says_what_happened() -> None:
    reasons = [judged(run(FALLING, n2_2048=gone), LEVEL)[1].reason for gone in (None, ERROR)]
    assert reasons == [f"test_ruler[n2-2048]: {words}" for words in ("no result came back", "out of memory")]


def test_a_case_that_cannot_be_built_makes_its_gates_an_error() -> None:
    measured = run(FALLING, n2_2048=replace(ERROR, error="does not fit", outcomes=()))
    measured = replace(measured, scope=replace(measured.scope, misfits={"test_ruler[n2-2048]"}))
    assert words(measured, LEVEL, replace(LEVEL, aspect="tracing")) == ["pass", "error", "fail", "pass", "pass", "fail"]
    assert words(measured, REACH, AVERAGE) == ["error", "error"]


def test_a_case_that_was_not_selected_leaves_its_gates_unmeasured() -> None:
    selected = [each for each in CASES if (each.task, each.length) != ("vt", 2048)]
    measured = run(FALLING, cases=selected)
    assert words(measured, LEVEL) == ["pass", "not measured", "fail"]
    assert words(measured, replace(LEVEL, aspect="tracing")) == ["pass", "not measured", "fail"]
    assert words(measured, replace(LEVEL, aspect="retrieval")) == ["pass", "fail", "fail"]
    assert words(measured, REACH, AVERAGE) == ["not measured", "not measured"]
    found = judged(measured, LEVEL)[1]
    assert (found.measured, found.interval, found.reason) == (None, None, "vt not run at 2k")


def test_an_error_is_not_hidden_behind_a_case_that_was_not_selected() -> None:
    """At one length vt was left out, at a longer one a case failed: the gate has an error."""
    selected = [each for each in CASES if (each.task, each.length) != ("vt", 1024)]
    measured = run(FALLING, cases=selected, n2_2048=ERROR)
    assert words(measured, LEVEL) == ["not measured", "error", "fail"]
    assert words(measured, REACH, AVERAGE) == ["error", "error"]
    together = run(FALLING, cases=selected, n2_1024=result(case("n2", 1024), error="out of memory"))
    assert words(together, LEVEL) == ["error", "fail", "fail"]


def test_a_length_that_was_not_tested_is_not_measured() -> None:
    gate = replace(LEVEL, lengths=(1024, 8192))
    assert [(each.length, each.verdict) for each in judged(run(FALLING), gate)] == [
        (1024, "pass"),
        (8192, "not measured"),
    ]
    assert words(run(FALLING), replace(REACH, at_least=8192)) == ["not measured"]


@pytest.mark.parametrize(
    ("claimed", "at_least", "required"),
    [
        (4096, None, 4096), (2048, None, 2048), (3000, None, 2048), (512, None, 1024), (131072, None, 4096),
        (None, None, 4096), (131072, 2048, 2048),
    ],
)  # fmt: skip
def test_a_claim_asks_for_the_longest_tested_length_that_it_covers(
    claimed: int | None, at_least: int | None, required: int
) -> None:
    (found,) = judged(run(FALLING, claimed=claimed), replace(REACH, at_least=at_least))
    assert (found.required, found.measured) == (required, 1024)
    assert found.verdict == ("fail" if required > 1024 else "pass")


def test_a_length_whose_cases_were_all_left_out_still_counts() -> None:
    """Else -k 1k would turn a whole curve into one that ends where the checkpoint is good."""
    measured = run(FALLING, cases=[each for each in CASES if each.length == 1024])
    assert words(measured, REACH, AVERAGE) == ["not measured", "not measured"]
    assert words(measured, LEVEL) == ["pass", "not measured", "not measured"]


def test_an_effective_length_beyond_a_dip_is_told_as_such() -> None:
    (found,) = judged(run({1024: 1.0, 2048: 0.5, 4096: 1.0}), REACH)
    assert (found.verdict, found.measured) == ("pass", 4096)
    assert "; not monotone: every length passes up to 1024 only" in found.reason


def test_an_effective_length_passes_where_it_is_long_enough() -> None:
    assert words(run(FALLING), replace(REACH, at_least=1024), replace(REACH, at_least=4096, above=49.0)) == ["pass"] * 2


def test_no_length_above_the_threshold_is_a_failure_not_an_error() -> None:
    (found,) = judged(run(dict.fromkeys(LENGTHS, 0.0)), REACH)
    assert (found.verdict, found.measured) == ("fail", None)
    assert "<1024" in found.reason


def test_a_weighted_average_weighs_long_or_short_lengths_most() -> None:
    rising, falling = judged(run(FALLING), AVERAGE, replace(AVERAGE, rising=False))
    assert rising.measured == pytest.approx((100 + 2 * 75 + 3 * 50) / 6)
    assert falling.measured == pytest.approx((3 * 100 + 2 * 75 + 50) / 6)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.dictionaries(st.sampled_from(LENGTHS), VALUES, min_size=1), st.floats(0, 100))
def test_a_complete_run_is_always_decided(scores: dict[int, float], above: float) -> None:
    cases = [each for each in CASES if each.length in scores]
    gates = [replace(gate, above=above) for gate in (LEVEL, REACH, AVERAGE)]
    for found in judged(run(scores, cases=cases), *gates):
        assert found.verdict in ("pass", "fail")
        assert (found.samples, found.of) == (found.of, found.samples)
        if found.kind != "effective_length":
            assert found.measured is not None
            assert math.isfinite(found.measured)
            assert (found.measured > above + 1e-8) == (found.verdict == "pass")


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.sets(st.sampled_from(CASES), min_size=1), st.sets(st.sampled_from(CASES)), st.sets(st.sampled_from(CASES)))
def test_a_number_stands_only_where_every_case_has_one(selected: set[Case], lost: set[Case], failed: set[Case]) -> None:
    """Whatever is left out, lost or broken: errors win, nothing is averaged over, nothing is NaN."""
    cases = [each for each in CASES if each in selected]
    results = {
        each.id: result(each, 1, error="out of memory") if each in failed else result(each, *(1.0,) * SAMPLES)
        for each in cases
        if each not in lost
    }
    measured = Measured(scope=scope_of(cases, claimed_length=None), results=results)
    for length in LENGTHS:
        here = [each for each in cases if each.length == length]
        found = GateEvaluator(thresholds(), measured).finding(LEVEL, length)
        if any(each in lost or each in failed for each in here):
            assert found.word == "error"
        elif len(here) < len(ASPECTS):
            assert found.word == "not measured"
        else:
            assert (found.word, found.score, found.interval) == ("pass", 100.0, (100.0, 100.0))
        assert (found.score is None) == (found.word != "pass")
        assert found.samples <= found.of
    broken = any(each in lost or each in failed for each in cases)
    complete = all(len([each for each in cases if each.length == n]) == len(ASPECTS) for n in LENGTHS)
    assert words(measured, REACH) == ["error" if broken else "pass" if complete else "not measured"]
