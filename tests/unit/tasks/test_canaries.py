"""Answers without reading the text: the right one scores 1, and any other one of RULER and HELMET about chance."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from statistics import mean
from string import ascii_lowercase, ascii_uppercase, digits

import pytest

from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from tests.helpers.solvers import SOLVERS, solver_score
from tests.helpers.tiny_tokenizers import GENERATED, HELMET, RULER, decoded, encoded, make_sample, make_samples

SAMPLES = 12
LENGTH = 4096
# Fewer samples of tasks whose answers take long to score, and where chance scores 0.
FEWER = dict.fromkeys(("infbench_qa", "infbench_sum", "multi_lexsum"), 8)
# The tokens of an echo of HELMET's tasks; RULER's have as many as an answer.
ECHO = 128
EDGE = 16
ICL = ("trec_coarse", "trec_fine", "banking77", "clinc150", "nlu")
NEEDLES = tuple(name for name in HELMET if name.startswith("ruler_"))
# One sample of them.
SLACK = 1 / SAMPLES + 1e-9
# The chance that a value stands in an echoed part because it was hidden there: the part is 128 of 4096 tokens, and
# 2 of 40 depths among essays lie in it; a share of 1/12 is one sample. No other floor of RULER is above 0.
ECHO_FLOOR = {"retrieval": 2 / 40, "tracing": 30 / LENGTH, "qa": 32 / LENGTH, "aggregation": 0.0}
every_task = pytest.mark.parametrize("task", [*RULER, *HELMET])


def several(task: str, count: int = SAMPLES) -> list[Sample]:
    """Return samples at the shortest length that all fit; a summary of a novel alone may take 1200 tokens."""
    return make_samples(task, min(count, FEWER.get(task, count)), 8192 if task == "infbench_sum" else LENGTH)


def chance(task: str, drawn: list[Sample]) -> float:
    """Return the score of an answer to a task of HELMET by chance alone.

    A guess of a class or option is right with 1 over their number. A ranking in any order has an NDCG above 0. RULER's
    needles are scored as RULER does, so an echoed part of the text contains the needles in it: 128 of 4096 tokens, and
    all needles at the first of 40 depths. ROUGE-L counts the articles and names in any answer. The first words of the
    first passage are its title, which is popqa's answer if the gold passage is the first of six.
    """
    if task in ICL:
        return 1 / len(GENERATED.data_set(task).labels)
    if task == "msmarco":
        return mean(HELMET[task].score(one, shuffled(one)).value for one in drawn)
    if task in NEEDLES:
        return ECHO / LENGTH + 2 / 40 + 1 / SAMPLES
    return {"infbench_mc": 1 / 4, "infbench_qa": 0.2, "popqa": 1 / 6}.get(task, 0.0)


def most(task: str, drawn: list[Sample], *, is_echo: bool) -> float:
    """Return the highest mean by chance: for classes three standard deviations more, else one sample more."""
    if task in RULER:
        category = RULER[task].category
        if is_echo:
            return 0.05 + ECHO_FLOOR[category]
        # Among many numbers is the right year now and then: in one sample of 48 at most.
        return 1 / len(drawn) if category == "qa" else 0.02
    share = chance(task, drawn)
    spread = 3 * (share * (1 - share) / len(drawn)) ** 0.5 + 1e-9
    return share + (max(spread, SLACK) if task in ICL else SLACK)


def shuffled(sample: Sample) -> str:
    labels = list(sample.truth[0])
    Random(sample.index).shuffle(labels)
    return " > ".join(labels)


def size(sample: Sample) -> int:
    return ECHO if sample.task in HELMET else sample.prompt.generation_tokens


def said_anew(sample: Sample, alphabet: str, letters: int) -> str:
    random = Random(sample.index)
    return " ".join("".join(random.choices(alphabet, k=letters)) for _ in range(sample.prompt.generation_tokens))


GUESSES: dict[str, Callable[[Sample], str]] = {
    "dots": lambda sample: "... ..." * 10,
    "the prefix": lambda sample: sample.answer_prefix,
    "the question": lambda sample: f"{sample.question} {sample.answer_prefix}",
    "random words": lambda sample: " ".join(Random(sample.index).choices(vocabulary(), k=30)),
    "random names": lambda sample: said_anew(sample, ascii_uppercase, 5),
    "random codes": lambda sample: said_anew(sample, ascii_lowercase, 6),
    "random numbers": lambda sample: said_anew(sample, digits, 7),
    "wrong values": lambda sample: " ".join(sample.distractors),
}
ECHOES: dict[str, Callable[[Sample], str]] = {
    "first tokens of the context": lambda sample: decoded(encoded(sample.context[:9000])[: size(sample)]),
    "last tokens of the context": lambda sample: decoded(encoded(sample.context[-9000:])[-size(sample) :]),
    "last tokens of the prompt": lambda sample: decoded(sample.prompt.token_ids[-size(sample) :]),
}
# RULER counts every value in an answer, however long it is.
LONG_ECHOES: dict[str, Callable[[Sample], str]] = {
    "first tokens of the prompt": lambda sample: decoded(sample.prompt.token_ids[1 : 1 + ECHO]),
    "as much of the context as may be said": lambda sample: decoded(
        encoded(sample.context[:9000])[: sample.prompt.generation_tokens]
    ),
    "the whole prompt": lambda sample: sample.prompt.text,
    "the whole context": lambda sample: sample.context,
}


@every_task
def test_the_right_answer_scores_1(task: str) -> None:
    for sample in several(task):
        answers = [TASKS[task].perfect_answer(sample)]
        if task in RULER:
            answers += [
                ", ".join(sample.references).upper(),
                " ".join(f"{number}. {reference}" for number, reference in enumerate(sample.references, start=1)),
                f"Sure! {sample.answer_prefix} " + " and ".join(reversed(sample.references)),
            ]
        for answer in answers:
            score = TASKS[task].score(sample, answer)
            assert (score.value, score.failure) == (1, None), answer


@every_task
@pytest.mark.parametrize("answer", ["", " \n\t"])
def test_no_answer_scores_0(task: str, answer: str) -> None:
    for sample in several(task):
        score = TASKS[task].score(sample, answer)
        assert (score.value, score.failure) == (0, "empty")


@every_task
def test_a_guess_scores_no_more_than_chance(task: str) -> None:
    drawn = several(task, 4 * SAMPLES if TASKS[task].category == "qa" else SAMPLES)
    for name, guess in GUESSES.items():
        scores = [TASKS[task].score(one, guess(one)).value for one in drawn]
        assert mean(scores) <= most(task, drawn, is_echo=False), name


@every_task
def test_an_echo_scores_no_more_than_chance(task: str) -> None:
    drawn = several(task)
    echoes = ECHOES if task in (*RULER, *NEEDLES) else ECHOES | LONG_ECHOES
    for name, echo in echoes.items():
        scores = [TASKS[task].score(one, echo(one)).value for one in drawn]
        assert mean(scores) <= most(task, drawn, is_echo=True), name


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


# --- word lists, whose answers stand all over the context ---


def windows(sample: Sample) -> Iterator[str]:
    """Yield runs of the prompt with the length of an answer. They start and end anywhere, even inside a word."""
    ids = list(sample.prompt.token_ids)
    for start in range(1, len(ids) - size(sample), (len(ids) - size(sample)) // EDGE - 1):
        yield decoded(ids[start : start + size(sample)])


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
