"""Answers that need no reading: who knows the answer scores 1, who says anything else scores what chance gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import mean

import pytest

from fixtures.corpora.words import vocabulary
from fixtures.records import Sample
from fixtures.scoring.match import contains_words
from fixtures.tasks import load_tasks
from tests.helpers.tiny_tokenizers import GENERATED, HELMET, formatter, sample, samples

SAMPLES = 24
# Of documents, whose answers take long to score and where chance gives nothing that more samples would show.
FEWER = dict.fromkeys(("infbench_qa", "infbench_sum", "multi_lexsum"), 8)
ECHO = 128
ICL = ("trec_coarse", "trec_fine", "banking77", "clinc150", "nlu")
NEEDLES = tuple(name for name in HELMET if name.startswith("ruler_"))
every_task = pytest.mark.parametrize("task", HELMET)
# One sample in 24 more than chance.
SLACK = 1 / SAMPLES + 1e-9


def length_of(task: str) -> int:
    """The shortest that every sample fits: a summary of a novel may take 1200 tokens by itself."""
    return 8192 if task == "infbench_sum" else 4096


def several(task: str, count: int = SAMPLES) -> list[Sample]:
    return samples(task, min(count, FEWER.get(task, SAMPLES)), length_of(task))


def floor(task: str, found: list[Sample]) -> float:
    """What an answer scores by chance alone.

    A class or an option is guessed with 1 over their number. A ranking in any order has an NDCG. The needles of RULER
    are scored as RULER does, so a part of the text holds those that are hidden there: 128 of 4096 tokens, and all
    that stand at the first of 40 depths. ROUGE-L counts the articles and names that any answer has. The first words
    of the first passage are its title, which is popqa's answer where the passage that has it stands first of six.
    """
    if task in ICL:
        return 1 / len(GENERATED.classification_set(task).labels)
    if task == "infbench_mc":
        return 1 / 4
    if task == "msmarco":
        return mean(HELMET[task].score(one, shuffled(one)).value for one in found)
    if task == "infbench_qa":
        return 0.2
    if task == "popqa":
        return 1 / 6
    return ECHO / 4096 + 2 / 40 + 1 / SAMPLES if task in NEEDLES else 0.0


def most(task: str, found: list[Sample]) -> float:
    """What chance may give these samples: of classes three standard deviations more, else one sample."""
    share = floor(task, found)
    return share + (spread(share, found) if task in ICL else SLACK)


def spread(share: float, found: list[Sample]) -> float:
    """Three standard deviations of so many guesses, each right with this chance."""
    return float(3 * (share * (1 - share) / len(found)) ** 0.5 + 1e-9)


def shuffled(found: Sample) -> str:
    labels = list(found.truth.labels)
    Random(found.index).shuffle(labels)
    return " > ".join(labels)


def decoded(ids: list[int] | tuple[int, ...]) -> str:
    text: str = formatter().tokenizer.decode(list(ids))  # type: ignore[attr-defined]  # prompts never decode
    return text


def encoded(text: str) -> list[int]:
    return list(formatter().tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


ECHOES: dict[str, Callable[[Sample], str]] = {
    "first tokens of the prompt": lambda found: decoded(found.prompt.token_ids[1 : 1 + ECHO]),
    "last tokens of the prompt": lambda found: decoded(found.prompt.token_ids[-ECHO:]),
    "first tokens of the context": lambda found: decoded(encoded(found.context[:4000])[:ECHO]),
    "last tokens of the context": lambda found: decoded(encoded(found.context[-4000:])[-ECHO:]),
    "as much of the context as may be said": lambda found: decoded(
        encoded(found.context[:9000])[: found.prompt.generation_tokens]
    ),
    "the whole prompt": lambda found: found.prompt.text,
    "the whole context": lambda found: found.context,
}
GUESSES: dict[str, Callable[[Sample], str]] = {
    "nothing": lambda found: "",
    "blanks": lambda found: " \n\t",
    "dots": lambda found: "... ..." * 10,
    "the prefix": lambda found: found.answer_prefix,
    "the question": lambda found: f"{found.question} {found.answer_prefix}",
    "random words": lambda found: " ".join(Random(found.index).choices(vocabulary(), k=30)),
    "wrong values": lambda found: " ".join(found.distractors),
}


@every_task
def test_whoever_knows_the_answer_scores_1(task: str) -> None:
    for found in several(task):
        score = HELMET[task].score(found, HELMET[task].perfect_answer(found))
        assert (score.value, score.failure) == (1, None)


@every_task
@pytest.mark.parametrize("guess", ["nothing", "blanks"])
def test_no_answer_scores_0(task: str, guess: str) -> None:
    for found in several(task):
        score = HELMET[task].score(found, GUESSES[guess](found))
        assert (score.value, score.failure) == (0, "empty")


@every_task
def test_a_guess_scores_what_chance_gives(task: str) -> None:
    found = several(task)
    for name, guess in GUESSES.items():
        assert mean(HELMET[task].score(one, guess(one)).value for one in found) <= most(task, found), name


@every_task
def test_an_echo_scores_what_chance_gives(task: str) -> None:
    found = several(task)
    for name, echo in ECHOES.items():
        if task in NEEDLES and "whole" in name:
            continue  # RULER counts what is found; such an answer is many times longer than the budget
        assert mean(HELMET[task].score(one, echo(one)).value for one in found) <= most(task, found), name


def last_quarter(found: Sample) -> str:
    return found.context[-len(found.context) // 4 :]


def ranked_by_who_sees_the_end(found: Sample) -> str:
    labels = found.truth.labels
    return " > ".join(sorted((one for one in labels if one in last_quarter(found)), key=labels.get, reverse=True))


# What is told by the last quarter of the context, at most and by far not nothing.
SEEN: dict[str, Callable[[Sample], float]] = {
    **dict.fromkeys(
        ("nq", "triviaqa", "popqa", "hotpotqa"),
        lambda found: float(any(contains_words(last_quarter(found), form) for form in found.references)),
    ),
    **dict.fromkeys(("asqa", "qampari"), lambda found: mean(depth >= 0.75 for depth in found.depths)),
    "msmarco": lambda found: HELMET["msmarco"].score(found, ranked_by_who_sees_the_end(found)).value,
}


@pytest.mark.parametrize("task", SEEN)
def test_who_sees_the_last_quarter_loses_what_stands_before_it(task: str) -> None:
    """So that depth is real: of what a task asks for most is lost, and not all."""
    assert 0.1 <= mean(SEEN[task](one) for one in several(task)) <= 0.5


@pytest.mark.parametrize("task", [*ICL, "infbench_mc", "msmarco"])
def test_a_random_choice_scores_its_share(task: str) -> None:
    found = several(task)
    chosen: dict[str, Callable[[Sample], str]] = {
        "msmarco": shuffled,
        "infbench_mc": lambda one: Random(one.index).choice("ABCD"),
    }
    classes = len(GENERATED.classification_set(task).labels) if task in ICL else 0

    def number(one: Sample) -> str:
        return str(Random(one.index).randrange(classes))

    guess = chosen.get(task, number)
    values = [HELMET[task].score(one, guess(one)).value for one in found]
    if task == "msmarco":
        # Labels 0 to 3 in equal numbers: by chance about half of what the best order gains.
        assert 0.3 <= mean(values) <= 0.7
    else:
        share = floor(task, found)
        assert abs(mean(values) - share) <= spread(share, found)


@pytest.mark.parametrize("task", ["nq", "triviaqa", "popqa", "hotpotqa", "json_kv", "narrativeqa"])
def test_a_run_of_the_prompt_around_the_answer_is_no_answer(task: str) -> None:
    for found in several(task, 6):
        at = found.context.index(found.references[0])
        around = found.context[max(0, at - 400) : at + 400]
        score = HELMET[task].score(found, around)
        assert (score.value, score.failure, set(score.parts.values())) == (0, "copied", {0.0})
        assert HELMET[task].paper_variant.score(found, around).value == 1


@pytest.mark.parametrize("task", ["narrativeqa", "asqa"])
def test_a_quoted_sentence_is_an_answer(task: str) -> None:
    """Where sentences are asked for, one of the text may be the best of them."""
    found = sample(task)
    at = found.context.index(found.references[0])
    quoted = " ".join(found.context[max(0, at - 60) : at + 60].split()[1:-1])
    assert found.references[0] in quoted
    assert HELMET[task].score(found, quoted).value > 0


def test_an_answer_as_long_as_a_run_is_still_the_answer() -> None:
    found = sample("nq")
    words = " ".join(found.context.split()[20:32])
    asked = replace(found, references=(words,))
    assert HELMET["nq"].score(asked, f"{words}.").value == 1


# --- to the letter of the paper ---


def around(found: Sample) -> str:
    at = found.context.index(found.references[0])
    return found.context[max(0, at - 400) : at + 400]


LONG_NUMBER = "1" * 200
DIFFERENT: dict[str, tuple[Callable[[Sample], str], float, float]] = {
    **dict.fromkeys(
        ("nq", "triviaqa", "popqa", "hotpotqa", "json_kv"), (lambda found: f"x{found.references[0]}x", 0.0, 1.0)
    ),
    "asqa": (lambda found: found.context, 0.0, 1 / 3),
    "qampari": (lambda found: ", ".join(found.references) + f" {found.context[:0]}", 1 / 3, 1 / 3),
    "msmarco": (lambda found: f"{' > '.join(found.references)} and {LONG_NUMBER}", 1.0, 0.0),
    "narrativeqa": (lambda found: f"x{found.references[0]}x", 0.0, 1.0),
    "infbench_mc": (lambda found: f"{' '.join(found.truth.others)} {found.references[1]}", 0.0, 1.0),
}


@pytest.mark.parametrize("task", sorted(set(DIFFERENT) - {"qampari"}))
def test_strict_scores_differ_from_the_papers_where_those_are_generous(task: str) -> None:
    answer, strict, paper = DIFFERENT[task]
    found = sample(task)
    assert HELMET[task].score(found, answer(found)).value == pytest.approx(strict)
    assert load_tasks(scoring="paper")[task].score(found, answer(found)).value == pytest.approx(paper)
    assert load_tasks(scoring="strict")[task].score(found, answer(found)).value == pytest.approx(strict)


@pytest.mark.parametrize("task", ["infbench_qa", "infbench_sum", "multi_lexsum", "qampari"])
def test_an_echo_counts_to_the_letter(task: str) -> None:
    found = [one for one in several(task, 8) if HELMET[task].paper_variant.score(one, one.context).value > 0]
    assert found
    assert [HELMET[task].score(one, one.context).value for one in found] == [0.0] * len(found)


@pytest.mark.parametrize("task", [*ICL, *NEEDLES])
def test_classes_and_needles_are_scored_alike_in_both(task: str) -> None:
    assert HELMET[task].paper_variant.grade is HELMET[task].grade


def test_the_papers_score_of_a_right_answer_is_1_too() -> None:
    for name, task in load_tasks(scoring="paper").items():
        if name in HELMET:
            found = sample(name, length_of(name))
            assert task.score(found, task.perfect_answer(found)).value == pytest.approx(1)
