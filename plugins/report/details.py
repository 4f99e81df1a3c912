"""The values that the page shows beyond the JSON document: RULER's aspects, evidence curves and samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fixtures.records import VerdictWord
from plugins.gates.evidence_curves import Curve
from plugins.report.document import RunSummary
from plugins.report.samples import Samples, samples_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A mean score at every tested length; scores are 0 to 100, None where not measured."""

    name: str
    scores: Mapping[int, float | None]
    intervals: Mapping[int, tuple[float, float] | None]
    verdicts: Mapping[int, VerdictWord | None]
    """The verdict on the mean being above the threshold."""

    threshold: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The values of a run that are in the page and not in the JSON document."""

    confidence: float
    """The confidence of the means' intervals, from 0 to 1."""

    aspects: tuple[Series, ...]
    """The means of RULER's aspects; empty for a run without RULER."""

    curves: Mapping[str, tuple[Curve, ...]]
    """The evidence by the name of the gate's verdict."""

    samples: Samples


def details(summary: RunSummary) -> Details:
    """Return the details of the run of a summary."""
    evaluation = summary.evaluation
    scope = evaluation.measured.scope
    has_ruler = any(case.suite == "ruler" for case in scope.cases)
    return Details(
        confidence=evaluation.thresholds.verdict.confidence,
        aspects=tuple(_series(summary, aspect) for aspect in evaluation.aspects) if has_ruler else (),
        curves=evaluation.curves,
        samples=samples_of(scope.cases, evaluation.measured.results),
    )


def _series(summary: RunSummary, aspect: str) -> Series:
    findings = summary.evaluation.aspects[aspect]
    return Series(
        name=aspect,
        scores={length: finding.score for length, finding in findings.items()},
        intervals={length: finding.interval for length, finding in findings.items()},
        verdicts={length: finding.word for length, finding in findings.items()},
        threshold=summary.evaluation.measured.scope.reference.scores.get(aspect),
    )
