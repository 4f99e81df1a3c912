"""Answers without reading the text: the right answer scores 1, and any other answer scores no more than chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import mean

import pytest

from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.records import Sample
from tests.helpers.solvers import SOLVERS, solver_score
from tests.helpers.tiny_tokenizers import GENERATED, HELMET, decoded, encoded, make_sample, make_samples

SAMPLES = 12
# Fewer samples of tasks whose answers take long to score, and where chance scores 0.
FEWER = dict.fromkeys(("infbench_qa", "infbench_sum", "multi_lexsum"), 8)
ECHO = 128
ICL = ("trec_coarse", "trec_fine", "banking77", "clinc150", "nlu")
NEEDLES = tuple(name for name in HELMET if name.startswith("ruler_"))
every_task = pytest.mark.parametrize("task", HELMET)
# One sample of them.
SLACK = 1 / SAMPLES + 1e-9


def length_of(task: str) -> int:
    """Return the shortest length that all samples fit; a summary of a novel alone may take 1200 tokens."""
    return 8192 if task == "infbench_sum" else 4096


def several(task: str, count: int = SAMPLES) -> list[Sample]:
    return make_samples(task, min(count, FEWER.get(task, SAMPLES)), length_of(task))


def floor(task: str, drawn: list[Sample]) -> float:
    """Return the score of an answer by chance alone.

    A guess of a class or option is right with 1 over their number. A ranking in any order has an NDCG above 0. RULER's
    needles are scored as RULER does, so an echoed part of the text contains the needles in it: 128 of 4096 tokens, and
    all needles at the first of 40 depths. ROUGE-L counts the articles and names in any answer. The first words of the
    first passage are its title, which is popqa's answer if the gold passage is the first of six.
    """
    if task in ICL:
        return 1 / len(GENERATED.classification_set(task).labels)
    if task == "infbench_mc":
        return 1 / 4
    if task == "msmarco":
        return mean(HELMET[task].score(one, shuffled(one)).value for one in drawn)
    if task == "infbench_qa":
        return 0.2
    if task == "popqa":
        return 1 / 6
    return ECHO / 4096 + 2 / 40 + 1 / SAMPLES if task in NEEDLES else 0.0


def most(task: str, drawn: list[Sample]) -> float:
    """Return the highest mean by chance: for classes three standard deviations more, else one sample more."""
    share = floor(task, drawn)
    return share + (max(spread(share, drawn), SLACK) if task in ICL else SLACK)


def spread(share: float, drawn: list[Sample]) -> float:
    """Return three standard deviations of the mean of guesses that are right with this probability."""
    return float(3 * (share * (1 - share) / len(drawn)) ** 0.5 + 1e-9)


def shuffled(sample: Sample) -> str:
    labels = list(sample.truth[0])
    Random(sample.index).shuffle(labels)
    return " > ".join(labels)


ECHOES: dict[str, Callable[[Sample], str]] = {
    "first tokens of the prompt": lambda sample: decoded(sample.prompt.token_ids[1 : 1 + ECHO]),
    "last tokens of the prompt": lambda sample: decoded(sample.prompt.token_ids[-ECHO:]),
    "first tokens of the context": lambda sample: decoded(encoded(sample.context[:4000])[:ECHO]),
    "last tokens of the context": lambda sample: decoded(encoded(sample.context[-4000:])[-ECHO:]),
    "as much of the context as may be said": lambda sample: decoded(
        encoded(sample.context[:9000])[: sample.prompt.generation_tokens]
    ),
    "the whole prompt": lambda sample: sample.prompt.text,
    "the whole context": lambda sample: sample.context,
}
GUESSES: dict[str, Callable[[Sample], str]] = {
    "dots": lambda sample: "... ..." * 10,
    "the prefix": lambda sample: sample.answer_prefix,
    "the question": lambda sample: f"{sample.question} {sample.answer_prefix}",
    "random words": lambda sample: " ".join(Random(sample.index).choices(vocabulary(), k=30)),
    "wrong values": lambda sample: " ".join(sample.distractors),
}


@every_task
def test_the_right_answer_scores_1(task: str) -> None:
    for sample in several(task):
        score = HELMET[task].score(sample, HELMET[task].perfect_answer(sample))
        assert (score.value, score.failure) == (1, None)


@every_task
@pytest.mark.parametrize("answer", ["", " \n\t"])
def test_no_answer_scores_0(task: str, answer: str) -> None:
    for sample in several(task):
        score = HELMET[task].score(sample, answer)
        assert (score.value, score.failure) == (0, "empty")


@every_task
def test_a_guess_scores_no_more_than_chance(task: str) -> None:
    drawn = several(task)
    for name, guess in GUESSES.items():
        assert mean(HELMET[task].score(one, guess(one)).value for one in drawn) <= most(task, drawn), name


@every_task
def test_an_echo_scores_no_more_than_chance(task: str) -> None:
    drawn = several(task)
    for name, echo in ECHOES.items():
        if task in NEEDLES and "whole" in name:
            continue  # RULER counts every value in an answer, and this one is many times longer than the budget
        assert mean(HELMET[task].score(one, echo(one)).value for one in drawn) <= most(task, drawn), name


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_that_does_not_read_stays_below_its_bound(name: str) -> None:
    solver, bounds = SOLVERS[name]
    for task in bounds:
        assert solver_score(solver, several(task)) <= bounds[task] + 100 * SLACK, task


@pytest.mark.parametrize("task", ["narrativeqa", "asqa"])
def test_a_quoted_sentence_is_an_answer(task: str) -> None:
    """Where the answer is a sentence, a sentence of the text may be the best one."""
    sample = make_sample(task)
    at = sample.context.index(sample.references[0])
    quoted = " ".join(sample.context[max(0, at - 60) : at + 60].split()[1:-1])
    assert sample.references[0] in quoted
    assert HELMET[task].score(sample, quoted).value > 0


def test_an_answer_as_long_as_a_run_is_still_the_answer() -> None:
    sample = make_sample("nq")
    words = " ".join(sample.context.split()[20:32])
    question = replace(sample, references=(words,))
    assert HELMET["nq"].score(question, f"{words}.").value == 1
