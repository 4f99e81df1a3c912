"""Paragraphs: gold stands once, nothing else answers, and no question answers itself."""

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.records import HAYSTACKS
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.fixtures.words import contains_words
from tests.helpers.published_files import squad
from tests.helpers.tiny_tokenizers import GENERATED, formatter, make_sample, make_samples


def documents_of(context: str) -> list[str]:
    pieces = re.split(r"(?:^|\n\n)Document (\d+):\n", context)
    assert pieces[1::2] == [str(number) for number in range(1, len(pieces[1::2]) + 1)]
    return pieces[2::2]


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_gold_paragraphs_occur_once_and_no_other_contains_the_answer(task: str) -> None:
    questions = GENERATED.data_set("squad") if task == "qa_1" else GENERATED.data_set("hotpot")
    golds = {question.question: question.gold for question in questions.questions}
    for sample in make_samples(task, 6):
        documents = documents_of(sample.context)
        expected = [questions.paragraphs[place] for place in golds[sample.question]]
        assert [documents.count(paragraph) for paragraph in expected] == [1] * len(expected)
        assert len(set(documents)) == len(documents)
        others = [document for document in documents if document not in expected]
        assert not any(contains_words(document, answer) for document in others for answer in sample.references)


def test_samples_on_a_haystack_share_their_paragraphs_in_one_order() -> None:
    """An engine may reuse the paragraphs of one sample for the next. Another haystack has other paragraphs."""
    samples = [make_sample("qa_1", index=3 + HAYSTACKS * turn) for turn in range(6)]
    texts = [documents_of(sample.context) for sample in samples]
    golds = {of[sample.rank[0]] for sample, of in zip(samples, texts, strict=True) if sample.rank}
    for one, other in pairwise(texts):
        common = [text for text in one if text in other and text not in golds]
        assert common == [text for text in other if text in one and text not in golds]
        assert len(common) >= 0.8 * len(one)
    assert not set(texts[0]) & set(documents_of(make_sample("qa_1", index=4).context))


@pytest.fixture
def small_set(tmp_path: Path) -> Corpora:
    """Five paragraphs, too few to fill a context; two state the same answer, one question holds its own."""
    paragraphs = {
        "The mill of Aln burned in spring, and nobody knew why.": ("When did the mill burn?", ["in spring", "spring"]),
        "The bridge of Bryn was built in Spring.": ("When was the bridge built?", ["in Spring"]),
        "The harbour of Dral froze over, as it does in every hard winter.": ("When did it freeze?", ["winter"]),
        "The tower of Eth leans to the north.": ("Does the tower of Eth lean to the north?", ["the north"]),
        "The well of Fyr is forty feet deep.": ("How deep is the well?", ["forty feet", "40 feet"]),
    }
    (tmp_path / "squad.json").write_text(json.dumps(squad(paragraphs)), encoding="utf-8")
    return load_corpora(tmp_path)


def test_gold_occurs_once_in_a_repeated_small_set(small_set: Corpora) -> None:
    seen = set()
    golds = {
        question.question: small_set.data_set("squad").paragraphs[question.gold[0]]
        for question in small_set.data_set("squad").questions
    }
    for index in range(8):
        sample = TASKS["qa_1"].sample(4096, index, seed=0, tokenizer=formatter(), corpora=small_set)
        documents = documents_of(sample.context)
        assert documents.count(golds[sample.question]) == 1
        with_answer = [
            document for document in documents if any(contains_words(document, form) for form in sample.references)
        ]
        # Another paragraph of the article may state the answer too, but only once.
        assert len(with_answer) == len(set(with_answer)) <= 2
        assert len(documents) > 100
        assert 2 <= len(set(documents)) <= 5
        assert 4096 * 0.93 < sample.prompt.length_tokens + 32 <= 4096
        assert sample.source == "published"
        seen.add(sample.question)
    assert len(seen) == 4


def test_a_gold_paragraph_without_the_answer_occurs_once_too(tmp_path: Path) -> None:
    """The first of two hops states no answer, so only its place in the set tells that it is gold."""
    context = [["Mill", ["Ida built the mill."]], ["Ida", ["Ida was born in Aln."]], ["Fog", ["Fog is wet."]]]
    item = {
        "_id": "h",
        "question": "Where was the builder of the mill born?",
        "answer": "Aln",
        "context": context,
        "supporting_facts": [["Mill", 0], ["Ida", 0]],
    }
    (tmp_path / "hotpotqa.json").write_text(json.dumps([item]), encoding="utf-8")
    sample = TASKS["qa_2"].sample(2048, 0, seed=0, tokenizer=formatter(), corpora=load_corpora(tmp_path))
    counts = Counter(documents_of(sample.context))
    assert counts["Mill\nIda built the mill."] == counts["Ida\nIda was born in Aln."] == 1
    assert counts["Fog\nFog is wet."] == counts.total() - 2 > 50


@pytest.mark.parametrize("order", [(0, 5, 2), (30, 2, 5, 0), (5, 5, 0, 2)])
def test_a_question_does_not_depend_on_earlier_samples(small_set: Corpora, order: tuple[int, ...]) -> None:
    """Also where the index is past the last question that fits; four of five do."""
    fresh = PromptFormatter(formatter().tokenizer)

    def question(index: int) -> str:
        draft, _ = TASKS["qa_1"].shortest_draft(1024, index, seed=3, tokenizer=fresh, corpora=small_set)
        return draft.question

    questions = {index: question(index) for index in order}
    alone = [
        TASKS["qa_1"].shortest_draft(1024, index, seed=3, tokenizer=formatter(), corpora=small_set)
        for index in range(4)
    ]
    assert questions == {index: alone[index % 4][0].question for index in order}
    assert len({draft.question for draft, _ in alone}) == 4


def test_a_question_that_contains_its_answer_is_never_used(small_set: Corpora) -> None:
    """To give such a question back would score as an answer."""
    for index in range(12):
        sample = TASKS["qa_1"].sample(1024, index, seed=1, tokenizer=formatter(), corpora=small_set)
        assert "lean" not in sample.question
        assert TASKS["qa_1"].score(sample, f"{sample.question} {sample.answer_prefix}").value == 0
