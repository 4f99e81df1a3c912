"""The verdicts of gates on complete, failed, lost and unselected cases. An error never counts as a score."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import Case, CaseResult, Verdict
from longctx.plugins.report.sections.gates import reason_text
from longctx.plugins.thresholds.records import Gate
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured
from tests.helpers.queues import ASPECTS, LENGTHS, LEVEL, case, result, scope_of, thresholds

SAMPLES = 4
REACH = replace(LEVEL, name="reach", kind="effective_length")
AVERAGE = replace(LEVEL, name="average", kind="weighted_average", rising=True)
CASES = tuple(case(task, length, SAMPLES) for task in ASPECTS for length in LENGTHS)
FALLING = {1024: 1.0, 2048: 0.75, 4096: 0.5}


def run(
    scores: Mapping[int, float],
    *,
    cases: Sequence[Case] = CASES,
    claimed: int | None = 4096,
    **replaced_results: CaseResult | None,
) -> Measured:
    """Return a run in which all tasks have the same score at a length.

    `replaced_results` maps `task_length` to another result of that case; None drops the result.
    """
    results = {case.id: result(case, *(scores[case.length],) * case.samples) for case in cases}
    for name, replacement in replaced_results.items():
        task, _, length = name.partition("_")
        if replacement is None:
            del results[f"test_ruler[{task}-{length}]"]
        else:
            results[f"test_ruler[{task}-{length}]"] = replacement
    scope = scope_of(cases, lengths=tuple(sorted(scores)), claimed_length=claimed)
    return Measured(scope=scope, results=results)


def verdicts_of(measured: Measured, *gates: Gate) -> list[Verdict]:
    return list(GateEvaluator(thresholds(*gates), measured).verdicts())


def verdict_words(measured: Measured, *gates: Gate) -> list[str]:
    return [verdict.verdict for verdict in verdicts_of(measured, *gates)]


def test_a_level_gate_has_one_verdict_per_length() -> None:
    verdicts = verdicts_of(run(FALLING), LEVEL)
    assert [(verdict.name, verdict.length, verdict.measured, verdict.verdict) for verdict in verdicts] == [
        ("level at 1k", 1024, 100.0, "pass"),
        ("level at 2k", 2048, 75.0, "fail"),
        ("level at 4k", 4096, 50.0, "fail"),
    ]
    assert {(verdict.required, verdict.samples, verdict.of) for verdict in verdicts} == {(80.0, 12, 12)}
    assert [verdict.interval for verdict in verdicts] == [(100.0, 100.0), (75.0, 75.0), (50.0, 50.0)]
    assert {verdict.confidence for verdict in verdicts} == {0.99}
    near = "; the model's own mean may be on either side"
    assert reason_text(verdicts[1]) == f"mean 75.0 at 2K, needs more than 80{near} (all 12 samples)"


@pytest.mark.parametrize(("above", "word"), [(74.999, "pass"), (75.0, "fail"), (75.001, "fail")])
def test_a_score_must_be_strictly_above_the_threshold(above: float, word: str) -> None:
    assert verdict_words(run(FALLING), replace(LEVEL, above=above, lengths=(2048,))) == [word]
    single_length = run({2048: 0.75}, cases=[case for case in CASES if case.length == 2048])
    assert verdict_words(single_length, replace(REACH, above=above, at_least=2048)) == [word]
    assert verdict_words(single_length, replace(AVERAGE, above=above)) == [word]


@pytest.mark.parametrize("gate", [LEVEL, REACH, AVERAGE], ids=lambda gate: gate.kind)
def test_no_rounding_lifts_a_score_above_its_threshold(gate: Gate) -> None:
    """In floating point, 7 of 50 is 14.000000000000002 points."""
    cases = [case(task, 1024, 50) for task in ASPECTS]
    scope = scope_of(cases, lengths=(1024,), full=True)
    for ones in range(1, 50):
        results = {case.id: result(case, *(1.0,) * ones, *(0.0,) * (50 - ones)) for case in cases}
        measured = Measured(scope=scope, results=results)
        assert verdict_words(measured, replace(gate, above=2.0 * ones)) == ["fail"]
        assert verdict_words(measured, replace(gate, above=2.0 * ones - 0.001)) == ["pass"]


def test_a_gate_requires_the_reference_score_of_its_tasks() -> None:
    gates = [replace(LEVEL, lengths=(1024,), aspect=aspect) for aspect in (None, "retrieval", "tracing")]
    assert [verdict.required for verdict in verdicts_of(run(FALLING), *gates)] == [80.0, 90.0, 50.0]


def test_a_gate_averages_over_its_tasks_alone() -> None:
    measured = run(FALLING, vt_1024=result(case("vt", 1024), 0, 0, 0, 0))
    gates = (LEVEL, replace(LEVEL, aspect="retrieval"), replace(LEVEL, tasks=("vt",), above=1.0))
    scores = [verdicts_of(measured, replace(gate, lengths=(1024,)))[0].measured for gate in gates]
    assert scores == [pytest.approx(200 / 3), 100.0, 0.0]


ERROR = result(case("n2", 2048), 1, 1, error="out of memory")


@pytest.mark.parametrize("replacement", [None, ERROR], ids=["lost", "failed"])
@pytest.mark.parametrize("gate", [LEVEL, REACH, AVERAGE], ids=lambda gate: gate.kind)
def test_a_case_without_a_score_makes_its_gate_an_error(replacement: CaseResult | None, gate: Gate) -> None:
    verdicts = verdicts_of(
        run(FALLING, n2_2048=replacement), replace(gate, lengths=(2048,) if gate.kind == "level" else ())
    )
    assert [(verdict.verdict, verdict.measured, verdict.interval) for verdict in verdicts] == [("error", None, None)]
    assert reason_text(verdicts[0]).startswith("test_ruler[n2-2048]: ")
    assert verdicts[0].samples < verdicts[0].of


def test_a_case_that_cannot_be_built_makes_its_gates_an_error() -> None:
    measured = run(FALLING, n2_2048=replace(ERROR, error="does not fit", outcomes=()))
    measured = replace(measured, scope=replace(measured.scope, misfits={"test_ruler[n2-2048]"}))
    assert verdict_words(measured, LEVEL, replace(LEVEL, aspect="tracing")) == [
        "pass",
        "error",
        "fail",
        "pass",
        "pass",
        "fail",
    ]
    assert verdict_words(measured, REACH, AVERAGE) == ["error", "error"]


def test_a_case_that_was_not_selected_leaves_its_gates_unmeasured() -> None:
    selected = [case for case in CASES if (case.task, case.length) != ("vt", 2048)]
    measured = run(FALLING, cases=selected)
    assert verdict_words(measured, LEVEL) == ["pass", "not measured", "fail"]
    assert verdict_words(measured, replace(LEVEL, aspect="tracing")) == ["pass", "not measured", "fail"]
    assert verdict_words(measured, replace(LEVEL, aspect="retrieval")) == ["pass", "fail", "fail"]
    assert verdict_words(measured, REACH, AVERAGE) == ["not measured", "not measured"]
    verdict = verdicts_of(measured, LEVEL)[1]
    assert (verdict.measured, verdict.interval, reason_text(verdict)) == (None, None, "partial: vt not run at 2K")


def test_a_length_that_was_not_tested_is_not_measured() -> None:
    gate = replace(LEVEL, lengths=(1024, 8192))
    assert [(verdict.length, verdict.verdict) for verdict in verdicts_of(run(FALLING), gate)] == [
        (1024, "pass"),
        (8192, "not measured"),
    ]
    assert verdict_words(run(FALLING), replace(REACH, at_least=8192)) == ["not measured"]


@pytest.mark.parametrize(
    ("claimed", "at_least", "required"),
    [
        (4096, None, 4096), (2048, None, 2048), (3000, None, 2048), (512, None, 1024), (131072, None, 4096),
        (None, None, 4096), (131072, 2048, 2048),
    ],
)  # fmt: skip
def test_a_claim_requires_the_longest_tested_length_that_it_covers(
    claimed: int | None, at_least: int | None, required: int
) -> None:
    (verdict,) = verdicts_of(run(FALLING, claimed=claimed), replace(REACH, at_least=at_least))
    assert (verdict.required, verdict.measured) == (required, 1024)
    assert verdict.verdict == ("fail" if required > 1024 else "pass")


def test_the_reason_mentions_a_failed_length_below_the_effective_length() -> None:
    (verdict,) = verdicts_of(run({1024: 1.0, 2048: 0.0, 4096: 1.0}), REACH)
    assert (verdict.verdict, verdict.measured) == ("fail", 4096)
    assert "; not monotone: without a gap it passes up to 1K only" in reason_text(verdict)


def test_no_length_above_the_threshold_is_a_failure_not_an_error() -> None:
    (verdict,) = verdicts_of(run(dict.fromkeys(LENGTHS, 0.0)), REACH)
    assert (verdict.verdict, verdict.measured) == ("fail", None)
    assert "reaches <1K, needs at least 4K: mean 0.0 at 1K, needs more than 80" in reason_text(verdict)


def test_a_weighted_average_gives_most_weight_to_long_or_to_short_lengths() -> None:
    rising, falling = verdicts_of(run(FALLING), AVERAGE, replace(AVERAGE, rising=False))
    assert rising.measured == pytest.approx((100 + 2 * 75 + 3 * 50) / 6)
    assert falling.measured == pytest.approx((3 * 100 + 2 * 75 + 50) / 6)


@settings(deadline=None, derandomize=True, max_examples=25)
@given(st.sets(st.sampled_from(CASES), min_size=1), st.sets(st.sampled_from(CASES)), st.sets(st.sampled_from(CASES)))
def test_a_gate_has_a_score_only_if_every_case_has_one(selected: set[Case], lost: set[Case], failed: set[Case]) -> None:
    """An error takes precedence over unselected cases. No mean skips a case, and no score is NaN.

    Otherwise `-k 1k` would hide the lengths at which the checkpoint fails.
    """
    cases = [case for case in CASES if case in selected]
    results = {
        case.id: result(case, 1, error="out of memory") if case in failed else result(case, *(1.0,) * SAMPLES)
        for case in cases
        if case not in lost
    }
    measured = Measured(scope=scope_of(cases, claimed_length=None), results=results)
    for length in LENGTHS:
        cases_at_length = [case for case in cases if case.length == length]
        finding = GateEvaluator(thresholds(), measured).finding(LEVEL, length)
        if any(case in lost or case in failed for case in cases_at_length):
            assert finding.verdict == "error"
        elif len(cases_at_length) < len(ASPECTS):
            assert finding.verdict == "not measured"
        else:
            assert (finding.verdict, finding.measured, finding.interval) == ("pass", 100.0, (100.0, 100.0))
        assert (finding.measured is None) == (finding.verdict != "pass")
        assert finding.samples <= finding.of
    broken = any(case in lost or case in failed for case in cases)
    complete = all(len([case for case in cases if case.length == n]) == len(ASPECTS) for n in LENGTHS)
    word = "error" if broken else "pass" if complete else "not measured"
    assert verdict_words(measured, REACH, AVERAGE) == [word, word]
