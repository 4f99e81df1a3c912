"""Samples of the published essays and questions, where the files are at hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.corpora.schema import ParagraphQuestion
from tests.helpers.tiny_tokenizers import RULER, formatter


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
