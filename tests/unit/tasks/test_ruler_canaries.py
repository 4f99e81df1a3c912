"""Answers without reading the text: the references score 1, and any other answer scores about 0."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random
from statistics import mean
from string import ascii_lowercase, ascii_uppercase, digits

import pytest

from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.records import Sample
from tests.helpers.tiny_tokenizers import RULER, decoded, encoded, make_sample, make_samples

SAMPLES = 12
LENGTH = 4096
EDGE = 16
# The chance that a value stands in an echoed part because it was hidden there: the part is 128 of 4096 tokens, and
# 2 of 40 depths among essays lie in it; a share of 1/12 is one sample. No other floor is above 0.
ECHO_FLOOR = {"retrieval": 2 / 40, "tracing": 30 / LENGTH, "qa": 32 / LENGTH, "aggregation": 0.0}
every_task = pytest.mark.parametrize("task", RULER)


def first_tokens(sample: Sample) -> str:
    return decoded(encoded(sample.context)[: sample.prompt.generation_tokens])


def last_tokens(sample: Sample) -> str:
    return decoded(sample.prompt.token_ids[-sample.prompt.generation_tokens :])


def end_of_context(sample: Sample) -> str:
    return decoded(encoded(sample.context)[-sample.prompt.generation_tokens :])


def said_anew(sample: Sample, alphabet: str, size: int) -> str:
    random = Random(sample.index)
    return " ".join("".join(random.choices(alphabet, k=size)) for _ in range(sample.prompt.generation_tokens))


GUESSES: dict[str, Callable[[Sample], str]] = {
    "nothing": lambda sample: "",
    "blanks": lambda sample: " \n\t",
    "dots": lambda sample: "... ..." * 10,
    "the question": lambda sample: f"{sample.question} {sample.answer_prefix}",
    "random words": lambda sample: " ".join(Random(sample.index).choices(vocabulary(), k=30)),
    "random names": lambda sample: said_anew(sample, ascii_uppercase, 5),
    "random codes": lambda sample: said_anew(sample, ascii_lowercase, 6),
    "random numbers": lambda sample: said_anew(sample, digits, 7),
    "the distractors": lambda sample: " ".join(sample.distractors),
}
ECHOES: dict[str, Callable[[Sample], str]] = {
    "first tokens of the context": first_tokens,
    "last tokens of the context": end_of_context,
    "last tokens of the prompt": last_tokens,
}


@every_task
def test_the_references_score_1_in_any_form(task: str) -> None:
    for sample in make_samples(task, SAMPLES):
        for answer in (
            " ".join(sample.references),
            ", ".join(sample.references).upper(),
            " ".join(f"{number}. {reference}" for number, reference in enumerate(sample.references, start=1)),
            f"Sure! {sample.answer_prefix} " + " and ".join(reversed(sample.references)),
        ):
            score = RULER[task].score(sample, answer)
            assert (score.value, score.failure) == (1, None), answer


@every_task
@pytest.mark.parametrize("guess", GUESSES)
def test_a_guess_scores_about_0(task: str, guess: str) -> None:
    # Among many numbers is the right year now and then: in one sample of 48 at most.
    count = 4 * SAMPLES if RULER[task].category == "qa" else SAMPLES
    scores = [RULER[task].score(sample, GUESSES[guess](sample)).value for sample in make_samples(task, count)]
    assert mean(scores) <= (1 / count if RULER[task].category == "qa" else 0.02)


@every_task
@pytest.mark.parametrize("echo", ECHOES)
def test_an_echo_scores_no_more_than_chance_puts_there(task: str, echo: str) -> None:
    scores = [RULER[task].score(sample, ECHOES[echo](sample)).value for sample in make_samples(task, SAMPLES)]
    assert mean(scores) <= 0.05 + ECHO_FLOOR[RULER[task].category]


# --- word lists, whose answers stand all over the context ---


def windows(sample: Sample) -> Iterator[str]:
    """Yield runs of the prompt with the length of an answer. They start and end anywhere, even inside a word."""
    ids = list(sample.prompt.token_ids)
    size = sample.prompt.generation_tokens
    for start in range(1, len(ids) - size, (len(ids) - size) // EDGE - 1):
        yield decoded(ids[start : start + size])


@pytest.mark.parametrize("task", ["cwe", "fwe"])
@pytest.mark.parametrize("length", [1024, 4096])
def test_no_run_of_a_word_list_scores(task: str, length: int) -> None:
    """In the public scorer a run of a short list scores up to 100."""
    contained = 0
    for sample in make_samples(task, 4, length):
        for echo in windows(sample):
            contained += any(reference in echo for reference in sample.references)
            score = RULER[task].score(sample, echo)
            assert score.value == 0, echo
            assert score.failure == ("copied" if re.search(r"\w", echo) else "empty")
            assert set(score.parts.values()) == {0.0}
    assert contained > 30


@pytest.mark.parametrize("length", [1024, 4096])
def test_a_run_of_a_list_that_is_numbered_anew_scores_nothing_either(length: int) -> None:
    for sample in make_samples("cwe", 4, length):
        words = sample.context.split()[1::2]
        for start in range(0, len(words) - 12, 12):
            run = words[start : start + 12]
            for echo in (" ".join(run), " ".join(f"{number}. {word}" for number, word in enumerate(run, start=1))):
                assert RULER["cwe"].score(sample, echo).value == 0, echo


def test_a_right_answer_may_be_long_and_repeat_itself() -> None:
    for task in ("cwe", "fwe"):
        sample = make_sample(task)
        listed = " ".join(f"{number}. {word}" for number, word in enumerate(sample.references, start=1))
        for answer in (f"{listed}\n{listed}\n{listed}", f"{sample.answer_prefix} {listed}", f"{listed} 11. aardvark"):
            assert RULER[task].score(sample, answer).value == 1
