"""Samples of published essays and questions, from small files in the published layouts."""

import re
from pathlib import Path

import pytest

from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.plugins.runner.samples import sample_problems
from tests.golden.published_data import write_published_data
from tests.helpers.tiny_tokenizers import RULER, formatter

PUBLISHED = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery", "qa_1", "qa_2")
LENGTH = 1024


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("published")
    write_published_data(directory)
    return directory


@pytest.fixture(scope="module")
def published(data_dir: Path) -> Corpora:
    return load_corpora(data_dir)


@pytest.mark.parametrize("task", RULER)
def test_samples_of_published_texts_are_sound(task: str, published: Corpora) -> None:
    for index in range(4):
        sample = RULER[task].sample(LENGTH, index, seed=0, tokenizer=formatter(), corpora=published)
        assert sample_problems(sample, RULER[task], formatter()) == []
        assert sample.source == ("published" if task in PUBLISHED else "archive")


def test_paragraphs_of_the_own_item_come_first(published: Corpora) -> None:
    """RULER's code shows all paragraphs of the item (HotpotQA) or article (SQuAD) before any other."""
    by_text = {question.question: question for question in published.data_set("hotpot").questions}
    for index in range(12):
        sample = RULER["qa_2"].sample(LENGTH, index, seed=0, tokenizer=formatter(), corpora=published)
        question, shown = by_text[sample.question], re.split(r"(?:^|\n\n)Document \d+:\n", sample.context)[1:]
        own = {published.data_set("hotpot").paragraphs[place] for place in {*question.related, *question.gold}}
        assert len(own) == 3
        assert own < set(shown)
        assert len(shown) < len(published.data_set("hotpot").paragraphs) / 2


def test_samples_of_both_fills_never_share_a_key(published: Corpora, data_dir: Path) -> None:
    keys = [
        samples_fingerprint(RULER, corpora, formatter())
        for corpora in (published, load_corpora(data_dir, qa_fill="random"), load_corpora(data_dir, qa_fill="own"))
    ]
    assert keys[0] == keys[2] != keys[1]
