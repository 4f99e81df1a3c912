"""The real published files, where they are available: every category can be read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.words import contains_words
from tests.helpers.paths import REPOSITORY

CLASSES = {"trec_coarse": 6, "trec_fine": 50, "banking77": 77, "clinc150": 151, "nlu": 64}
WITH_GOLD = {"nq": 1, "popqa": 1, "hotpotqa": 2, "hotpotqa_demos": 2}


@pytest.fixture(scope="module")
def published() -> Corpora:
    """Return the texts of LONGCTX_DATA_DIR, or of shared/data beside the repository."""
    places = (os.environ.get("LONGCTX_DATA_DIR"), REPOSITORY.parent / "shared" / "data")
    directories = [place for place in places if place and Path(place).is_dir()]
    if not directories:
        pytest.skip("no published data: set LONGCTX_DATA_DIR")
    return load_corpora(directories[0])


def opened(corpora: Corpora, name: str) -> Any:
    data_set = corpora.published_set(name)
    if data_set is None:
        pytest.skip(f"no files of {name}")
    return data_set


def spread_indices(length: int) -> Sequence[int]:
    return range(0, length, max(1, length // 4))


@pytest.mark.parametrize("name", WITH_GOLD)
def test_gold_passages_state_the_answer_and_the_others_do_not(name: str, published: Corpora) -> None:
    questions = opened(published, name)
    for index in spread_indices(len(questions)):
        question = questions[index]
        (forms,) = question.answers
        assert len(question.gold) >= WITH_GOLD[name]
        assert any(contains_words(f"{one.title}\n{one.text}", form) for one in question.gold for form in forms)
        near = [(one.text, form) for one in question.others for form in forms if form.lower() in one.text.lower()]
        assert not any(contains_words(text, form) for text, form in near)
        texts = [passage.text for passage in (*question.gold, *question.others)]
        assert len(set(texts)) == len(texts) > 600


def test_popqa_questions_are_about_little_known_subjects(published: Corpora) -> None:
    questions = opened(published, "popqa")
    assert len(questions) > 300
    assert questions.left_out > 100


def test_cited_questions_have_facets_and_passages(published: Corpora) -> None:
    questions = opened(published, "asqa")
    for index in spread_indices(len(questions)):
        assert len(questions[index].answers) >= 2
        assert len(questions[index].others) > 700
    demos = opened(published, "asqa_demos")
    assert all(len(demos[n].others) == 5 and "[1]" in demos[n].answers[0][0] for n in range(1))


@pytest.mark.parametrize(("name", "highest"), [("msmarco", 3), ("noveleval", 2)])
def test_ranked_passages_have_labels(name: str, highest: int, published: Corpora) -> None:
    queries = opened(published, name)
    seen = set()
    for index in range(0, len(queries), 3):
        query = queries[index]
        assert len({one.id for one in query.passages}) == len(query.labels) >= 300
        seen |= set(query.labels)
    assert seen == set(range(highest + 1))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_all_in_the_training_part(name: str, published: Corpora) -> None:
    labelled = opened(published, name)
    assert len(labelled.labels) == CLASSES[name]
    assert {one.label for one in labelled.train} == set(range(len(labelled.labels)))
    assert len(labelled.test) > 300
    # U+FFFD marks a wrong decoding.
    assert not any("\ufffd" in one.text or one.text != one.text.strip() for one in (*labelled.train, *labelled.test))


def test_books_and_pairs(published: Corpora) -> None:
    books = opened(published, "books")
    assert all(len(books[n].text) > 100_000 and "GUTENBERG EBOOK" not in books[n].text for n in range(len(books)))
    pairs = opened(published, "json_kv")
    assert all(len(pairs[n].pairs) == 75 for n in range(len(pairs)))
