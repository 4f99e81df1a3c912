"""The verdict against a baseline rests on the pairs of a panel."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from longctx.fixtures.records import CaseResult, UndecidedEffect
from longctx.plugins.report.sections.gates import reason_text
from longctx.plugins.thresholds.records import RegressionSettings, Thresholds
from longctx.plugins.verdicts.evaluate import GateEvaluator, blocks
from longctx.plugins.verdicts.regression import regression_verdicts
from tests.helpers.queues import (
    ASPECTS,
    LENGTHS,
    case,
    evaluator_of,
    result,
    scope_of,
    thresholds,
)

MANY = tuple(case(task, length, 100) for task in ASPECTS for length in LENGTHS)
PAIRED = scope_of(MANY, has_baseline=True)
SHARES = dict.fromkeys(LENGTHS, 0.9)
# Few pairs can neither show nor rule out a loss of 2 points.
COARSE = replace(thresholds(), regression=RegressionSettings(drop=10.0))


def compared(shares: Mapping[int, float], *, given: Thresholds = COARSE, **changed: object) -> GateEvaluator:
    """Return the evaluator of a run against a baseline of 90; one model's right answers contain the other's."""
    return evaluator_of(given, PAIRED, shares, baseline=SHARES, **changed)  # type: ignore[arg-type]  # by name


def with_result(evaluator: GateEvaluator, changed: CaseResult | None, name: str) -> GateEvaluator:
    results = {key: old_result for key, old_result in evaluator.measured.results.items() if key != name}
    if changed is not None:
        results[name] = changed
    return GateEvaluator(evaluator.thresholds, replace(evaluator.measured, results=results))


def verdict_words(evaluator: GateEvaluator) -> list[str]:
    return [verdict.verdict for verdict in regression_verdicts(evaluator)]


def test_the_same_scores_pass_early_at_every_length() -> None:
    verdicts = regression_verdicts(compared(SHARES))
    assert [(verdict.name, verdict.length, verdict.verdict) for verdict in verdicts] == [
        ("regression at 1k", 1024, "pass"),
        ("regression at 2k", 2048, "pass"),
        ("regression at 4k", 4096, "pass"),
    ]
    for verdict in verdicts:
        assert (verdict.kind, verdict.measured, verdict.required, verdict.confidence) == (
            "regression",
            0.0,
            -10.0,
            0.98,
        )
        assert verdict.samples < verdict.of == 300
        assert verdict.interval is not None
        assert -10 < verdict.interval[0] <= 0 <= verdict.interval[1]
        lost = f"lost 0.0 points (at most {-verdict.interval[0]:.1f}); 10 allowed"
        assert reason_text(verdict) == f"{lost} (0 worse, 0 better of {verdict.samples} pairs)"


def test_without_pairs_a_finished_baseline_is_not_measured_and_a_running_one_is_undecided() -> None:
    """A comparison without pairs never passes, even if undecided ones count as passed."""
    evaluator = evaluator_of(COARSE, replace(PAIRED, baseline_is_final=True), SHARES)
    verdicts = regression_verdicts(evaluator)
    assert {verdict.verdict for verdict in verdicts} == {"not measured"}
    assert all(blocks(verdict, narrowed=False) for verdict in verdicts)
    assert set(verdict_words(evaluator_of(COARSE, PAIRED, SHARES, most=dict.fromkeys(LENGTHS, 0)))) == {"undecided"}


def test_a_drop_fails_only_at_its_length() -> None:
    verdicts = regression_verdicts(compared({1024: 0.9, 2048: 0.6, 4096: 0.95}))
    assert [verdict.verdict for verdict in verdicts] == ["pass", "fail", "pass"]
    dropped = verdicts[1]
    assert dropped.measured is not None
    assert dropped.measured < -15
    assert dropped.interval is not None
    assert dropped.interval[1] < -5
    worse = round(-dropped.measured * dropped.samples / 100)
    lost = f"lost {-dropped.measured:.1f} points (at least {-dropped.interval[1]:.1f}); 10 allowed"
    chance = "in 1 of 2,700 runs an unchanged model loses as much in one of its 3 comparisons"
    assert reason_text(dropped) == f"{lost} ({worse} worse, 0 better of {dropped.samples} pairs); {chance}"


def test_a_failed_loss_within_the_drop_states_the_limit_that_it_exceeds() -> None:
    """All 300 pairs decide a loss of 8 points, more than three quarters of the drop."""
    everything = replace(PAIRED, full=True)
    near = evaluator_of(COARSE, everything, dict.fromkeys(LENGTHS, 0.82), baseline=SHARES)
    for verdict in regression_verdicts(near):
        assert (verdict.verdict, verdict.samples) == ("fail", 300)
        assert "less than 7.5 allowed where all pairs are known (24 worse, 0 better of 300 pairs)" in reason_text(
            verdict
        )


@pytest.mark.parametrize("full", [False, True])
def test_a_gain_is_no_negative_loss(full: bool) -> None:
    better = evaluator_of(COARSE, replace(PAIRED, full=full), dict.fromkeys(LENGTHS, 0.95), baseline=SHARES)
    for verdict in regression_verdicts(better):
        assert verdict.verdict == "pass"
        assert verdict.measured is not None
        assert verdict.interval is not None
        low = verdict.interval[0]
        bound = f"at least {low:.1f}" if full else f"lost at most {-low:.1f}"
        assert reason_text(verdict).startswith(f"gained {verdict.measured:.1f} points ({bound}); 10 allowed (0 worse, ")


@pytest.mark.parametrize("most", [0, 1, 20])
@pytest.mark.parametrize("counts", [None, "pass", "fail"])
def test_too_few_pairs_are_undecided_and_count_as_configured(most: int, counts: UndecidedEffect | None) -> None:
    given = replace(thresholds(), regression=RegressionSettings(undecided=counts))
    evaluator = compared(SHARES, given=given, most=dict.fromkeys(LENGTHS, most))
    for verdict in regression_verdicts(evaluator):
        # The model's sample is measured first, so its last one has no pair yet.
        assert (verdict.verdict, verdict.samples, verdict.of) == ("undecided", max(0, most - 1), 300)
        assert (verdict.measured is None) == (most <= 1)
        said = "lost" if most > 1 else "too few samples to compare: none has an answer of both models"
        assert said in reason_text(verdict)
        assert blocks(verdict, narrowed=False) == (counts == "fail")


@pytest.mark.parametrize("share", [0.9, 0.2])
def test_a_failed_case_makes_the_comparison_an_error(share: float) -> None:
    evaluator = compared(dict.fromkeys(LENGTHS, share))
    name = "test_ruler[n2-2048]"
    failed = with_result(evaluator, replace(evaluator.measured.results[name], error="out of memory"), name)
    rest = "pass" if share == 0.9 else "fail"
    assert verdict_words(failed) == [rest, "error", rest]
    broken = regression_verdicts(failed)[1]
    assert (broken.measured, broken.interval, reason_text(broken)) == (None, None, f"{name}: out of memory")
    assert verdict_words(with_result(evaluator, None, name)) == [rest, "error", rest]


def test_a_misfit_makes_the_comparison_an_error() -> None:
    """A misfit is in no queue, so the mean of the pairs is not the panel's."""
    name = "test_ruler[n2-2048]"
    scope = scope_of(MANY, has_baseline=True, misfits={name})
    evaluator = evaluator_of(COARSE, scope, SHARES, baseline=SHARES)
    assert verdict_words(with_result(evaluator, result(case("n2", 2048, 100), error="does not fit"), name)) == [
        "pass", "error", "pass",
    ]  # fmt: skip


def test_without_a_baseline_there_is_no_comparison() -> None:
    assert regression_verdicts(evaluator_of(COARSE, scope_of(MANY), SHARES)) == ()
