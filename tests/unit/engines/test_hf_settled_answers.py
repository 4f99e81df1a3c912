"""Decoding ends as soon as no continuation can change the score, and never earlier."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines.answers import is_settled
from longctx.fixtures.records import Sample
from longctx.fixtures.scoring.match import settled_by_all, settled_by_any, string_match_all, string_match_any
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import prompt_key
from tests.helpers.counts import count
from tests.helpers.tiny_engines import Ready
from tests.helpers.tiny_models import byte_tokenizer, random_prompt

SETTLED = [name for name, task in TASKS.items() if task.settled_by]
# Letters whose lower case is longer or depends on the next letter, and parts of stop strings.
LETTERS = st.sampled_from(
    ["\u03a3", "\u03c2", "\u03c3", "\u0130", "\u00df", "A", "a", "b", "B", "1", " ", ".", "'", "\n"]
)
TEXTS = st.lists(LETTERS, max_size=12).map("".join)
REFERENCES = st.lists(st.lists(LETTERS, min_size=1, max_size=3).map("".join), min_size=1, max_size=3)
STOPS = st.lists(st.lists(LETTERS, min_size=1, max_size=3).map("".join), max_size=2)


@cache
def sample_of(name: str) -> Sample:
    formatter = PromptFormatter(byte_tokenizer())
    return TASKS[name].sample(2048, 0, seed=0, tokenizer=formatter, corpora=Corpora())


def cut(text: str, stops: list[str]) -> str:
    return text[: min((start for stop in stops if (start := text.find(stop)) >= 0), default=len(text))]


def test_tasks_whose_score_can_fall_again_never_end_early() -> None:
    ruler = [name for name, task in TASKS.items() if task.suite == "ruler"]
    assert [name for name in ruler if name not in SETTLED] == ["cwe", "fwe"]
    assert sample_of("fwe").prompt.settled_by == ()


@given(text=TEXTS, rest=TEXTS, references=REFERENCES, stops=STOPS)
def test_a_settled_text_has_the_full_score_with_any_continuation(
    text: str, rest: str, references: list[str], stops: list[str]
) -> None:
    whole = cut(text + rest, stops)
    if cut(text, stops) == text and is_settled(text, settled_by_all(references), stops):
        assert string_match_all(text, references) == string_match_all(whole, references) == 1
    if cut(text, stops) == text and is_settled(text, settled_by_any(references), stops):
        assert string_match_any(text, references) == string_match_any(whole, references) == 1


@pytest.mark.parametrize("name", SETTLED)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_an_early_end_changes_no_score(name: str, data: st.DataObject) -> None:
    """Compare whole scores, with their parts and failure kinds.

    Answers consist of references, distractors, parts of the prompt and noise.
    """
    sample = sample_of(name)
    words = sample.prompt.text.split()
    run = st.integers(0, len(words) - 9).map(lambda start: " ".join(words[start : start + 9]))
    known = st.sampled_from(
        [*sample.references, *sample.distractors, *(reference.upper() for reference in sample.references)]
    )
    text = " ".join(data.draw(st.lists(st.one_of(known, run, TEXTS), max_size=8)))
    ends = (end for end in range(len(text) + 1) if is_settled(text[:end], sample.prompt.settled_by))
    early = text[: next(ends, len(text))]
    assert TASKS[name].score(sample, early) == TASKS[name].score(sample, text)


def test_decoding_ends_with_the_token_that_settles_the_score(ready: Ready) -> None:
    engine = ready("llama")
    (whole,) = engine.generate([random_prompt(40, 20)])
    words = [f" {word} " for word in whole.text.split()]
    settled = replace(random_prompt(40, 20), settled_by=(("nowhere",), (words[3].strip(), words[6].strip())))
    (early,) = engine.generate([settled])
    assert early.finish == "decided"
    assert whole.text.startswith(early.text)
    assert count(early.generated_tokens) <= 7 < count(whole.generated_tokens)
    assert count(early.computed_tokens) == 40 - count(early.reused_tokens) + count(early.generated_tokens) - 1


def test_rows_of_a_batch_end_early_on_their_own(ready: Ready) -> None:
    engine = ready("llama", 3)
    prompts = [random_prompt(length, 20) for length in (40, 30, 35)]
    whole = list(engine.generate(prompts))
    settled = replace(prompts[1], settled_by=((whole[1].text.split()[0],),))
    early = list(engine.generate([prompts[0], settled, prompts[2]]))
    assert [generation.finish == "decided" for generation in early] == [False, True, False]
    assert [early[0].text, early[2].text] == [whole[0].text, whole[2].text]


def test_the_prompt_key_covers_the_texts_that_settle_the_score() -> None:
    unsettled = random_prompt(20)
    assert prompt_key(unsettled) != prompt_key(replace(unsettled, settled_by=(("7",),)))
