"""The run as one plain document: what the JSON report holds and every other report shows.

Scores are 0 to 100 here, lengths are tokens, and what was not measured is None.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from fixtures.checkpoints.steps import step_of
from fixtures.engines import EngineFacts
from fixtures.records import Case, CaseResult, Outcome, to_json
from plugins.config.run import Run
from plugins.gates.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
    weighted_average,
)
from plugins.gates.evaluate import HALF, Measured, settled_scores
from plugins.gates.evaluation import Evaluation
from plugins.report.helmet import helmet

SCHEMA = "longctx-report/1"
DEPTH_BINS = 10
EXAMPLES = 3
EXAMPLE_CHARACTERS = 200
FEW_SAMPLES = 10
PACKAGES = ("pytest", "pytest-xdist", "transformers", "torch", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run that ended, as reports take it.

    `facts` and `execution` are None where no model was asked; `computed_samples` were not in the
    journal before.
    """

    run: Run
    evaluation: Evaluation
    facts: EngineFacts | None
    execution: Mapping[str, str] | None
    computed_samples: int
    started: str
    seconds: float


def is_rough(case: Mapping[str, Any]) -> bool:
    """Whether a verdict of its panel came so early that this case of the document was hardly seen."""
    return bool(0 < case["samples"] < min(case["planned"], FEW_SAMPLES))


def document(summary: RunSummary) -> dict[str, Any]:
    """The report, valid against schema.json."""
    measured = summary.evaluation.measured
    return {
        "schema": SCHEMA,
        "model": _model(summary),
        "run": _run(summary),
        "cases": [_case(summary, case) for case in measured.scope.cases],
        "gates": [to_json(verdict) for verdict in summary.evaluation.verdicts],
        "ruler": _ruler(summary.evaluation),
        "helmet": helmet(summary.evaluation, summary.run.cases, summary.run.unavailable, summary.run.options.scoring),
        "regression": _regression(summary),
    }


def _model(summary: RunSummary) -> dict[str, Any]:
    checkpoint, facts = summary.run.checkpoint, summary.facts
    return {
        "name": summary.run.options.model,
        "path": checkpoint.path,
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
    }


def _run(summary: RunSummary) -> dict[str, Any]:
    run, measured = summary.run, summary.evaluation.measured
    cases = measured.scope.cases
    generations = [outcome.generation for result in measured.results.values() for outcome in result.outcomes]
    return {
        "started": summary.started,
        "seconds": round(summary.seconds, 3),
        "step": run.options.step if run.options.step is not None else step_of(run.options.model_path),
        "seed": run.options.seed,
        "corpora": run.corpora,
        "prompts": run.prompts,
        "samples": run.samples,
        "options": to_json(run.options),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "hardware": summary.facts and summary.facts.hardware,
        "partial": len(cases) < len(run.available) or any(case.id not in measured.results for case in cases),
        "tokens": {
            "prompt": sum(generation.prompt_tokens for generation in generations),
            "generated": sum(generation.generated_tokens for generation in generations),
            "computed": sum(generation.computed_tokens for generation in generations),
            "reused": sum(generation.reused_tokens for generation in generations),
            "full_run_equivalent": _full_run_tokens(measured),
        },
        "computed_samples": summary.computed_samples,
    }


def _full_run_tokens(measured: Measured) -> int:
    """What all planned samples would compute, each like the mean of those of its case that were seen."""
    total = 0.0
    for case in measured.scope.cases:
        result = measured.results.get(case.id)
        seen = [outcome.generation.computed_tokens for outcome in result.outcomes] if result else []
        total += case.samples * (sum(seen) / len(seen) if seen else case.length)
    return round(total)


def _case(summary: RunSummary, case: Case) -> dict[str, Any]:
    diagnosis = summary.evaluation.diagnoses.get(case.id)
    entry = case_entry(case, summary.evaluation.measured.results.get(case.id))
    if diagnosis is not None:
        entry |= {"floor": diagnosis.floor, "interval": diagnosis.interval and list(diagnosis.interval)}
        entry["verdict"] = "fail" if diagnosis.bad else entry["verdict"]
        shown = {"below its floor": diagnosis.below, "worse than the baseline": diagnosis.dropped}
        entry["decided_by"] = " and ".join(name for name, is_so in shown.items() if is_so) or entry["decided_by"]
    return entry


def case_entry(case: Case, result: CaseResult | None) -> dict[str, Any]:
    """A case as the report has it before cases are compared; `result` is None where nothing came back."""
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
        "score": None if score is None else 100 * score,
        "interval": None,
        "samples": len(outcomes),
        "planned": case.samples,
        "floor": None,
        "verdict": verdict,
        "decided_by": None if score is None else _decided_by(len(outcomes), case.samples),
        "by_depth": by_depth(outcomes),
        "failures": dict(sorted(Counter(o.score.failure for o in outcomes if o.score.failure).items())),
        "examples": [_example(outcome) for outcome in outcomes if outcome.score.failure][:EXAMPLES],
        "error": error,
        "seconds": round(result.seconds, 3) if result else None,
    }


def _decided_by(samples: int, planned: int) -> str:
    return "all planned samples" if samples == planned else f"{samples} of {planned} samples, when its gates were"


def by_depth(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Score by tenth of the context in which a reference stands; `depth` is the middle of the tenth."""
    found: dict[int, list[float]] = {}
    for outcome in outcomes:
        for depth, value in _credits(outcome):
            found.setdefault(min(DEPTH_BINS - 1, int(depth * DEPTH_BINS)), []).append(value)
    return [
        {
            "depth": (tenth + 0.5) / DEPTH_BINS,
            "score": 100 * sum(values) / len(values),
            "samples": len(values),
        }
        for tenth, values in sorted(found.items())
    ]


def _credits(outcome: Outcome) -> list[tuple[float, float]]:
    """(depth, credit) of each reference that was asked for; one for a question with alternative answers."""
    parts = outcome.score.parts
    if all(reference in parts for reference in outcome.references):
        return [(depth, parts[ref]) for ref, depth in zip(outcome.references, outcome.depths, strict=False)]
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
    """RULER's summary (paper, Table 3); only lengths at which all tasks were measured have a score."""
    scope, findings = evaluation.measured.scope, evaluation.ruler
    scores = {length: found.score for length, found in findings.items()}
    complete = {length: score for length, score in scores.items() if score is not None}
    whole = complete if len(complete) == len(scores) else {}
    settled = settled_scores({length: found.word for length, found in findings.items()})
    return {
        "threshold": scope.reference.scores["mean"],
        "threshold_source": scope.reference.source,
        "scores": _by_length(scores),
        "intervals": {str(length): found.interval for length, found in findings.items()},
        "verdicts": {str(length): found.word for length, found in findings.items()},
        "aspects": {
            aspect: _by_length({length: finding.score for length, finding in by_length.items()})
            for aspect, by_length in evaluation.aspects.items()
        },
        "effective_length": effective_length(settled, HALF) if settled else None,
        "effective_length_label": effective_length_label(settled, HALF) if settled else None,
        "contiguous_effective_length": contiguous_effective_length(settled, HALF) if settled else None,
        "claimed_length": scope.claimed_length,
        "wavg_inc": weighted_average(whole, rising=True) if whole else None,
        "wavg_dec": weighted_average(whole, rising=False) if whole else None,
    }


def _regression(summary: RunSummary) -> dict[str, Any] | None:
    """The comparison with the baseline, None without one; differences are the model's score minus its."""
    baseline = summary.run.baseline
    if baseline is None:
        return None
    return {
        "baseline": {
            "name": baseline.name,
            "fingerprint": baseline.fingerprint,
            "engine": baseline.execution.get("engine") or summary.run.engine_settings("baseline")["engine"],
        },
        "drop": summary.run.thresholds.regression.drop,
        "false_discoveries": summary.run.thresholds.regression.false_discoveries,
        "cases": {
            name: {
                "difference": found.difference,
                "interval": found.difference_interval and list(found.difference_interval),
                "worse": found.flips[0],
                "better": found.flips[1],
                "pairs": found.pairs,
                "dropped": found.dropped,
            }
            for name, found in summary.evaluation.diagnoses.items()
        },
    }


def _by_length(scores: Mapping[int, float | None]) -> dict[str, float | None]:
    return {str(length): score for length, score in scores.items()}
