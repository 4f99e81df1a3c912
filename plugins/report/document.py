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

from fixtures.engines import EngineFacts
from fixtures.records import Case, CaseResult, Outcome, Verdict, to_json
from plugins.gates.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
    weighted_average,
)
from plugins.gates.statistics import CONFIDENCE, mean_interval
from plugins.gates.verdicts import Measured, panel
from plugins.options import Run

SCHEMA = "longctx-report/1"
DEPTH_BINS = 10
EXAMPLES = 3
EXAMPLE_CHARACTERS = 200
PACKAGES = ("pytest", "pytest-xdist", "transformers", "torch", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that ended, as reports take it. `facts` is None where no model was loaded."""

    run: Run
    measured: Measured
    verdicts: tuple[Verdict, ...]
    facts: EngineFacts | None
    started: str
    seconds: float


def document(finished: Finished) -> dict[str, Any]:
    """The report, valid against schema.json."""
    measured = finished.measured
    return {
        "schema": SCHEMA,
        "model": _model(finished),
        "run": _run(finished),
        "cases": [case_entry(case, measured.results.get(case.id)) for case in measured.cases],
        "gates": [
            to_json(verdict) | {"confidence": CONFIDENCE if verdict.interval else None} for verdict in finished.verdicts
        ],
        "ruler": _ruler(measured),
    }


def _model(finished: Finished) -> dict[str, Any]:
    checkpoint, facts = finished.run.checkpoint, finished.facts
    return {
        "name": finished.run.options.model,
        "path": checkpoint.path,
        "fingerprint": checkpoint.fingerprint,
        "claimed_length": checkpoint.claimed_length,
        "architecture": checkpoint.architecture,
        "parameters": checkpoint.parameters,
        "dtype": facts and facts.dtype,
        "attention": facts and facts.attention,
        "engine": facts and facts.engine,
        "prefill": facts and facts.prefill,
        "batch_size": facts and facts.batch_size,
        "chat_template": finished.run.chat,
        "calibration": checkpoint.calibration,
    }


def _run(finished: Finished) -> dict[str, Any]:
    measured = finished.measured
    generations = [outcome.generation for result in measured.results.values() for outcome in result.outcomes]
    return {
        "started": finished.started,
        "seconds": round(finished.seconds, 3),
        "seed": finished.run.options.seed,
        "corpora": finished.run.corpora,
        "prompts": finished.run.prompts,
        "options": to_json(finished.run.options),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "hardware": finished.facts and finished.facts.hardware,
        "partial": len(measured.cases) < len(finished.run.cases)
        or any(case.id not in measured.results for case in measured.cases),
        "tokens": {
            "prompt": sum(generation.prompt_tokens for generation in generations),
            "generated": sum(generation.generated_tokens for generation in generations),
            "computed": sum(generation.computed_tokens for generation in generations),
            "reused": 0,
            "full_run_equivalent": sum(case.samples * case.length for case in measured.cases),
        },
    }


def case_entry(case: Case, result: CaseResult | None) -> dict[str, Any]:
    """A case as the report has it; `result` is None where nothing came back."""
    outcomes = result.outcomes if result else ()
    score = result.score if result else None
    interval = None if score is None else [100 * bound for bound in mean_interval(min(1.0, score), len(outcomes))]
    error = result.error if result else "no result came back"
    return {
        "id": case.id,
        "suite": case.suite,
        "category": case.category,
        "task": case.task,
        "length": case.length,
        "source": case.source,
        "score": None if score is None else 100 * score,
        "interval": interval,
        "samples": len(outcomes),
        "planned": case.samples,
        "floor": None,
        "verdict": "error" if score is None else "pass",
        "decided_by": None if score is None else "all planned samples, no floor",
        "by_depth": by_depth(outcomes),
        "failures": dict(sorted(Counter(o.score.failure for o in outcomes if o.score.failure).items())),
        "examples": [_example(outcome) for outcome in outcomes if outcome.score.failure][:EXAMPLES],
        "error": error,
        "seconds": round(result.seconds, 3) if result else None,
    }


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


def _ruler(measured: Measured) -> dict[str, Any]:
    """RULER's summary (paper, Table 3); only lengths at which all tasks were measured have a score."""
    tasks = measured.suite_tasks
    aspects = tuple(dict.fromkeys(tasks.values()))
    of_aspect = {aspect: [task for task in tasks if tasks[task] == aspect] for aspect in aspects}
    scores = {length: panel(measured, tuple(tasks), length).score for length in measured.lengths}
    complete = {length: score for length, score in scores.items() if score is not None}
    threshold = measured.reference.scores["mean"]
    whole = complete if len(complete) == len(scores) else {}
    return {
        "threshold": threshold,
        "threshold_source": measured.reference.source,
        "scores": _by_length(scores),
        "aspects": {
            aspect: _by_length({length: panel(measured, names, length).score for length in measured.lengths})
            for aspect, names in of_aspect.items()
        },
        "effective_length": effective_length(whole, threshold) if whole else None,
        "effective_length_label": effective_length_label(whole, threshold) if whole else None,
        "contiguous_effective_length": contiguous_effective_length(whole, threshold) if whole else None,
        "claimed_length": measured.claimed_length,
        "wavg_inc": weighted_average(whole, rising=True) if whole else None,
        "wavg_dec": weighted_average(whole, rising=False) if whole else None,
    }


def _by_length(scores: Mapping[int, float | None]) -> dict[str, float | None]:
    return {str(length): score for length, score in scores.items()}
