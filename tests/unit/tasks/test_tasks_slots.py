"""The words to be counted stand in other places in every sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import mean

import pytest

from longctx.fixtures.tasks.sample_spec import Draft
from tests.helpers.tiny_tokenizers import drafts


def first_different(words: Iterable[str], count: int) -> set[str]:
    return set(list(dict.fromkeys(words))[:count])


def common_words(draft: Draft) -> list[str]:
    return [word for word in draft.context.split() if not word.endswith(".")]


def coded_words(draft: Draft) -> list[str]:
    return [word for word in draft.context.split() if word != "..."]


@pytest.mark.parametrize(
    ("task", "words", "least", "most"), [("cwe", common_words, 0, 0), ("fwe", coded_words, 0.02, 0.6)]
)
def test_the_first_words_of_a_text_are_not_the_answer(
    task: str, words: Callable[[Draft], list[str]], least: float, most: float
) -> None:
    """In the public generators answers are the first words, or always in the same slots. Of the coded
    words the three most frequent ones are so frequent that they sometimes come first by chance."""
    drawn = drafts(task, 60, token_budget=700)
    hits = [first_different(words(draft), len(draft.references)) == set(draft.references) for draft in drawn]
    assert least <= mean(hits) <= most


@pytest.mark.parametrize(("task", "words"), [("cwe", common_words), ("fwe", coded_words)])
def test_answers_stand_in_other_slots_in_every_sample(task: str, words: Callable[[Draft], list[str]]) -> None:
    slots = [
        tuple(at for at, word in enumerate(words(draft)) if word in draft.references)
        for draft in drafts(task, 60, token_budget=700)
    ]
    assert len(set(slots)) == len(slots)
    # Each of the first slots is an answer's in as many samples as the answers' share of the list leads one to expect.
    share = mean(len(one) for one in slots) / mean(len(words(draft)) for draft in drafts(task, 60, token_budget=700))
    for slot in range(10):
        assert mean(slot in one for one in slots) == pytest.approx(share, abs=0.28)
