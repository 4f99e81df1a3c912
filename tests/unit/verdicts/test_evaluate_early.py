"""Verdicts from the first part of a queue: final ones, and those that a time budget leaves inconclusive."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from longctx.fixtures.records import Verdict, VerdictWord
from longctx.plugins.evidence.effective_length import effective_length
from longctx.plugins.report.sections.gates import REMEDIES, reason_text
from longctx.plugins.verdicts.evaluate import GateEvaluator, effective_length_verdict
from tests.helpers.queues import ASPECTS, LENGTHS, LEVEL, case, evaluator_of, scope_of, thresholds

REACH = replace(LEVEL, name="reach", kind="effective_length")
AVERAGE = replace(LEVEL, name="average", kind="weighted_average", rising=True)
MORE = REMEDIES["too few samples"]
MANY = tuple(case(task, length, 100) for task in ASPECTS for length in LENGTHS)


def test_a_clear_verdict_needs_only_some_of_the_samples() -> None:
    verdicts = evaluator_of(thresholds(LEVEL), scope_of(MANY), {1024: 0.98, 2048: 0.55, 4096: 0.0}).verdicts()
    assert [verdict.verdict for verdict in verdicts] == ["pass", "fail", "fail"]
    for verdict in verdicts:
        assert verdict.samples < verdict.of == 300
        assert verdict.interval is not None
        assert verdict.measured is not None
        assert verdict.interval[0] <= verdict.measured <= verdict.interval[1]
        assert (verdict.interval[0] > 80, verdict.interval[1] <= 80) == (
            verdict.verdict == "pass",
            verdict.verdict == "fail",
        )
    assert reason_text(verdicts[2]) == f"mean 0.0 at 4K, needs more than 80 ({verdicts[2].samples} of 300 samples)"


@settings(deadline=None, derandomize=True, max_examples=10)
@given(st.tuples(*[st.sampled_from([0.3, 0.8, 1.0])] * 3), st.integers(0, 99), st.integers(0, 330))
def test_gates_reach_the_verdicts_that_stopped_the_workers(shares: tuple[float, ...], seed: int, most: int) -> None:
    """The controller sees only the samples of the evidence, and reaches the same verdicts as the workers."""
    gates = (LEVEL, replace(LEVEL, aspect="tracing", above=60.0))
    share_by_length = dict(zip(LENGTHS, shares, strict=True))
    evaluator = evaluator_of(
        thresholds(*gates), scope_of(MANY), share_by_length, most=dict.fromkeys(LENGTHS, most), seed=seed
    )
    verdicts = iter(evaluator.verdicts())
    for gate, length in itertools.product(gates, LENGTHS):
        status = evaluator.panels["ruler", length].status(evaluator.scores)
        (analysis,) = [
            analysis
            for hypothesis, analysis in status.analyses.items()
            if {task for task in ASPECTS if case(task, length).id in hypothesis.case_ids}
            == set(scope_of(MANY).tasks_of(gate))
        ]
        verdict = next(verdicts)
        assert verdict.verdict == (analysis.decision.verdict if analysis.decision else "undecided")
        assert (verdict.samples, verdict.of) == (analysis.samples, analysis.planned_samples)


def test_a_budget_leaves_a_close_score_undecided() -> None:
    evaluator = evaluator_of(
        thresholds(LEVEL), scope_of(MANY), dict.fromkeys(LENGTHS, 0.8), most={1024: 0, 2048: 1, 4096: 60}
    )
    without_samples, with_one_sample, undecided = evaluator.verdicts()
    assert {verdict.verdict for verdict in evaluator.verdicts()} == {"undecided"}
    assert (reason_text(without_samples), without_samples.measured, without_samples.samples, without_samples.of) == (
        f"cases without a sample: 3 of 3; {MORE}",
        None,
        0,
        300,
    )
    assert (reason_text(with_one_sample), with_one_sample.measured, with_one_sample.samples) == (
        f"cases without a sample: 2 of 3; {MORE}",
        None,
        1,
    )
    assert undecided.interval is not None
    assert undecided.interval[0] < 80 < undecided.interval[1]
    assert undecided.samples == 60
    assert reason_text(undecided).endswith(f", needs more than 80 (60 of 300 samples); {MORE}")


@pytest.mark.parametrize("seed", range(12))
def test_the_interval_of_an_early_decision_excludes_the_threshold(seed: int) -> None:
    """This also holds with a single length, whose hypothesis may use the whole error probability."""
    scope = scope_of([case for case in MANY if case.length == 2048], lengths=(2048,))
    for share in (0.65, 0.92):
        (verdict,) = evaluator_of(thresholds(LEVEL), scope, {2048: share}, seed=seed).verdicts()
        assert verdict.interval is not None
        if verdict.samples < verdict.of:
            low, high = verdict.interval
            assert (low >= 80) if verdict.verdict == "pass" else (high <= 80)


@settings(deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from(LENGTHS), st.sampled_from(["pass", "fail", "undecided"]), min_size=1),
    st.sampled_from((512, *LENGTHS)),
)
def test_an_effective_length_is_decided_if_undecided_lengths_cannot_change_it(
    words: dict[int, VerdictWord], required: int
) -> None:
    outcomes = set()
    for extremes in itertools.product((0.0, 100.0), repeat=len(words)):
        scores = dict(zip(words, extremes, strict=True))
        if all(words[n] == "undecided" or (words[n] == "pass") == (score > 50) for n, score in scores.items()):
            outcomes.add("pass" if (effective_length(scores, 50.0) or 0) >= required else "fail")
    expected = "not measured" if required > max(words) else outcomes.pop() if len(outcomes) == 1 else "undecided"
    findings = {
        length: structs.replace(ABOVE, length=length, verdict=word, of_model=None) for length, word in words.items()
    }
    assert effective_length_verdict(findings, structs.replace(ABOVE, required=float(required))).verdict == expected


ABOVE = Verdict(
    name="mean", kind="level", length=None, measured=95.0, interval=None, confidence=None, required=80.0, samples=0,
    of=0, verdict="pass", blocking=True, of_model="above",
)  # fmt: skip
BELOW = structs.replace(ABOVE, verdict="fail", measured=70.0, of_model="below")
NEAR_PASS = structs.replace(ABOVE, measured=80.0, of_model="near")
NEAR_FAIL = structs.replace(NEAR_PASS, verdict="fail")


@pytest.mark.parametrize(
    ("at_lengths", "word", "text"),
    [
        ((ABOVE, ABOVE, BELOW), "pass", "reaches 2K, needs at least 2K (mean above 80)"),
        ((ABOVE, NEAR_FAIL, NEAR_PASS), "pass", "; the model's own length may be from 1K to 4K"),
        ((ABOVE, NEAR_PASS, NEAR_FAIL), "pass", "; the model's own length may be from 1K to 4K"),
        ((NEAR_PASS, NEAR_FAIL, BELOW), "fail", "; the model's own length may be from less than 1K to 2K"),
        ((BELOW, ABOVE, ABOVE), "fail", "mean 70.0 at 1K, needs more than 80; not monotone: without a gap it passes "
         "at none of the shortest lengths"),
        ((NEAR_FAIL, ABOVE, ABOVE), "pass", "at none of the shortest lengths"),
    ],
)  # fmt: skip
def test_an_effective_length_says_what_the_samples_show_of_the_model(
    at_lengths: tuple[Verdict, ...], word: VerdictWord, text: str
) -> None:
    findings = {length: structs.replace(at, length=length) for length, at in zip(LENGTHS, at_lengths, strict=True)}
    reach = structs.replace(
        ABOVE, kind="effective_length", required=2048.0, threshold=80.0, by_length=tuple(findings.values())
    )  # fmt: skip
    found = effective_length_verdict(findings, reach)
    assert found.verdict == word
    assert reason_text(found).removesuffix(" (all 0 samples)").endswith(text)


@pytest.mark.parametrize(
    ("shares", "at_least", "word"),
    [
        ({1024: 0.8, 2048: 1.0, 4096: 0.2}, 2048, "pass"),
        ({1024: 0.8, 2048: 0.2, 4096: 0.2}, 2048, "fail"),
        ({1024: 1.0, 2048: 0.8, 4096: 0.2}, 2048, "undecided"),
    ],
)
def test_the_reason_names_an_undecided_length(shares: dict[int, float], at_least: int, word: str) -> None:
    gate = replace(REACH, at_least=at_least)
    (verdict,) = evaluator_of(thresholds(gate), scope_of(MANY), shares, most=dict.fromkeys(LENGTHS, 40)).verdicts()
    undecided = "2K" if word == "undecided" else "1K"
    assert (verdict.verdict, verdict.measured) == (word, None)
    needs = "needs at least 2K (mean above 80)"
    remedy = f"; {MORE}" if word == "undecided" else ""
    assert reason_text(verdict) == f"not decided at {undecided}; {needs} ({verdict.samples} of 900 samples){remedy}"


def test_a_weighted_average_of_all_samples_is_compared_exactly() -> None:
    """All samples are measured, so the score itself decides and its interval is a point."""
    for margin, word in ((-0.5, "pass"), (0.5, "fail")):
        full = evaluator_of(thresholds(AVERAGE), scope_of(MANY), {1024: 1.0, 2048: 0.8, 4096: 0.6})
        (value,) = [verdict.measured for verdict in full.verdicts()]
        assert value is not None
        (verdict,) = GateEvaluator(thresholds(replace(AVERAGE, above=value + margin)), full.measured).verdicts()
        assert (verdict.verdict, verdict.samples, verdict.of) == (word, 900, 900)
        assert verdict.interval == pytest.approx((value, value))


def test_a_weighted_average_of_some_samples_is_decided_by_its_interval() -> None:
    part = evaluator_of(
        thresholds(LEVEL), scope_of(MANY), dict.fromkeys(LENGTHS, 0.8), most=dict.fromkeys(LENGTHS, 150)
    )
    gates = [replace(AVERAGE, above=above) for above in (40.0, 80.0, 99.0)]
    low, close, high = GateEvaluator(thresholds(*gates), part.measured).verdicts()
    assert [verdict.verdict for verdict in (low, close, high)] == ["pass", "undecided", "fail"]
    assert reason_text(close).endswith(f", needs more than 80 (450 of 900 samples); {MORE}")
    assert close.interval is not None
    levels = [verdict.interval for verdict in part.verdicts()]
    for bound, sign in ((0, 1), (1, -1)):
        mean = sum(weight * bounds[bound] for weight, bounds in enumerate(levels, start=1) if bounds) / 6
        # Three intervals hold jointly less often than a single one, so the interval of the mean is wider.
        assert sign * close.interval[bound] < sign * mean
