"""Samples of the published essays and questions, where the files are at hand."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fixtures.corpora import Corpora, load_corpora
from fixtures.preflight import sample_problems
from tests.helpers.paths import REPOSITORY
from tests.helpers.tiny_tokenizers import RULER, formatter

ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")


@pytest.fixture(scope="module")
def published() -> Corpora:
    """The files of LONGCTX_DATA_DIR, or of shared/data beside the repository."""
    places = (os.environ.get("LONGCTX_DATA_DIR"), REPOSITORY.parent / "shared" / "data")
    drawn = [load_corpora(place) for place in places if place and Path(place).is_dir()]
    if not drawn or "archive" in drawn[0].sources.values():
        pytest.skip("no published data: set LONGCTX_DATA_DIR")
    return drawn[0]


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


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_paragraphs_of_the_own_article_or_item_come_first(task: str, published: Corpora) -> None:
    """RULER's code shows the whole article (SQuAD) or all ten paragraphs of the item (HotpotQA) before any other."""
    questions = published.squad if task == "qa_1" else published.hotpot
    by_text = {question.question: question for question in questions.questions}
    shares = []
    for index in range(12):
        sample = RULER[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=published)
        question = by_text[sample.question]
        shown = re.split(r"(?:^|\n\n)Document \d+:\n", sample.context)[1:]
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


def test_own_paragraphs_stand_at_random_ranks(published: Corpora) -> None:
    ranks = []
    for index in range(16):
        sample = RULER["qa_1"].sample(4096, index, seed=0, tokenizer=formatter(), corpora=published)
        assert sample.rank is not None
        ranks.append(sample.rank[0] / (sample.rank[1] - 1))
    assert min(ranks) < 0.25
    assert max(ranks) > 0.75
