"""What pictures need beyond the JSON document: aspects with their bounds, evidence curves, samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fixtures.records import VerdictWord
from plugins.gates.evaluate import blocks
from plugins.gates.evidence_curves import Curve
from plugins.report.document import RunSummary
from plugins.report.samples import Samples, samples_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A mean over lengths, 0 to 100, with its bounds and threshold; None where it was not measured."""

    name: str
    scores: Mapping[int, float | None]
    intervals: Mapping[int, tuple[float, float] | None]
    words: Mapping[int, VerdictWord | None]
    threshold: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """`confidence` is that of the means' bounds, `failing` are the gates and cases that fail the run.

    `aspects` are RULER's, `curves` are by the verdict's name.
    """

    confidence: float
    failing: tuple[str, ...]
    aspects: tuple[Series, ...]
    curves: Mapping[str, tuple[Curve, ...]]
    samples: Samples


def details(summary: RunSummary) -> Details:
    """From the same run as the document."""
    evaluation = summary.evaluation
    scope = evaluation.measured.scope
    return Details(
        confidence=evaluation.thresholds.verdict.confidence,
        failing=_failing(summary),
        aspects=tuple(_series(summary, aspect) for aspect in evaluation.aspects if _is_tested(summary)),
        curves=evaluation.curves,
        samples=samples_of(scope.cases, evaluation.measured.results),
    )


def _failing(summary: RunSummary) -> tuple[str, ...]:
    """By the same rules as the exit code."""
    thresholds, scope = summary.evaluation.thresholds, summary.evaluation.measured.scope
    narrowed = len(scope.cases) < len(summary.run.available)
    gates = [each.name for each in summary.evaluation.verdicts if blocks(each, thresholds, narrowed=narrowed)]
    results = summary.evaluation.measured.results
    lost = [case.id for case in scope.cases if case.id not in results or results[case.id].error is not None]
    bad = [
        name
        for name, found in summary.evaluation.diagnoses.items()
        if found.bad and thresholds.regression.cases == "fail"
    ]
    return (*gates, *lost, *bad)


def _series(summary: RunSummary, aspect: str) -> Series:
    evaluation = summary.evaluation
    scope = evaluation.measured.scope
    findings = evaluation.aspects[aspect]
    return Series(
        name=aspect,
        scores={length: found.score for length, found in findings.items()},
        intervals={length: found.interval for length, found in findings.items()},
        words={length: found.word for length, found in findings.items()},
        threshold=scope.reference.scores.get(aspect),
    )


def _is_tested(summary: RunSummary) -> bool:
    return any(case.suite == "ruler" for case in summary.evaluation.measured.scope.cases)
