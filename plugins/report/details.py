"""What pictures need beyond the JSON document: aspects with their bounds, evidence curves, samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fixtures.records import VerdictWord
from plugins.gates.evaluate import blocks
from plugins.gates.evidence_curves import Curve, curves
from plugins.gates.hypotheses import HEADLINE
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


def details(finished: RunSummary) -> Details:
    """From the same run as the document."""
    judge = finished.judge
    scope = judge.measured.scope
    return Details(
        confidence=judge.thresholds.verdict.confidence,
        failing=_failing(finished),
        aspects=tuple(
            _series(finished, aspect) for aspect in dict.fromkeys(scope.suite_tasks.values()) if _is_tested(finished)
        ),
        curves=curves(judge),
        samples=samples_of(scope.cases, judge.measured.results),
    )


def _failing(finished: RunSummary) -> tuple[str, ...]:
    """By the same rules as the exit code."""
    thresholds, scope = finished.judge.thresholds, finished.judge.measured.scope
    narrowed = len(scope.cases) < len(finished.run.available)
    gates = [each.name for each in finished.verdicts if blocks(each, thresholds, narrowed=narrowed)]
    results = finished.judge.measured.results
    lost = [case.id for case in scope.cases if case.id not in results or results[case.id].error is not None]
    bad = [name for name, found in finished.diagnoses.items() if found.bad and thresholds.regression.cases == "fail"]
    return (*gates, *lost, *bad)


def _series(finished: RunSummary, aspect: str) -> Series:
    judge = finished.judge
    scope = judge.measured.scope
    findings = {length: judge.finding(replace(HEADLINE, aspect=aspect), length) for length in scope.lengths}
    return Series(
        name=aspect,
        scores={length: found.score for length, found in findings.items()},
        intervals={length: found.interval for length, found in findings.items()},
        words={length: found.word for length, found in findings.items()},
        threshold=scope.reference.scores.get(aspect),
    )


def _is_tested(finished: RunSummary) -> bool:
    return any(case.suite == "ruler" for case in finished.judge.measured.scope.cases)
