"""A finished run, and the values that its page shows beyond the JSON report: aspects, evidence curves and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longctx.fixtures.records import PropertyFinding, VerdictWord
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.config.run_facts import RunFacts
from longctx.plugins.report.samples import Samples, samples_of
from longctx.plugins.verdicts.evaluation import Curve, Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run, from which its reports are made."""

    run: RunFacts
    evaluation: Evaluation
    facts: EngineFacts | None
    """The engine's settings and hardware; None if no sample needed a model."""

    execution: Mapping[str, str] | None
    """The execution path, which is part of the journal's key; None if no sample needed a model."""

    baseline_execution: Mapping[str, str] | None = None
    """The same of the baseline; None without one, and for a baseline that is not run again."""

    computed_samples: int
    """The number of samples that were not in the journal before this run."""

    worker_seconds: Mapping[str, float] = field(default_factory=dict)
    """The time of all workers together, by activity."""

    invariance: Sequence[PropertyFinding] | None = None
    """The findings of --invariance; None without it."""

    started: str
    """ISO 8601, in UTC."""

    seconds: float

    command: str = ""
    """The command line of the run; empty if the run has none."""

    json_file: Path | None = None
    """The file of the JSON report; None if the run writes none."""


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
    aspects = [
        Series(
            name=aspect,
            scores={length: finding.score for length, finding in findings.items()},
            intervals={length: finding.interval for length, finding in findings.items()},
            verdicts={length: finding.word for length, finding in findings.items()},
            threshold=scope.reference.scores.get(aspect),
        )
        for aspect, findings in evaluation.aspects.items()
    ]
    return Details(
        confidence=evaluation.thresholds.verdict.confidence,
        aspects=tuple(aspects) if has_ruler else (),
        curves=evaluation.curves,
        samples=samples_of(scope.cases, evaluation.measured.results),
    )
