"""The run as one plain document: the JSON report, from which every other report is made.

Scores are 0 to 100 here, lengths are tokens, and a value that was not measured is None.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import msgspec

from fixtures.checkpoints.steps import step_of
from fixtures.engines import EngineFacts
from fixtures.invariance import Finding
from fixtures.records import Case, CaseResult, Outcome
from plugins.config.run import Run
from plugins.gates.diagnoses import case_blocks
from plugins.gates.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
    weighted_average,
)
from plugins.gates.evaluate import blocks
from plugins.gates.evaluation import Evaluation, FindingsByLength
from plugins.gates.findings import HALF, settled_scores
from plugins.gates.points import to_points
from plugins.report.cost import tokens_of
from plugins.report.frontier import frontier
from plugins.report.helmet import helmet
from plugins.report.likelihood import likelihood
from plugins.report.made_of import quantization, source_of
from plugins.report.question_sets import cut_percentage, question_sets
from plugins.report.regression import regression
from plugins.report.yardstick import yardstick_facts

SCHEMA = "longctx-report/1"
DEPTH_BINS = 10
MOST_EXAMPLES = 3
EXAMPLE_CHARACTERS = 200
FEW_SAMPLES = 10
PACKAGES = ("pytest", "pytest-xdist", "transformers", "torch", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run, from which its reports are made."""

    run: Run
    evaluation: Evaluation
    facts: EngineFacts | None
    """The engine's settings and hardware; None if no sample needed a model."""

    execution: Mapping[str, str] | None
    """The execution path, which is part of the journal's key; None if no sample needed a model."""

    computed_samples: int
    """The number of samples that were not in the journal before this run."""

    invariance: Sequence[Finding] | None = None
    """The findings of --invariance; None without it."""

    started: str
    """ISO 8601, in UTC."""

    seconds: float

    command: str = ""
    """The command line of the run; empty if the run has none."""


def is_rough(case: Mapping[str, Any]) -> bool:
    """True for a case of the document with few samples, because its panel's verdict came early."""
    return bool(0 < case["samples"] < min(case["planned"], FEW_SAMPLES))


def detectable_note(gate: Mapping[str, Any]) -> str:
    """Return the loss that a comparison could detect; empty if it is shown to have one, and for other gates."""
    if gate["kind"] != "regression" or gate["verdict"] not in ("pass", "inconclusive", "underpowered"):
        return ""
    loss = gate.get("detectable")
    return f"; a loss of {loss:.1f} would show" if loss is not None else "; too few samples to show any loss"


def document(summary: RunSummary) -> dict[str, Any]:
    """Return the report, which is valid under schema.json."""
    evaluation, run = summary.evaluation, summary.run
    return {
        "schema": SCHEMA,
        "model": _model(summary),
        "run": _run(summary),
        "cases": [_case(evaluation, case) for case in evaluation.measured.scope.cases],
        "gates": _gates(summary),
        "ruler": _ruler(evaluation) | yardstick_facts(run, evaluation),
        "helmet": helmet(evaluation, run.cases, run.unavailable, run.options.scoring),
        "frontier": frontier(evaluation, run.cases),
        "question_sets": question_sets(evaluation, run.cases),
        "regression": regression(evaluation, run),
        "likelihood": likelihood(evaluation),
        "invariance": None if summary.invariance is None else [msgspec.to_builtins(f) for f in summary.invariance],
    }


def _gates(summary: RunSummary) -> list[dict[str, Any]]:
    evaluation = summary.evaluation
    narrowed = evaluation.is_narrowed(summary.run.available)
    return [
        msgspec.to_builtins(verdict) | {"fails": blocks(verdict, evaluation.thresholds, narrowed=narrowed)}
        for verdict in evaluation.verdicts
    ]


def _model(summary: RunSummary) -> dict[str, Any]:
    checkpoint, facts = summary.run.checkpoint, summary.facts
    return {
        "name": summary.run.options.model,
        "path": checkpoint.path if checkpoint.source is None else checkpoint.source.path,
        "fingerprint": checkpoint.fingerprint,
        "claimed_length": checkpoint.claimed_length,
        "architecture": checkpoint.architecture,
        "parameters": checkpoint.parameters,
        "dtype": facts and facts.dtype,
        "attention": facts and facts.attention,
        "engine": facts and facts.engine,
        "prefill": facts and facts.prefill,
        "reuse": facts and facts.reuse,
        "batch_size": facts and facts.batch_size,
        "execution": summary.execution and dict(summary.execution),
        "chat_template": summary.run.chat,
        "calibration": checkpoint.calibration,
        "source": source_of(checkpoint),
        "quantization": quantization(checkpoint.config),
    }


def _run(summary: RunSummary) -> dict[str, Any]:
    run, measured = summary.run, summary.evaluation.measured
    cases = measured.scope.cases
    return {
        "started": summary.started,
        "seconds": round(summary.seconds, 3),
        "command": summary.command,
        "step": run.options.step if run.options.step is not None else step_of(run.options.model_path),
        "seed": run.options.seed,
        "corpora": run.corpora,
        "prompts": run.prompts,
        "samples": run.samples,
        "options": msgspec.to_builtins(run.options),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "hardware": summary.facts and summary.facts.hardware,
        "partial": summary.evaluation.is_narrowed(run.available) or any(c.id not in measured.results for c in cases),
        "interrupted": bool(measured.unfinished),
        "deselected": len(run.available) - len(cases),
        "draw_rates": dict(run.draw_rates),
        "tokens": tokens_of(measured),
        "computed_samples": summary.computed_samples,
    }


def _case(evaluation: Evaluation, case: Case) -> dict[str, Any]:
    """Return a case's entry, with the results of its tests against its floor and the baseline."""
    entry = case_entry(case, evaluation.measured.results.get(case.id))
    is_unfinished = case.id in evaluation.measured.unfinished
    if (evaluation.measured.scope.signal == "likelihood" or is_unfinished) and entry["verdict"] == "inconclusive":
        entry["verdict"] = "not measured"
    if is_unfinished:
        entry["decided_by"] = f"interrupted after {entry['samples']} of {entry['planned']} samples"
    entry["fails"] = entry["error"] is not None
    diagnosis = evaluation.diagnoses.get(case.id)
    if diagnosis is not None:
        entry["fails"] |= case_blocks(diagnosis, evaluation.thresholds)
        entry |= {"floor": diagnosis.floor, "interval": diagnosis.interval and list(diagnosis.interval)}
        entry["haystacks"] = diagnosis.haystacks
        entry["haystack_correlation"] = diagnosis.correlation and diagnosis.correlation.value
        entry["verdict"] = "fail" if diagnosis.bad else entry["verdict"]
        reasons = {"below its floor": diagnosis.below, "worse than the baseline": diagnosis.dropped}
        entry["decided_by"] = " and ".join(name for name, holds in reasons.items() if holds) or entry["decided_by"]
    return entry


def case_entry(case: Case, result: CaseResult | None) -> dict[str, Any]:
    """Return a case's entry before it is tested against its floor and the baseline.

    `result` is None if no worker returned one.
    """
    outcomes = result.outcomes if result else ()
    score = result.score if result else None
    error = result.error if result else "no result came back"
    verdict = "error" if error else "inconclusive" if score is None else "pass"
    return {
        "id": case.id,
        "suite": case.suite,
        "category": case.category,
        "task": case.task,
        "length": case.length,
        "source": case.source,
        "version": case.version,
        "score": None if score is None else to_points(score),
        "interval": None,
        "samples": len(outcomes),
        "planned": len(case.planned),
        "group": case.group,
        "left_out": case.left_out,
        "cut": cut_percentage(case, outcomes),
        "floor": None,
        "verdict": verdict,
        "decided_by": None if score is None else _decided_by(len(outcomes), len(case.planned)),
        "by_depth": by_depth(outcomes),
        "failures": dict(sorted(Counter(o.score.failure for o in outcomes if o.score.failure).items())),
        "examples": [_example(outcome) for outcome in outcomes if outcome.score.failure][:MOST_EXAMPLES],
        "error": error,
        "seconds": round(result.seconds, 3) if result else None,
    }


def _decided_by(samples: int, planned: int) -> str:
    if samples == planned:
        return "all planned samples"
    return f"{samples} of {planned} samples, when its gates were decided"


def by_depth(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the mean score of the references in every tenth of the context; `depth` is the middle of the tenth."""
    scores: dict[int, list[float]] = {}
    for outcome in outcomes:
        for depth, score in _reference_scores(outcome):
            scores.setdefault(min(DEPTH_BINS - 1, int(depth * DEPTH_BINS)), []).append(score)
    return [
        {
            "depth": (tenth + 0.5) / DEPTH_BINS,
            "score": to_points(sum(values) / len(values)),
            "samples": len(values),
        }
        for tenth, values in sorted(scores.items())
    ]


def _reference_scores(outcome: Outcome) -> list[tuple[float, float]]:
    """Return (depth, score) of every required reference, or of the first one if the references are alternatives."""
    parts = outcome.score.parts
    if all(reference in parts for reference in outcome.references):
        pairs = zip(outcome.references, outcome.depths, strict=False)
        return [(depth, parts[reference]) for reference, depth in pairs]
    return [(depth, outcome.score.value) for depth in outcome.depths[:1]]


def _example(outcome: Outcome) -> dict[str, Any]:
    return {
        "index": outcome.index,
        "failure": outcome.score.failure,
        "expected": list(outcome.references),
        "got": outcome.generation.text[:EXAMPLE_CHARACTERS],
        "depth": outcome.depths[0] if outcome.depths else None,
    }


def _ruler(evaluation: Evaluation) -> dict[str, Any]:
    """Return RULER's summary (paper, Table 3); a length has a score if all tasks were measured there."""
    scope, findings = evaluation.measured.scope, evaluation.ruler
    scores = {length: finding.score for length, finding in findings.items() if finding.score is not None}
    complete = scores if len(scores) == len(findings) else {}
    settled = settled_scores({length: finding.word for length, finding in findings.items()})
    return {
        "threshold": scope.reference.scores["mean"],
        "threshold_source": scope.reference.source,
        "scores": _scores_by_length(findings),
        "intervals": {str(length): finding.interval for length, finding in findings.items()},
        "model_intervals": {str(length): finding.model_interval for length, finding in findings.items()},
        "verdicts": {str(length): finding.word for length, finding in findings.items()},
        "aspects": {aspect: _scores_by_length(by_length) for aspect, by_length in evaluation.aspects.items()},
        "effective_length": effective_length(settled, HALF) if settled else None,
        "effective_length_label": effective_length_label(settled, HALF) if settled else None,
        "contiguous_effective_length": contiguous_effective_length(settled, HALF) if settled else None,
        "claimed_length": scope.claimed_length,
        "wavg_inc": weighted_average(complete, rising=True) if complete else None,
        "wavg_dec": weighted_average(complete, rising=False) if complete else None,
    }


def _scores_by_length(findings: FindingsByLength) -> dict[str, float | None]:
    return {str(length): finding.score for length, finding in findings.items()}
