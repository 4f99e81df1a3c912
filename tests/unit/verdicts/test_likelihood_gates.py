"""Estimates, gates and findings on the likelihood of gold answers, and the ways in which likelihood misleads."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import AnswerLikelihood, Case, Likelihood, Verdict
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.likelihood_estimates import LEAST_EVIDENCE_GAIN, Likelihoods, estimates
from longctx.plugins.report.sections.gates import reason_text
from longctx.plugins.report.sections.likelihood import likelihood
from longctx.plugins.thresholds.records import CATEGORIES, Gate, Thresholds
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation, evaluate
from longctx.plugins.verdicts.hypotheses import build_panels
from longctx.plugins.verdicts.likelihood_gates import _LikelihoodRule, build_rules
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.queues import ASPECTS, LEVEL, case, result, scope_of, thresholds

SAMPLES = 60
CASES = tuple(replace(case(task, 1024, SAMPLES), has_gold=True) for task in ("n1", "n2"))
UNEQUAL = (CASES[0], replace(CASES[1], samples=9 * SAMPLES))
GAIN = replace(LEVEL, name="gain", kind="likelihood", measure="gain", above=1.0, tasks=("n1", "n2"))
RECOVERY = replace(GAIN, name="recovery", measure="recovery", above=50.0)
Make = Callable[[SampleRef], Likelihood]


def answer(nats: float, *, tokens: int = 1, first: float = 0.0, is_greedy: bool = False) -> AnswerLikelihood:
    return AnswerLikelihood(tokens=tokens, nats=nats, first_nats=first, is_greedy=is_greedy)


def item(full: float, *, query: float = 3.0, evidence: float = 0.5, foil: float | None = 6.0) -> Likelihood:
    """Return a likelihood of answers of one token with these losses."""
    return Likelihood(
        full=answer(full), query=answer(query), evidence=answer(evidence), foil=None if foil is None else answer(foil),
        computed_tokens=9, reused_tokens=0, seconds=0.0,
    )  # fmt: skip


def evaluated(make: Make, *gates: Gate, other: Make | None = None, signal: str = "both") -> Evaluation:
    """Evaluate a run whose answers are all right, as are those of a baseline with the likelihoods of `other`."""
    scope = scope_of(CASES, lengths=(1024,), signal=signal, has_baseline=other is not None, full=True)
    scope = replace(scope, task_families=dict.fromkeys(ASPECTS, "ruler") | {name: name for name in CATEGORIES})
    rules = Thresholds(references={}, gates=gates)
    (panel,) = build_panels(rules, scope).values()
    scores = (1.0,) * SAMPLES
    results = {one.id: result(one, *scores, baseline=scores if other else ()) for one in CASES}
    measured = Measured(
        scope=scope,
        results=results,
        likelihoods={ref: make(ref) for ref in panel.order},
        baseline_likelihoods={ref: other(ref) for ref in panel.order} if other else {},
    )
    return evaluate(rules, measured)


def verdict_of(make: Make, gate: Gate) -> Verdict:
    return next(verdict for verdict in evaluated(make, gate).verdicts if verdict.kind == "likelihood")


def findings_of(make: Make, other: Make) -> list[str]:
    section = likelihood(evaluated(make, other=other))
    assert section is not None
    return list(section.panels[0].findings)


def noisy(full: float, spread: float = 0.2) -> Make:
    """Return losses that vary by sample, alike for every mean."""
    return lambda ref: item(full + spread * Random(str(ref)).uniform(-1, 1))


@pytest.mark.parametrize(("full", "word"), [(1.0, "pass"), (2.5, "fail"), (3.5, "fail")])
def test_a_gate_on_gain_compares_it_with_its_threshold(full: float, word: str) -> None:
    verdict = verdict_of(noisy(full), GAIN)
    assert verdict.verdict == word
    assert verdict.measured == pytest.approx(3.0 - full, abs=0.1)
    assert reason_text(verdict).startswith("likelihood: gain ")


@pytest.mark.parametrize(("full", "word"), [(1.0, "pass"), (2.5, "fail")])
def test_a_gate_on_recovery_compares_it_with_its_threshold(full: float, word: str) -> None:
    verdict = verdict_of(noisy(full), RECOVERY)
    assert verdict.verdict == word
    assert verdict.measured == pytest.approx(100 * (3.0 - full) / 2.5, abs=4)


def test_recovery_is_a_ratio_of_sums() -> None:
    def make(ref: SampleRef) -> Likelihood:
        # Gains of 1 and 1 where the evidence gains 1 and 4; the mean of the two ratios would be 62.5.
        return item(2.0, evidence=2.0) if ref.case_id == CASES[0].id else item(4.0, query=5.0, evidence=1.0)

    assert verdict_of(make, RECOVERY).measured == pytest.approx(40)


def test_recovery_is_undefined_where_the_evidence_gains_little() -> None:
    verdict = verdict_of(lambda ref: item(2.0, evidence=3.0 - 0.9 * LEAST_EVIDENCE_GAIN), RECOVERY)
    assert (verdict.verdict, verdict.measured) == ("undecided", None)
    assert "recovery is undefined" in reason_text(verdict)


def test_a_gain_without_an_advantage_over_distractors_is_no_retrieval() -> None:
    """Among models that answer everything wrong, likelihood ranks fluency."""
    fluent = verdict_of(lambda ref: item(1.0, foil=0.9), GAIN)
    assert fluent.verdict == "fail"
    assert "distractors are at least as likely" in reason_text(fluent)
    assert "no distractors" in reason_text(verdict_of(lambda ref: item(1.0, foil=None), GAIN))


def test_a_change_of_likelihood_alone_fails_no_run() -> None:
    """A final norm scaled by 0.9 changes every probability and no answer."""
    evaluation = evaluated(noisy(1.5), other=noisy(1.0))
    assert {verdict.verdict for verdict in evaluation.verdicts} == {"pass"}
    assert not any(diagnosis.bad for diagnosis in evaluation.diagnoses.values())
    assert findings_of(noisy(1.5), noisy(1.0)) == [
        "the loss of the gold answers changed by +0.50 nats against the baseline, by calibration, format or retrieval: "
        "answers decide which"
    ]


def test_damage_to_short_contexts_is_a_finding_although_recovery_rises() -> None:
    before, after = (lambda ref: item(1.0, evidence=0.5)), (lambda ref: item(1.1, evidence=1.0))
    assert (verdict_of(after, RECOVERY).measured or 0) > (verdict_of(before, RECOVERY).measured or 0)
    (short, _) = findings_of(after, before)
    assert short.startswith("short contexts have suffered: the loss on the evidence alone rose by 0.50 nats")


def test_a_run_of_likelihoods_alone_has_no_verdict_on_answers() -> None:
    evaluation = evaluated(noisy(1.0), LEVEL, GAIN, other=noisy(1.0), signal="likelihood")
    assert [verdict.kind for verdict in evaluation.verdicts] == ["likelihood"]
    assert {finding.verdict for finding in evaluation.ruler.values()} == {"not measured"}


def rule_of(*gates: Gate, cases: tuple[Case, ...] = CASES) -> tuple[_LikelihoodRule, Panel]:
    scope = scope_of(cases, lengths=(1024,), signal="both")
    panels = build_panels(thresholds(*gates), scope)
    (rule,) = build_rules(thresholds(*gates), scope, panels).values()
    return rule, rule.panel


@pytest.mark.parametrize("gates", [(), (GAIN,), (RECOVERY,), (GAIN, RECOVERY)])
def test_both_models_are_measured_on_the_same_samples_until_the_gates_are_decided(gates: tuple[Gate, ...]) -> None:
    rule, panel = rule_of(*gates)
    known: dict[str, dict[SampleRef, Likelihood]] = {"model": {}, "baseline": {}}
    while wanted := rule.next_samples(known, ()):  # type: ignore[arg-type]  # roles are literals
        role, ref = wanted[0]
        known[role][ref] = noisy(1.0)(ref)
    assert list(known["model"]) == list(panel.order[: len(known["model"])])
    assert known["model"].keys() == known["baseline"].keys()
    assert 26 <= len(known["model"]) < 2 * SAMPLES
    # More results, as other workers may add, change nothing of what the verdict rests on.
    stop = rule.stop(known["model"])
    assert stop == rule.stop({ref: noisy(1.0)(ref) for ref in panel.order})


def test_a_failed_case_does_not_hold_up_the_others() -> None:
    rule, _ = rule_of(GAIN)
    wanted = rule.next_samples({"model": {}}, (CASES[0].id,))
    assert {ref.case_id for _, ref in wanted} == {CASES[1].id}


def test_likelihoods_are_drawn_alike_from_all_samples_whatever_the_rates_of_answers() -> None:
    rule, _ = rule_of(cases=UNEQUAL)
    first = [ref.case_id for ref in rule.queue().refs[:SAMPLES]]
    assert first.count(CASES[0].id) < 0.2 * SAMPLES
    assert [ref.case_id for ref in rule.panel.order[:SAMPLES]].count(CASES[0].id) > 0.3 * SAMPLES


def test_tasks_of_unequal_sizes_are_measured_until_their_gain_is_precise() -> None:
    rule, panel = rule_of(cases=UNEQUAL)
    known = {ref: noisy(1.0, spread=1.0)(ref) for ref in panel.order}
    stop = rule.stop(known)
    assert stop is not None
    found = estimates(rule.queue(), {ref: known[ref] for ref in rule.queue().refs[:stop]}, alpha=0.05)
    assert found is not None
    assert found.gain is not None
    # A precision of half a nat on both sides.
    assert found.gain.high - found.gain.low < 1.1


@settings(max_examples=15, deadline=None, derandomize=True)
@given(losses=st.lists(st.tuples(*[st.floats(0, 12)] * 4), min_size=1, max_size=2 * SAMPLES), data=st.data())
def test_intervals_hold_their_means(losses: list[tuple[float, float, float, float]], data: st.DataObject) -> None:
    rule, panel = rule_of()
    known: Likelihoods = {
        ref: item(full, query=query, evidence=evidence, foil=foil)
        for ref, (full, query, evidence, foil) in zip(panel.order, losses, strict=False)
    }
    found = estimates(rule.queue(), known, alpha=0.05)
    assert found is not None
    for estimate in (found.nll, found.query, found.evidence, found.gain, found.greedy, found.margin, found.recovery):
        if estimate is not None:
            assert estimate.low - 1e-9 <= estimate.mean <= estimate.high + 1e-9
            low, high = estimate.model_interval
            assert low - 1e-9 <= estimate.mean <= high + 1e-9
    if len(known) == len(panel.order):
        assert found.nll is not None
        assert math.isclose(found.nll.low, found.nll.high, abs_tol=1e-9)
