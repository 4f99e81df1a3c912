"""Every measured sample with the baseline's score and answer, and the file with a line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec

from longctx.fixtures.records import BaselineAnswer, Case, CaseResult, Outcome
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.document import RunSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedSample:
    case: Case
    outcome: Outcome
    baseline_score: float | None
    """The baseline's score from 0 to 1; None without a baseline."""
    baseline_answer: BaselineAnswer | None
    """The baseline's answer, if the scores differ and the journal has the answer."""

    @property
    def is_flipped(self) -> bool:
        """True if the baseline scored differently on this sample."""
        return self.baseline_score is not None and self.baseline_score != self.outcome.score.value

    @property
    def is_wrong(self) -> bool:
        return self.outcome.score.value < 1


def paired_samples(result: CaseResult) -> list[PairedSample]:
    """Return all samples of a result with the baseline's scores and answers."""
    answers = {answer.index: answer for answer in result.flipped}
    # The baseline may have been measured on fewer samples than the model.
    scores = result.baseline[: len(result.outcomes)]
    return [
        PairedSample(
            case=result.case, outcome=outcome, baseline_score=score, baseline_answer=answers.get(outcome.index)
        )
        for outcome, score in zip_longest(result.outcomes, scores)
    ]  # fmt: skip


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
            for sample in sorted(paired_samples(results[case.id]), key=lambda sample: sample.outcome.index):
                yield json.dumps({**common, **_record(sample)}, allow_nan=False) + "\n"


def _record(sample: PairedSample) -> dict[str, Any]:
    """Return one sample; None stands for everything that is not known."""
    case, outcome = sample.case, sample.outcome
    generation = msgspec.to_builtins(outcome.generation)
    return {
        "case": case.id,
        **{name: getattr(case, name) for name in ("suite", "category", "task", "length", "source", "version")},
        "planned": case.samples,
        "group": case.group,
        "haystack": case.haystack(outcome.index),
        "shared_text": bool(case.texts),
        "index": outcome.index,
        "score": to_points(outcome.score.value),
        "parts": dict(outcome.score.parts),
        "failure": outcome.score.failure,
        "answer": generation.pop("text"),
        "references": outcome.references,
        "depths": outcome.depths,
        "excerpt": None if outcome.excerpt is None else msgspec.to_builtins(outcome.excerpt),
        **generation,
        "baseline_score": None if sample.baseline_score is None else to_points(sample.baseline_score),
        "baseline_answer": None if sample.baseline_answer is None else sample.baseline_answer.text,
    }
