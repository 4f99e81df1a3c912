"""The assistants that score some answers on published texts: a judge on a server, or a local entailment model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fixtures import versions
from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.engines.openai.time_budget import TimeBudget
from fixtures.records import Case, Options
from fixtures.scoring.judge import (
    Judge,
    JudgeCost,
    Judged,
    JudgedAnswer,
    JudgedClaim,
    JudgedSummary,
    JudgeError,
    JudgeSettings,
    estimate,
    fingerprint,
)
from fixtures.tasks.task import Assistants, Task
from plugins.journal import JudgeReplies

# The size of a typical sample, from which the cost of judging is estimated.
PASSAGE_WORDS, POINT_WORDS, POINTS, SENTENCES, SENTENCE_CHARACTERS = 300, 20, 10, 6, 200


def scored_by(options: Options) -> tuple[str, ...]:
    """Return what decides a score besides the answer and the task's own code, as parts of a fingerprint.

    Raises JudgeError for an unusable judge and CheckpointError for an unusable entailment model.
    """
    if options.judge_url and not options.judge_model:
        raise JudgeError("--judge-url: no judge was named; give --judge-model too")
    judge = _settings(options)
    return (
        options.scoring,
        "" if judge is None else fingerprint(judge),
        "" if options.nli_model is None else f"entailment {versions.ENTAILMENT} {_nli_fingerprint(options.nli_model)}",
    )


def _nli_fingerprint(path: str) -> str:
    # Stored scores are found by the fingerprint of version 0.1.
    return read_checkpoint(path, option="--nli-model").sampled_fingerprint


def open_assistants(options: Options, replies: JudgeReplies, *, deadline: float | None = None) -> Assistants:
    """Return the assistants that the options name; raise JudgeError.

    `deadline` is the Unix time at which the run's budget ends. No request is sent and no model is loaded before an
    assistant is needed.
    """
    settings = _settings(options)
    judge = None if settings is None else Judge(settings, replies, TimeBudget(deadline))
    if options.nli_model is not None:
        from fixtures.scoring.nli import NliModel  # loads torch

        return Assistants(judge=judge, entails=NliModel(options.nli_model, device="cpu").entails)
    return Assistants(judge=judge, entails=None if judge is None else judge.entails)


def replies_of(options: Options, name: str | None) -> JudgeReplies:
    """Return the store of judges' replies in the run's journal."""
    return JudgeReplies(Path(options.journal), name)


def _settings(options: Options) -> JudgeSettings | None:
    return None if options.judge_model is None else JudgeSettings(model=options.judge_model, url=options.judge_url)


def judge_cost(options: Options, cases: Sequence[Case], tasks: Mapping[str, Task]) -> JudgeCost | None:
    """Return the most that judging all samples of these cases can cost; None if nothing is judged.

    Answers are assumed to have their greatest length, and no reply to be stored already.
    """
    settings = _settings(options)
    judged = [case for case in cases if tasks[case.task].needs_assistant(case.source)]
    if options.nli_model is not None:
        judged = [case for case in judged if tasks[case.task].assistant == "judge"]
    if settings is None or not judged:
        return None
    costs = [(case.samples, estimate(settings, _typical(case, tasks[case.task]))) for case in judged]
    return JudgeCost(
        model=settings.model,
        calls=sum(samples * cost.calls for samples, cost in costs),
        prompt_tokens=sum(samples * cost.prompt_tokens for samples, cost in costs),
        most_reply_tokens=sum(samples * cost.most_reply_tokens for samples, cost in costs),
    )


def _typical(case: Case, task: Task) -> list[Judged[Any]]:
    """Return the items that a typical sample of a case submits to the judge."""
    answer = "word " * case.generation_tokens
    if task.assistant == "entailment":
        # A sentence is judged with all of its up to three passages, with one of them alone, and without one of them.
        return [JudgedClaim(premise="word " * PASSAGE_WORDS, claim=answer[:SENTENCE_CHARACTERS])] * (7 * SENTENCES)
    if task.category == "summ":
        points = ("word " * POINT_WORDS,) * POINTS
        return [JudgedSummary(subject="a text", key_points=points, reference=answer, summary=answer)]
    return [JudgedAnswer(question="word " * POINT_WORDS, references=("word",), answer=answer)]
