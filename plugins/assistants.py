"""What scores some answers on published texts: a judge behind a server, a local model of entailment."""

from __future__ import annotations

from pathlib import Path

from fixtures.checkpoint import inspect
from fixtures.records import Options
from fixtures.scoring.judge import Judge, JudgedEntailment, JudgeError, JudgeSettings, fingerprint
from fixtures.tasks.base import Assistants
from plugins.journal import Replies


def scored_by(options: Options) -> tuple[str, ...]:
    """What decides a score besides the answer and the task's own code.

    Raises JudgeError and CheckpointError for what cannot be used.
    """
    if options.judge_url and not options.judge_model:
        raise JudgeError("--judge-url: no judge was named; give --judge-model too")
    judge = _settings(options)
    return (
        options.scoring,
        "" if judge is None else fingerprint(judge),
        "" if options.nli_model is None else inspect(options.nli_model, option="--nli-model").fingerprint,
    )


def open_assistants(options: Options, replies: Replies) -> Assistants:
    """The assistants that a run's options name; nothing is asked or loaded before it is needed. Raises JudgeError."""
    settings = _settings(options)
    judge = None if settings is None else Judge(settings, replies)
    if options.nli_model is not None:
        from fixtures.engines.nli import NliModel  # loads torch

        return Assistants(judge=judge, entails=NliModel(options.nli_model, device="cpu").entails)
    return Assistants(judge=judge, entails=None if judge is None else JudgedEntailment(judge).entails)


def replies_of(options: Options, name: str | None) -> Replies:
    """What judges replied, kept in the run's journal."""
    return Replies(Path(options.journal), name)


def _settings(options: Options) -> JudgeSettings | None:
    return None if options.judge_model is None else JudgeSettings(model=options.judge_model, url=options.judge_url)
