"""Answers to frontier samples by rule: perfect ones, those without reading, and those of a partial reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS

ANSWER_WORDS = 40
Reader = Callable[[Sample], str]


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess that knows the form of an answer, and the mean score that the documents state for it."""

    answer: Reader
    stated: float
    most: bool = False
    """True if `stated` is the most that the guess may score."""


def perfect(sample: Sample) -> str:
    """Return an answer that scores 1."""
    return TASKS[sample.task].perfect_answer(sample)


def from_last_quarter(sample: Sample) -> str:
    """Return those references that stand in the last quarter of the text; a perfect answer if all of them do."""
    known = [answer for answer, depth in zip(sample.references, sample.depths, strict=False) if depth >= 0.75]
    if not known:
        return ""
    if len(known) == len(sample.references):
        return perfect(sample)
    return f"[{', '.join(known)}]" if sample.task.startswith("graph_") else "\n".join(known)


def _one_of_the_names(sample: Sample) -> str:
    name = _random(sample).choice([*sample.references, *sample.distractors])
    return f"Record.\n\nAnswer: {name}" if sample.task == "ladder_mk_medium" else name


def _another_reply(sample: Sample) -> str:
    repeated = sample.truth
    return f"{repeated.code}{repeated.replies[repeated.wanted - 1]}"


def _a_document(sample: Sample) -> str:
    return str(_random(sample).randint(1, len(sample.context.split("\n\n"))))


def _one_of_the_keys(sample: Sample) -> str:
    return _random(sample).choice([*sample.references, *sample.distractors])


def _the_start(sample: Sample) -> str:
    """Return the only node that the question names."""
    return f"[{next(word for word in sample.question.split() if len(word.strip('.:')) == 10).strip('.:')}]"


def _random(sample: Sample) -> Random:
    return Random(f"{sample.task} {sample.length} {sample.index}")


def _constant(text: str) -> Reader:
    return lambda sample: text


# Guesses that know the form of an answer but not the text, by the beginning of the task's name.
GUESSES: Mapping[str, Guess] = {
    "mrcr": Guess(_another_reply, 0.15, most=True),
    "graph": Guess(_the_start, 0),
    "ladder_mk_medium": Guess(_one_of_the_names, 0.25),
    "ladder_mk_hard": Guess(_one_of_the_names, 0.25),
    "ladder_mk_basic": Guess(_constant("1234567890"), 0),
    "ladder_mv_basic": Guess(_constant("1234567890, 1234567891, 1234567892, 1234567893"), 0),
    "ladder_qa_basic": Guess(_a_document, 0.1, most=True),
    "ladder_qa_easy": Guess(_a_document, 0.15, most=True),
    "association": Guess(_one_of_the_keys, 0.25),
    "count_labels": Guess(_constant("10"), 0.33),
    "count_users": Guess(_one_of_the_keys, 0.08),
    "count_dates": Guess(_one_of_the_keys, 0.08),
    "world_three_arguments": Guess(_constant("Mary"), 0.13),
    "world": Guess(_constant("kitchen"), 0.13),
    "latent_list": Guess(_constant("5"), 0.06),
    "not_in_text": Guess(_constant("B"), 0.25),
}
# Without the form of an answer nothing is earned.
BLIND: Mapping[str, Reader] = {
    "nothing": _constant(""),
    "beginning": lambda sample: " ".join(sample.context.split()[:ANSWER_WORDS]),
    "end": lambda sample: " ".join(sample.context.split()[-ANSWER_WORDS:]),
    "question": lambda sample: f"{sample.question} {sample.answer_prefix}",
    "random": lambda sample: " ".join(Random(sample.index).choices(vocabulary(), k=ANSWER_WORDS)),
}


def guess_for(task: str) -> Guess | None:
    """Return the guess for a task; None where copying long texts leaves nothing to guess."""
    return next((guess for prefix, guess in GUESSES.items() if task.startswith(prefix)), None)
