"""Long prompts show what part of them a server reads, whatever the model can do, and accuse no weak model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from longctx.fixtures.engines.openai.canaries import CanaryAnswer
from longctx.fixtures.engines.openai.log_probabilities import AnswerStep
from longctx.fixtures.engines.openai.whole_prompts import (
    FREE_TOKENS,
    LIST_ANSWER_TOKENS,
    VALUE,
    number_list,
    reading_note,
)
from longctx.fixtures.records import Prompt
from tests.helpers.clients import asking

LENGTH = 400
Cut = Callable[[Sequence[str]], Sequence[str]]


def whole(words: Sequence[str]) -> Sequence[str]:
    return words


def without_start(words: Sequence[str]) -> Sequence[str]:
    return words[len(words) // 4 :]


def without_end(words: Sequence[str]) -> Sequence[str]:
    return words[: -len(words) // 4]


def swapped(words: Sequence[str]) -> Sequence[str]:
    return [*words[len(words) // 2 :], *words[: len(words) // 2]]


def thinned(words: Sequence[str], offset: int = 0) -> Sequence[str]:
    size = len(words)
    return [*words[: size // 8], *words[size // 8 + offset : -size // 4 : 2], *words[-size // 4 :]]


def thinned_beside(words: Sequence[str]) -> Sequence[str]:
    return thinned(words, 1)


def make_prompt(text: str, beginning: str, tokens: int) -> Prompt:
    (prompt,) = asking(f"{text} {beginning}".strip())
    return prompt


def model(cut: Cut, *, finds: Callable[[int], bool], has_steps: bool) -> Callable[[Prompt], CanaryAnswer]:
    """Return a model behind a server that cuts long prompts.

    It continues lists of numbers from their end, and finds a number that stands at most as many words before the end as
    `finds` allows.
    """

    def ask(prompt: Prompt) -> CanaryAnswer:
        words = prompt.text.split()
        assert len(words) <= LENGTH
        seen = list(cut(words) if len(words) > LENGTH // 2 else words)
        text = "none"
        if match := re.search(r"(\d+),$", seen[-1]):
            text = ", ".join(str(int(match[1]) + more) for more in range(1, 6))
        elif "provided text is" in " ".join(seen[-3:]):
            place = next((at for at, word in enumerate(seen) if word == f"{VALUE}."), None)
            text = VALUE if place is not None and finds(len(seen) - place) else text
        step = AnswerStep(text=text, log_probability=-(hash(tuple(seen)) % 1000) / 100, best={})
        return CanaryAnswer(text=text, steps=(step,) if has_steps else ())

    return ask


def anywhere(_: int) -> bool:
    return True


def nowhere(_: int) -> bool:
    return False


def near(words: int) -> bool:
    return words < LENGTH // 4


@pytest.mark.parametrize(
    ("cut", "finds", "has_steps", "said"),
    [
        (whole, anywhere, False, None),
        (whole, nowhere, True, None),
        (whole, near, True, None),
        # Without probabilities, what a model cannot do is held against nobody.
        (whole, nowhere, False, None),
        (without_start, anywhere, True, "differ at their start, so it does not read that part: it cuts prompts"),
        (without_start, anywhere, False, "but not at its start, and gives no log-probabilities"),
        (without_end, nowhere, False, "tokens at 76% of their length, as if the prompts ended there"),
        (without_end, nowhere, True, "tokens at 76% of their length, as if the prompts ended there"),
        (swapped, nowhere, False, "drops the end of prompts, or rearranges their parts"),
        (thinned, nowhere, True, "differ at their middle, so it does not read that part"),
        (thinned_beside, nowhere, True, "differ in one word of their middle, so it does not read every word"),
        (thinned, anywhere, False, "or drop parts of them, although it counts them whole"),
    ],
)
def test_prompts_that_are_not_read_as_they_were_sent_are_told_of(
    cut: Cut, finds: Callable[[int], bool], has_steps: bool, said: str | None
) -> None:
    ask = model(cut, finds=finds, has_steps=has_steps)
    note = reading_note(ask, ask, make_prompt, LENGTH)
    assert (note is None) == (said is None), note
    assert said is None or said in str(note)


def test_a_model_that_repeats_the_list_is_not_held_against_the_server() -> None:
    def ask(prompt: Prompt) -> CanaryAnswer:
        return CanaryAnswer(text="The list is 1001, 1002, 1003, 1004", steps=())

    assert reading_note(ask, ask, make_prompt, LENGTH, is_found=True) is None


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        (lambda ids: ids, False),
        # Another template of the same size.
        (lambda ids: (*range(20), *ids[20:]), False),
        (lambda ids: ids[20:], True),
        (lambda ids: ids[:-100], True),
        (lambda ids: (*ids[200:], *ids[:200]), True),
        (lambda ids: ids[::2], True),
    ],
    ids=["whole", "another template", "start cut", "end cut", "swapped", "thinned"],
)
def test_a_server_that_lists_the_tokens_it_reads_needs_one_prompt(
    change: Callable[[tuple[int, ...]], tuple[int, ...]], is_told: bool
) -> None:
    prompts = []

    def ask(prompt: Prompt) -> CanaryAnswer:
        prompts.append(prompt)
        return CanaryAnswer(text="", steps=(), prompt_ids=change(prompt.token_ids))

    note = reading_note(ask, ask, make_prompt, LENGTH)
    assert len(prompts) == 1
    assert (note is not None) == is_told
    assert note is None or "by its own list of them" in note


def test_short_prompts_say_nothing_about_an_honest_server() -> None:
    def ask(prompt: Prompt) -> CanaryAnswer:
        return CanaryAnswer(text="", steps=(), prompt_ids=prompt.token_ids)

    assert [reading_note(ask, ask, make_prompt, length) for length in (60, 100, 255, 256)] == [None] * 4


def test_tokens_that_are_not_the_most_probable_ones_are_told_of_although_the_prompt_is_whole() -> None:
    """A server may sample, or apply penalties, for long prompts only; a list leaves it no choice of words."""
    sent: list[int] = []

    def ask(prompt: Prompt) -> CanaryAnswer:
        sent.append(prompt.length_tokens)
        log_probability = -3.0 if "lighthouse" in prompt.text else -0.1
        step = AnswerStep(text="a", log_probability=log_probability, best={"a": log_probability, "b": -0.1})
        return CanaryAnswer(text="a", steps=(step,), prompt_ids=prompt.token_ids)

    note = reading_note(ask, ask, make_prompt, 4 * FREE_TOKENS)
    assert note is not None
    assert note.startswith("wrote 1 tokens in answers to long prompts although")
    assert sent[0] > 3 * FREE_TOKENS
    assert FREE_TOKENS / 2 < sent[1] <= FREE_TOKENS


@pytest.mark.parametrize("length", [200, 5_000, 60_000])
def test_a_list_fills_its_prompt_with_numbers_of_one_width(length: int) -> None:
    for which in (1, 5):
        numbers = number_list(make_prompt, length, which=which)
        assert 0.9 * length <= numbers.prompt.length_tokens + LIST_ANSWER_TOKENS <= length
        assert len(str(numbers.first)) == len(str(numbers.first + numbers.count + 1))
        assert numbers.place(f"{numbers.first + 1}, {numbers.first + 2}, {numbers.first + 3}") == 1 / numbers.count
