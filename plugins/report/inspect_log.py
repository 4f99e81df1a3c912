"""The samples of every case as a log that inspect_ai reads, so that its viewer and its data frames show them.

A log is plain JSON of version 2 of its format (inspect_ai.log.EvalLog). Fields with a default are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from fixtures.records import Case, CaseResult, Excerpt, Outcome
from fixtures.shown_text import visible_data
from plugins.report.document import RunSummary

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
    return {
        "version": VERSION,
        "status": _status(summary, case, result),
        "eval": _eval(summary, case),
        "results": {
            "total_samples": case.samples,
            "completed_samples": len(outcomes),
            "scores": [] if result.score is None else [_score(result.score, len(outcomes))],
        },
        "stats": {
            "started_at": summary.started,
            "completed_at": ended.isoformat(timespec="seconds"),
            "model_usage": {model: _usage(outcomes)},
        },
        "error": result.error and {"message": result.error, "traceback": "", "traceback_ansi": ""},
        "samples": [_sample(outcome, model) for outcome in outcomes],
    }


def _status(summary: RunSummary, case: Case, result: CaseResult) -> str:
    if result.error is not None:
        return "error"
    return "cancelled" if case.id in summary.evaluation.measured.unfinished else "success"


def _eval(summary: RunSummary, case: Case) -> dict[str, Any]:
    """Return the description of the case and the model."""
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


def _score(mean: float, samples: int) -> dict[str, Any]:
    metrics = {"mean": {"name": "mean", "value": mean}}
    return {"name": SCORER, "scorer": SCORER, "scored_samples": samples, "unscored_samples": 0, "metrics": metrics}


def _usage(outcomes: Sequence[Outcome]) -> dict[str, int]:
    prompt = sum(outcome.generation.prompt_tokens for outcome in outcomes)
    generated = sum(outcome.generation.generated_tokens or 0 for outcome in outcomes)
    return {"input_tokens": prompt, "output_tokens": generated, "total_tokens": prompt + generated}


def _sample(outcome: Outcome, model: str) -> Mapping[str, Any]:
    """Return a sample; the journal has no context, so the input is the excerpt, if there is one."""
    generation, score = outcome.generation, outcome.score
    return {
        "id": outcome.index,
        "epoch": 1,
        "input": _shown(outcome.excerpt),
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


def _shown(excerpt: Excerpt | None) -> str:
    if excerpt is None:
        return ""
    needle = f"{excerpt.before}{excerpt.needle}{excerpt.after}"
    return "\n\n[...]\n\n".join(part for part in (excerpt.head, needle, excerpt.tail, excerpt.question) if part)
