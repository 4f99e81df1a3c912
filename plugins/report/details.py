"""The values that the page shows beyond the JSON document: RULER's aspects, evidence curves and samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fixtures.records import VerdictWord
from plugins.gates.diagnoses import case_blocks
from plugins.gates.evaluate import blocks
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

    failing: tuple[str, ...]
    """The names of the gates and the ids of the cases that fail the run."""

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
        failing=_failing(summary),
        aspects=tuple(_series(summary, aspect) for aspect in evaluation.aspects) if has_ruler else (),
        curves=evaluation.curves,
        samples=samples_of(scope.cases, evaluation.measured.results),
    )


def _failing(summary: RunSummary) -> tuple[str, ...]:
    """Return the gates and cases that fail the run, by the rules that decide the exit code."""
    evaluation = summary.evaluation
    thresholds, scope, results = evaluation.thresholds, evaluation.measured.scope, evaluation.measured.results
    narrowed = evaluation.is_narrowed(summary.run.available)
    gates = [verdict.name for verdict in evaluation.verdicts if blocks(verdict, thresholds, narrowed=narrowed)]
    lost = [case.id for case in scope.cases if case.id not in results or results[case.id].error is not None]
    bad = [case_id for case_id, diagnosis in evaluation.diagnoses.items() if case_blocks(diagnosis, thresholds)]
    return (*gates, *lost, *bad)


def _series(summary: RunSummary, aspect: str) -> Series:
    findings = summary.evaluation.aspects[aspect]
    return Series(
        name=aspect,
        scores={length: finding.score for length, finding in findings.items()},
        intervals={length: finding.interval for length, finding in findings.items()},
        verdicts={length: finding.word for length, finding in findings.items()},
        threshold=summary.evaluation.measured.scope.reference.scores.get(aspect),
    )
