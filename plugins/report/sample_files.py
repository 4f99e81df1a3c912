"""Every measured sample in a file: one line of JSON each for programs, or a log for every case that inspect_ai reads.

A log is plain JSON of version 2 of its format (inspect_ai.log.EvalLog). Fields with a default are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

import msgspec

from longctx.fixtures.records import BaselineAnswer, Case, CaseResult, Outcome
from longctx.fixtures.shown_text import visible_data
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


VERSION = 2
SCORER = "score"
STOP_REASONS = {"stop": "stop", "decided": "stop", "length": "max_tokens", "thinking": "max_tokens"}


def inspect_logs(summary: RunSummary) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of a log for each case that has a result. Scores are 0 to 1.

    inspect_ai lists only JSON files whose names begin with a time, and takes the parts between underscores as the task
    and its id.
    """
    for case in summary.run.cases:
        result = summary.evaluation.measured.results.get(case.id)
        if result is not None:
            log = visible_data(_log(summary, case, result))
            stamp = re.sub(r"[^\dT+-]", "-", summary.started)
            name = f"{stamp}_{log['eval']['task'].replace('_', '-')}_{log['eval']['task_id']}.json"
            yield name, json.dumps(log, allow_nan=False)


def _log(summary: RunSummary, case: Case, result: CaseResult) -> dict[str, Any]:
    model = summary.run.options.model
    ended = datetime.fromisoformat(summary.started) + timedelta(seconds=summary.seconds)
    outcomes = sorted(result.outcomes, key=lambda outcome: outcome.index)
    is_unfinished = case.id in summary.evaluation.measured.unfinished
    score = {
        "name": SCORER,
        "scorer": SCORER,
        "scored_samples": len(outcomes),
        "unscored_samples": 0,
        "metrics": {"mean": {"name": "mean", "value": result.score}},
    }
    return {
        "version": VERSION,
        "status": "error" if result.error is not None else "cancelled" if is_unfinished else "success",
        "eval": _eval(summary, case),
        "results": {
            "total_samples": case.samples,
            "completed_samples": len(outcomes),
            "scores": [] if result.score is None else [score],
        },
        "stats": {
            "started_at": summary.started,
            "completed_at": ended.isoformat(timespec="seconds"),
            "model_usage": {model: _usage(outcomes)},
        },
        "error": result.error and {"message": result.error, "traceback": "", "traceback_ansi": ""},
        "samples": [_sample(outcome, model) for outcome in outcomes],
    }


def _eval(summary: RunSummary, case: Case) -> dict[str, Any]:
    run = summary.run
    return {
        "run_id": run.id,
        "eval_id": _id(run.id, case.id, "eval"),
        "task_id": _id(run.id, case.id),
        "created": summary.started,
        "task": f"{case.task}-{case.length}",
        "task_version": case.version,
        "task_args": {"length": case.length, "seed": run.options.seed},
        "dataset": {"name": case.task, "samples": case.samples, "shuffled": True},
        "model": run.options.model,
        "model_args": {"fingerprint": run.checkpoint.fingerprint, **(summary.execution or {})},
        "config": {"limit": case.samples, "epochs": 1},
        "metadata": {
            "case": case.id, "suite": case.suite, "category": case.category, "length": case.length,
            "source": case.source, "command": summary.command,
        },
    }  # fmt: skip


def _id(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=11).hexdigest()


def _usage(outcomes: Sequence[Outcome]) -> dict[str, int]:
    generations = [outcome.generation for outcome in outcomes]
    prompt = sum(generation.prompt_tokens for generation in generations)
    generated = sum(generation.generated_tokens or 0 for generation in generations)
    return {"input_tokens": prompt, "output_tokens": generated, "total_tokens": prompt + generated}


def _sample(outcome: Outcome, model: str) -> Mapping[str, Any]:
    """Return a sample; the journal has no context, so the input is the excerpt, if there is one."""
    generation, score, excerpt = outcome.generation, outcome.score, outcome.excerpt
    shown = []
    if excerpt is not None:
        needle = f"{excerpt.before}{excerpt.needle}{excerpt.after}"
        shown = [part for part in (excerpt.head, needle, excerpt.tail, excerpt.question) if part]
    return {
        "id": outcome.index,
        "epoch": 1,
        "input": "\n\n[...]\n\n".join(shown),
        "target": list(outcome.references),
        "output": {
            "model": model,
            "choices": [
                {
                    "message": {"role": "assistant", "content": generation.text, "source": "generate"},
                    "stop_reason": STOP_REASONS[generation.finish],
                }
            ],
            "usage": _usage([outcome]),
            "time": generation.seconds,
        },
        "scores": {
            SCORER: {
                "value": score.value, "answer": generation.text, "explanation": score.failure,
                "metadata": dict(score.parts),
            }
        },
        "metadata": {"depths": list(outcome.depths), "failure": score.failure},
        "model_usage": {model: _usage([outcome])},
        "total_time": generation.seconds,
    }  # fmt: skip
