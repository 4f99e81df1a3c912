"""Samples of the published essays and questions, where the files are at hand."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.corpora.schema import ParagraphQuestion
from longctx.plugins.runner.samples import sample_problems
from tests.helpers.paths import REPOSITORY
from tests.helpers.tiny_tokenizers import RULER, formatter

ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")


@pytest.fixture(scope="module")
def data_dir() -> Path:
    """The directory LONGCTX_DATA_DIR, or shared/data beside the repository."""
    places = (os.environ.get("LONGCTX_DATA_DIR"), REPOSITORY.parent / "shared" / "data")
    drawn = [Path(place) for place in places if place and Path(place).is_dir()]
    if not drawn or "archive" in load_corpora(drawn[0]).sources.values():
        pytest.skip("no published data: set LONGCTX_DATA_DIR")
    return drawn[0]


@pytest.fixture(scope="module")
def published(data_dir: Path) -> Corpora:
    return load_corpora(data_dir)


@pytest.mark.parametrize("task", RULER)
def test_samples_of_published_texts_are_sound(task: str, published: Corpora) -> None:
    for index in range(4):
        sample = RULER[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=published)
        assert sample_problems(sample, RULER[task], formatter()) == []
        assert sample.source == ("published" if task in (*ESSAYS, "qa_1", "qa_2") else "archive")


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_no_published_question_contains_its_answer(task: str, published: Corpora) -> None:
    """Some do: to give such a question back would score as an answer."""
    questions = published.squad if task == "qa_1" else published.hotpot
    for index in range(min(60, len(questions.questions))):
        sample, _ = RULER[task].shortest_draft(4096, index, seed=0, tokenizer=formatter(), corpora=published)
        echo = f"{sample.question} {sample.answer_prefix}".lower()
        assert not any(answer.lower() in echo for answer in sample.references)


def shown_paragraphs(
    task: str, index: int, corpora: Corpora, by_text: Mapping[str, ParagraphQuestion]
) -> tuple[ParagraphQuestion, list[str]]:
    """Return the question of a sample, and the paragraphs that the sample shows."""
    sample = RULER[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=corpora)
    return by_text[sample.question], re.split(r"(?:^|\n\n)Document \d+:\n", sample.context)[1:]


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_paragraphs_of_the_own_article_or_item_come_first(task: str, published: Corpora) -> None:
    """RULER's code shows the whole article (SQuAD) or all ten paragraphs of the item (HotpotQA) before any other."""
    questions = published.squad if task == "qa_1" else published.hotpot
    by_text = {question.question: question for question in questions.questions}
    shares = []
    for index in range(12):
        question, shown = shown_paragraphs(task, index, published, by_text)
        own = {questions.paragraphs[place] for place in {*question.related, *question.gold}}
        count = sum(text in own for text in shown)
        # The last paragraphs may be too long for the rest of the budget, and shorter ones take their place.
        assert count >= min(len(own), len(shown)) - 1
        assert {questions.paragraphs[place] for place in question.gold} <= set(shown)
        shares.append(count / len(shown))
    assert len({question.related for question in by_text.values()}) > 1
    if task == "qa_2":
        assert all(len(question.related) <= 10 for question in by_text.values())
    else:
        assert sum(share == 1 for share in shares) >= 6


def test_samples_of_both_fills_never_share_a_key(published: Corpora, data_dir: Path) -> None:
    other = load_corpora(data_dir, qa_fill="random")
    assert samples_fingerprint(RULER, published, formatter()) != samples_fingerprint(RULER, other, formatter())
    assert samples_fingerprint(RULER, published, formatter()) == samples_fingerprint(
        RULER, load_corpora(data_dir, qa_fill="own"), formatter()
    )
