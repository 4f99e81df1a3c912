"""Every gate's verdict, from the planned cases and what came back for them.

A gate looks at what was selected, not at what arrived. A case that failed or never came back is an
error; one that was not selected leaves the gate "not measured". Neither is ever averaged over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fixtures.lengths import format_length
from fixtures.records import CaseResult, Verdict, VerdictWord
from plugins.gates.clusters import ESTIMATE_ALPHA, SampleRef
from plugins.gates.e_process import TIE_TOLERANCE
from plugins.gates.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
    weighted_average,
)
from plugins.gates.hypotheses import (
    PanelKey,
    Scope,
    build_panels,
    gate_family,
    hypothesis_of,
    is_estimate,
    lengths_of,
    tasks_of,
    threshold_of,
    verdict_name,
)
from plugins.gates.panels import Panel
from plugins.gates.statistics import interval
from plugins.gates.thresholds import Gate, Thresholds

# A gate on verdicts instead of scores: those that pass lie above it.
HALF = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run as the gates see it: what was asked, what came back by case id.

    `control_variate` are the scores of a finished baseline on elements of the same queues.
    """

    scope: Scope
    results: Mapping[str, CaseResult]
    control_variate: Mapping[SampleRef, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One gate's question answered at one length.

    `score` and `interval` are 0 to 100, None where a case has no score; `samples` of the `of`
    planned ones lie behind the word.
    """

    word: VerdictWord
    reason: str
    score: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    samples: int = 0
    of: int = 0


class GateEvaluator:
    """Thresholds applied to one run."""

    def __init__(self, thresholds: Thresholds, measured: Measured):
        self.thresholds = thresholds
        self.measured = measured
        self.panels = build_panels(thresholds, measured.scope)
        self.scores = element_scores(self.panels, measured.results)

    def verdicts(self) -> tuple[Verdict, ...]:
        """All gates in the order of the file, a level gate once for each length."""
        return tuple(verdict for gate in self.thresholds.gates for verdict in self._verdicts(gate))

    def finding(self, gate: Gate, length: int) -> Finding:
        """What the panel at a length says to the gate."""
        scope = self.measured.scope
        cases = {task: case for task, case in scope.cases_at(length).items() if task in tasks_of(gate, scope)}
        results = [self.measured.results[case.id] for case in cases.values() if case.id in self.measured.results]
        samples, of = sum(len(result.outcomes) for result in results), sum(case.samples for case in cases.values())
        broken = next((result for result in results if result.error is not None), None)
        if broken is not None:
            return Finding(word="error", reason=f"{broken.case.id}: {broken.error}", samples=samples, of=of)
        lost = next((case for case in cases.values() if case.id not in self.measured.results), None)
        if lost is not None:
            return Finding(word="error", reason=f"{lost.id}: no result came back", samples=samples, of=of)
        missing = [task for task in tasks_of(gate, scope) if task not in cases]
        if missing or not cases:
            reason = f"{_some(missing)} not run at {format_length(length)}"
            return Finding(word="not measured", reason=reason, samples=samples, of=of)
        return self._answer(gate, length, results)

    def _answer(self, gate: Gate, length: int, results: Sequence[CaseResult]) -> Finding:
        panel = self.panels[gate_family(gate, self.measured.scope.task_families), length]
        rule = hypothesis_of(gate, self.measured.scope, length, panel)
        look = panel.analyze(rule, self.scores, control_variate=self.measured.control_variate)
        means = [result.score for result in results]
        if look.samples == 0 or any(mean is None for mean in means):
            reason = f"cases without a sample: {sum(mean is None for mean in means) or len(means)} of {len(means)}"
            return Finding(word="inconclusive", reason=reason, samples=look.samples, of=look.planned_samples)
        score = math.fsum(mean for mean in means if mean is not None) / len(means)
        pool = panel.queue(rule.case_ids)
        values = pool.weighted_means(self.scores, look.clusters)
        alpha = interval_alpha(1 - self.thresholds.verdict.confidence, rule.alpha)
        if is_estimate(gate):
            alpha = ESTIMATE_ALPHA
        elif gate.kind == "weighted_average":
            # Its bounds hold where those of all lengths do.
            alpha = (1 - self.thresholds.verdict.confidence) / len(self.measured.scope.lengths)
        low, high = (pool.scale * end for end in interval(values, alpha=alpha, population=len(pool.clusters)))
        # The mean of the tasks' means is not quite the mean of the queue.
        bounds = 100 * min(low, score), 100 * max(min(1.0, high), score)
        word: VerdictWord = look.decision.verdict if look.decision else "inconclusive"
        told = f"{100 * score:.1f}"
        if not is_estimate(gate):
            told = _comparison(100 * score, word, threshold_of(gate, self.measured.scope))
        return Finding(
            word=word,
            reason=told + _extent(look.samples, look.planned_samples),
            score=100 * score,
            interval=bounds,
            confidence=1 - alpha,
            samples=look.samples,
            of=look.planned_samples,
        )

    def _verdicts(self, gate: Gate) -> list[Verdict]:
        if gate.kind in ("level", "category"):
            untested = [length for length in gate.lengths if length not in self.measured.scope.lengths]
            return [self._level(gate, length) for length in sorted([*lengths_of(gate, self.measured.scope), *untested])]
        return [self._reach(gate) if gate.kind == "effective_length" else self._average(gate)]

    def _level(self, gate: Gate, length: int) -> Verdict:
        found = self.finding(gate, length)
        return self._verdict(
            gate,
            found,
            name=verdict_name(gate, length),
            length=length,
            measured=found.score,
            required=threshold_of(gate, self.measured.scope),
        )

    def _reach(self, gate: Gate) -> Verdict:
        scope = self.measured.scope
        findings = {length: self.finding(gate, length) for length in scope.lengths}
        required = _required_length(gate, scope)
        whole = _unmeasured(findings) or reach(
            {length: found.word for length, found in findings.items()}, required, threshold_of(gate, scope)
        )
        settled = settled_scores({length: found.word for length, found in findings.items()})
        return self._verdict(
            gate,
            _with_counts(whole, findings),
            measured=None if settled is None else effective_length(settled, HALF),
            required=float(required),
        )

    def _average(self, gate: Gate) -> Verdict:
        findings = {length: self.finding(gate, length) for length in self.measured.scope.lengths}
        required = threshold_of(gate, self.measured.scope)
        broken = _unmeasured(findings) or next((found for found in findings.values() if found.score is None), None)
        if broken is not None:
            return self._verdict(gate, _with_counts(broken, findings), measured=None, required=required)
        value = weighted_average(_known({k: found.score for k, found in findings.items()}), rising=gate.rising)
        ends = [{k: found.interval[end] for k, found in findings.items() if found.interval} for end in (0, 1)]
        low, high = (weighted_average(end, rising=gate.rising) for end in ends)
        complete = all(found.samples == found.of for found in findings.values())
        word: VerdictWord = "pass" if low > required else "fail" if high <= required else "inconclusive"
        if complete:
            word = "pass" if value > required + 100 * TIE_TOLERANCE else "fail"
        whole = Finding(
            word=word,
            reason=_comparison(value, word, required),
            interval=(low, high),
            confidence=self.thresholds.verdict.confidence,
        )
        return self._verdict(gate, _with_counts(whole, findings), measured=value, required=required)

    def _verdict(
        self, gate: Gate, found: Finding, *, measured: float | None, required: float, name: str = "",
        length: int | None = None,
    ) -> Verdict:  # fmt: skip
        return Verdict(
            name=name or gate.name,
            kind=gate.kind,
            length=length,
            measured=measured,
            interval=found.interval,
            confidence=found.confidence if found.interval else None,
            required=required,
            samples=found.samples,
            of=found.of,
            verdict=found.word,
            blocking=gate.blocking,
            reason=found.reason,
        )


def blocks(verdict: Verdict, thresholds: Thresholds, *, narrowed: bool) -> bool:
    """Whether the verdict fails the run.

    In a run narrowed by -k or -m an unmeasured gate is no surprise; in a whole one it asks for
    lengths that --lengths leaves out, and passing over that would claim more than was seen.
    """
    if verdict.verdict == "inconclusive":
        rules = thresholds.regression if verdict.kind == "regression" else thresholds.verdict
        return verdict.blocking and rules.inconclusive == "fail"
    failing = ("fail", "error") if narrowed else ("fail", "error", "not measured")
    return verdict.blocking and verdict.verdict in failing


def interval_alpha(alpha: float, alpha_of_question: float) -> float:
    """Of a two-sided interval that leaves out the threshold wherever the question was decided.

    A question looks at one side only, with its share of the run's error.
    """
    return max(alpha, 2 * alpha_of_question)


def element_scores(found: Mapping[PanelKey, Panel], results: Mapping[str, CaseResult]) -> dict[SampleRef, float]:
    """The scores that came back, each at its place in the queue."""
    return {
        SampleRef(result.case.id, outcome.index): outcome.score.value
        for result in results.values()
        if (result.case.family, result.case.length) in found
        for outcome in result.outcomes
    }


def reach(words: Mapping[int, VerdictWord], required: int, threshold: float) -> Finding:
    """The effective length against the one required: sure as soon as the lengths that matter are."""
    if required > max(words):
        return Finding(word="not measured", reason=f"asks for {required}, the longest tested is {max(words)}")
    longer = {length: word for length, word in words.items() if length >= required}
    if "pass" in longer.values():
        word: VerdictWord = "pass"
    else:
        word = "fail" if set(longer.values()) == {"fail"} else "inconclusive"
    settled = settled_scores(words)
    if settled is None:
        open_lengths = ", ".join(format_length(length) for length, each in words.items() if each == "inconclusive")
        return Finding(word=word, reason=f"undecided at {open_lengths}, asks for {required} above {threshold:g}")
    reason = f"{effective_length_label(settled, HALF)} above {threshold:g}, asks for {required}"
    contiguous = contiguous_effective_length(settled, HALF)
    if contiguous != effective_length(settled, HALF):
        reason += f"; not monotone: every length passes up to {contiguous or 'none'} only"
    return Finding(word=word, reason=reason)


def settled_scores(words: Mapping[int, VerdictWord]) -> dict[int, float] | None:
    """The words as scores on either side of HALF; None where a length is open."""
    if not words or any(word not in ("pass", "fail") for word in words.values()):
        return None
    return {length: 100.0 if word == "pass" else 0.0 for length, word in words.items()}


def _unmeasured(findings: Mapping[int, Finding]) -> Finding | None:
    """An error says more than a case that was left out."""
    broken = [found for found in findings.values() if found.word in ("error", "not measured")]
    return min(broken, key=lambda found: found.word, default=None)


def _with_counts(found: Finding, findings: Mapping[int, Finding]) -> Finding:
    samples, of = sum(each.samples for each in findings.values()), sum(each.of for each in findings.values())
    counted = found.word in ("pass", "fail", "inconclusive")
    return Finding(
        word=found.word,
        reason=found.reason + (_extent(samples, of) if counted else ""),
        interval=found.interval,
        confidence=found.confidence,
        samples=samples,
        of=of,
    )


def _known(scores: Mapping[int, float | None]) -> dict[int, float]:
    return {length: score for length, score in scores.items() if score is not None}


def _required_length(gate: Gate, scope: Scope) -> int:
    """What the gate asks for; a claim asks for the longest tested length that it covers."""
    if gate.at_least is not None:
        return gate.at_least
    claimed = scope.claimed_length or max(scope.lengths)
    return max((length for length in scope.lengths if length <= claimed), default=min(scope.lengths))


def _comparison(value: float, word: VerdictWord, required: float) -> str:
    said = {"pass": "is above", "fail": "is not above"}.get(word, "is not yet told from")
    return f"{value:.1f} {said} {required:g}"


def _extent(samples: int, of: int) -> str:
    return f" (all {of} samples)" if samples == of else f" ({samples} of {of} samples)"


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more tasks"
