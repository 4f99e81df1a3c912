"""HELMET's tasks on the published files, where they are at hand: samples are sound and the right answer scores 1."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.preflight import fill_ratio, sample_problems
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import Assistants
from tests.helpers.paths import REPOSITORY
from tests.helpers.tiny_tokenizers import formatter

LENGTH = 8192
BY_RULE = (
    "nq", "popqa", "hotpotqa", "msmarco", "json_kv", "trec_coarse", "trec_fine", "banking77", "clinc150", "nlu",
)  # fmt: skip


@pytest.fixture(scope="module")
def published() -> Corpora:
    """The files of LONGCTX_DATA_DIR, or of shared/data beside the repository."""
    places = (os.environ.get("LONGCTX_DATA_DIR"), REPOSITORY.parent / "shared" / "data")
    drawn = [place for place in places if place and Path(place).is_dir()]
    if not drawn:
        pytest.skip("no published data: set LONGCTX_DATA_DIR")
    return load_corpora(drawn[0])


@pytest.mark.parametrize("name", BY_RULE)
def test_published_samples_are_sound_and_can_be_answered(name: str, published: Corpora) -> None:
    if published.sources.get(name) != "published":
        pytest.skip(f"no files of {name}")
    task = TASKS[name]
    for index in (0, 1, task.group):
        sample = task.sample(LENGTH, index, seed=0, tokenizer=formatter(), corpora=published)
        assert sample.source == "published"
        assert sample_problems(sample, task, formatter()) == []
        assert task.score(sample, task.perfect_answer(sample)).value == 1
        assert task.score(sample, "").value == 0
        assert task.paper_variant.score(sample, task.perfect_answer(sample)).value == 1


def test_published_citations_are_checked_by_entailment(published: Corpora) -> None:
    if published.sources.get("asqa") != "published":
        pytest.skip("no files of asqa")
    task = TASKS["asqa"]
    assert task.assisted_grade is not None
    sample = task.sample(LENGTH, 0, seed=0, tokenizer=formatter(), corpora=published)
    assert sample_problems(sample, task, formatter()) == []
    said = f"{' and '.join(sample.references)} [1]."
    pairs: list[tuple[str, str]] = []

    def entails(premise: str, claim: str) -> bool:
        pairs.append((premise, claim))
        return True

    score = task.assisted_grade(sample, said, Assistants(entails=entails))
    assert score.parts == {"correct": 1.0, "citation recall": 1.0, "citation precision": 1.0}
    assert sample.truth.passages[0].text in pairs[0][0]
    none = task.assisted_grade(sample, said, Assistants(entails=lambda premise, claim: False))
    assert none.parts == {"correct": 1.0, "citation recall": 0.0, "citation precision": 0.0}


@pytest.mark.parametrize("name", ["infbench_qa", "infbench_mc"])
def test_a_question_comes_with_as_much_of_a_book_as_fits(name: str, published: Corpora, tmp_path: Path) -> None:
    if "books" not in published.published:
        pytest.skip("no books")
    books = published.collection("books")
    titles = [books[at].title for at in range(3)] + ["The Invented Fourth"]
    file = {"infbench_qa": "longbook_qa_eng.jsonl", "infbench_mc": "longbook_choice_eng.jsonl"}[name]
    lines = [
        {"id": at, "context": books[at].text, "input": "What is the book called?", "answer": [books[at].title]}
        | ({"options": titles} if name == "infbench_mc" else {})
        for at in range(3)
    ]
    (tmp_path / "infbench").mkdir()
    (tmp_path / "infbench" / file).write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    corpora, task = load_corpora(tmp_path), TASKS[name]
    for index in range(3):
        sample = task.sample(LENGTH, index, seed=0, tokenizer=formatter(), corpora=corpora)
        assert sample.source == "published"
        assert sample_problems(sample, task, formatter()) == []
        assert any(books[at].text.startswith(sample.context) for at in range(3))
        assert fill_ratio(sample) >= 0.97
        assert task.score(sample, task.perfect_answer(sample)).value == 1
