"""Every measured sample as one line of JSON, for programs that analyse answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from fixtures.records import BaselineAnswer, Case, CaseResult, Outcome
from plugins.gates.points import to_points
from plugins.report.document import RunSummary


def sample_lines(summary: RunSummary) -> Iterator[str]:
    """Yield a line for each sample that the verdicts rest on, by case and index. Scores are 0 to 100."""
    run, results = summary.run, summary.evaluation.measured.results
    common: dict[str, Any] = {
        "model": run.checkpoint.name,
        "fingerprint": run.checkpoint.fingerprint,
        "seed": run.options.seed,
    }
    for case in run.cases:
        if case.id in results:
            for record in _records(results[case.id]):
                yield json.dumps({**common, **record}, allow_nan=False) + "\n"


def _records(result: CaseResult) -> Iterator[Mapping[str, Any]]:
    answers = {answer.index: answer for answer in result.flipped}
    # The baseline may have been measured on fewer samples than the model.
    scores = result.baseline[: len(result.outcomes)]
    records = [
        _record(result.case, outcome, baseline, answers.get(outcome.index))
        for outcome, baseline in zip_longest(result.outcomes, scores)
    ]
    yield from sorted(records, key=lambda record: record["index"])


def _record(
    case: Case, outcome: Outcome, baseline: float | None, baseline_answer: BaselineAnswer | None
) -> dict[str, Any]:
    """Return one sample; None stands for everything that is not known."""
    generation = msgspec.to_builtins(outcome.generation)
    return {
        "case": case.id,
        "suite": case.suite,
        "category": case.category,
        "task": case.task,
        "length": case.length,
        "source": case.source,
        "version": case.version,
        "index": outcome.index,
        "score": to_points(outcome.score.value),
        "parts": dict(outcome.score.parts),
        "failure": outcome.score.failure,
        "answer": generation.pop("text"),
        "references": outcome.references,
        "depths": outcome.depths,
        "excerpt": None if outcome.excerpt is None else msgspec.to_builtins(outcome.excerpt),
        **generation,
        "baseline_score": None if baseline is None else to_points(baseline),
        "baseline_answer": None if baseline_answer is None else baseline_answer.text,
    }
