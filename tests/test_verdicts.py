"""Verdicts: what a gate says of complete, failed, lost and unselected cases. An error is never a score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.records import Case, CaseResult, Generation, Outcome, Score, Verdict
from plugins.gates.plugin import blocks, gate_reports
from plugins.gates.thresholds import Gate, Reference, Thresholds
from plugins.gates.verdicts import Measured, panel, verdicts

LENGTHS = (1024, 2048, 4096)
ASPECTS = {"n1": "retrieval", "n2": "retrieval", "vt": "tracing"}
SAMPLES = 4
REFERENCE = Reference(
    source="a model", scores={"mean": 80.0, "retrieval": 90.0, "tracing": 50.0, "aggregation": 50.0, "qa": 50.0}
)
LEVEL = Gate(
    name="level", kind="level", aspect=None, tasks=(), above=None, blocking=True, lengths=(), at_least=None,
    rising=False,
)  # fmt: skip
REACH = replace(LEVEL, name="reach", kind="effective_length")
AVERAGE = replace(LEVEL, name="average", kind="weighted_average", rising=True)
GENERATION = Generation(
    text="", prompt_tokens=1, generated_tokens=1, computed_tokens=2, reused_tokens=0, finish="stop", seconds=0.0
)
VALUES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])


def case(task: str, length: int) -> Case:
    return Case(
        id=f"test_ruler[{task}-{length}]", suite="ruler", category=ASPECTS[task], task=task, length=length,
        samples=SAMPLES, source="archive", generation_tokens=8,
    )  # fmt: skip


CASES = tuple(case(task, length) for task in ASPECTS for length in LENGTHS)


def result(of: Case, *values: float, error: str | None = None) -> CaseResult:
    outcomes = tuple(
        Outcome(index=index, score=Score(value=value), generation=GENERATION, references=("a",), depths=())
        for index, value in enumerate(values)
    )
    return CaseResult(case=of, outcomes=outcomes, seconds=1.0, error=error)


def run(
    scores: Mapping[int, float],
    *,
    cases: Sequence[Case] = CASES,
    claimed: int | None = 4096,
    **changed: CaseResult | None,
) -> Measured:
    """A run in which all tasks score the same at a length; `changed` by task and length, None for a lost case."""
    results = {each.id: result(each, *(scores[each.length],) * SAMPLES) for each in cases}
    for name, other in changed.items():
        task, _, length = name.partition("_")
        if other is None:
            del results[f"test_ruler[{task}-{length}]"]
        else:
            results[f"test_ruler[{task}-{length}]"] = other
    return Measured(
        lengths=tuple(sorted(scores)),
        cases=cases,
        results=results,
        reference=REFERENCE,
        suite_tasks=ASPECTS,
        claimed_length=claimed,
    )


def judged(measured: Measured, *gates: Gate) -> list[Verdict]:
    return list(verdicts(Thresholds(references={}, gates=gates), measured))


def words(measured: Measured, *gates: Gate) -> list[str]:
    return [verdict.verdict for verdict in judged(measured, *gates)]


FALLING = {1024: 1.0, 2048: 0.75, 4096: 0.5}


def test_a_level_gate_is_one_verdict_for_each_length() -> None:
    found = judged(run(FALLING), LEVEL)
    assert [(each.name, each.length, each.measured, each.verdict) for each in found] == [
        ("level at 1k", 1024, 100.0, "pass"),
        ("level at 2k", 2048, 75.0, "fail"),
        ("level at 4k", 4096, 50.0, "fail"),
    ]
    assert {(each.required, each.samples, each.of) for each in found} == {(80.0, 12, 12)}


@pytest.mark.parametrize(("above", "word"), [(74.999, "pass"), (75.0, "fail"), (75.001, "fail")])
def test_a_score_has_to_be_strictly_above(above: float, word: str) -> None:
    assert words(run(FALLING), replace(LEVEL, above=above, lengths=(2048,))) == [word]
    only = run({2048: 0.75}, cases=[each for each in CASES if each.length == 2048])
    assert words(only, replace(REACH, above=above, at_least=2048)) == [word]
    assert words(only, replace(AVERAGE, above=above)) == [word]


def test_a_gate_takes_the_yardstick_of_its_tasks() -> None:
    gates = [replace(LEVEL, lengths=(1024,), aspect=aspect) for aspect in (None, "retrieval", "tracing")]
    assert [each.required for each in judged(run(FALLING), *gates)] == [80.0, 90.0, 50.0]


def test_a_gate_averages_over_its_tasks_alone() -> None:
    measured = run(FALLING, vt_1024=result(case("vt", 1024), 0, 0, 0, 0))
    gates = (LEVEL, replace(LEVEL, aspect="retrieval"), replace(LEVEL, tasks=("vt",), above=1.0))
    found = [judged(measured, replace(gate, lengths=(1024,)))[0].measured for gate in gates]
    assert found == [pytest.approx(200 / 3), 100.0, 0.0]


ERROR = result(case("n2", 2048), 1, 1, error="out of memory")
SHORT = result(case("n2", 2048), 1, 1, 1)


@pytest.mark.parametrize("gone", [None, ERROR, SHORT], ids=["lost", "failed", "a sample short"])
@pytest.mark.parametrize("gate", [LEVEL, REACH, AVERAGE], ids=lambda gate: gate.kind)
def test_a_case_without_a_score_makes_its_gate_an_error(gone: CaseResult | None, gate: Gate) -> None:
    found = judged(run(FALLING, n2_2048=gone), replace(gate, lengths=(2048,) if gate.kind == "level" else ()))
    assert [(each.verdict, each.measured) for each in found] == [("error", None)]
    assert found[0].reason.startswith("test_ruler[n2-2048]: ")
    assert blocks(found[0], narrowed=True)
    assert found[0].samples < found[0].of


def test_an_error_says_what_happened() -> None:
    reasons = [judged(run(FALLING, n2_2048=gone), LEVEL)[1].reason for gone in (None, ERROR, SHORT)]
    assert reasons == [
        f"test_ruler[n2-2048]: {words}" for words in ("no result came back", "out of memory", "samples are missing")
    ]


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
        (4096, None, 4096),
        (2048, None, 2048),
        (3000, None, 2048),
        (512, None, 1024),
        (131072, None, 4096),
        (None, None, 4096),
        (131072, 2048, 2048),
    ],
)
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
    dip = run({1024: 1.0, 2048: 0.5, 4096: 1.0})
    (found,) = judged(dip, REACH)
    assert (found.verdict, found.measured) == ("pass", 4096)
    assert found.reason.endswith("not monotone: every length passes up to 1024 only")


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


@settings(deadline=None)
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
            assert (found.measured > above) == (found.verdict == "pass")


@settings(deadline=None)
@given(st.sets(st.sampled_from(CASES), min_size=1), st.sets(st.sampled_from(CASES)), st.sets(st.sampled_from(CASES)))
def test_a_number_stands_only_where_every_case_has_one(selected: set[Case], lost: set[Case], failed: set[Case]) -> None:
    """Whatever is left out, lost or broken: errors win, nothing is averaged over, nothing is NaN."""
    cases = [each for each in CASES if each in selected]
    whole, cut = (1.0,) * SAMPLES, "out of memory"
    results = {
        each.id: result(each, 1, error=cut) if each in failed else result(each, *whole)
        for each in cases
        if each not in lost
    }
    measured = Measured(
        lengths=tuple(sorted({each.length for each in CASES})),
        cases=cases,
        results=results,
        reference=REFERENCE,
        suite_tasks=ASPECTS,
        claimed_length=None,
    )
    for length in measured.lengths:
        here = [each for each in cases if each.length == length]
        found = panel(measured, tuple(ASPECTS), length)
        if any(each in lost or each in failed for each in here):
            assert found.word == "error"
        elif len(here) < len(ASPECTS):
            assert found.word == "not measured"
        else:
            assert (found.word, found.score) == ("pass", 100.0)
            assert found.interval is not None
        assert (found.score is None) == (found.word != "pass")
        assert found.samples <= found.of
    broken = any(each in lost or each in failed for each in cases)
    complete = all(len([each for each in cases if each.length == n]) == len(ASPECTS) for n in measured.lengths)
    assert words(measured, REACH) == ["error" if broken else "pass" if complete else "not measured"]


def verdict(word: str, *, blocking: bool = True) -> Verdict:
    measured = 50.0 if word in ("pass", "fail") else None
    return Verdict(
        name="g", kind="level", length=1024, measured=measured, interval=None, required=80.0, samples=1, of=1,
        verdict=word, blocking=blocking, reason="because",  # type: ignore[arg-type]  # parametrized words
    )  # fmt: skip


@pytest.mark.parametrize("word", ["pass", "fail", "error", "not measured"])
def test_what_fails_a_run(word: str) -> None:
    assert blocks(verdict(word), narrowed=True) == (word in ("fail", "error"))
    assert blocks(verdict(word), narrowed=False) == (word != "pass")
    assert not blocks(verdict(word, blocking=False), narrowed=False)


@pytest.mark.parametrize(
    ("word", "blocking", "narrowed", "outcome"),
    [
        ("pass", True, False, "passed"),
        ("fail", True, False, "failed"),
        ("error", True, True, "failed"),
        ("fail", False, False, "xfailed"),
        ("error", False, False, "xfailed"),
        ("not measured", True, True, "skipped"),
        ("not measured", True, False, "failed"),
        ("not measured", False, False, "skipped"),
    ],
)
def test_a_gate_is_reported_as_a_test(word: str, blocking: bool, narrowed: bool, outcome: str) -> None:
    report, teardown = gate_reports(verdict(word, blocking=blocking), place="thresholds.toml", narrowed=narrowed)
    told = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    assert told == outcome
    assert report.nodeid == "thresholds.toml::gate[g]"
    assert teardown.outcome == "passed"
    assert ("verdict", word) in teardown.user_properties
