"""RULER's questions over the archive: the last gold paragraph states the answer, and two hops need both."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from longctx.fixtures.corpora.schema import ParagraphQuestion, ParagraphQuestions
from longctx.fixtures.corpora.synthetic.passage_questions import (
    _Bm25Index,
    one_hop_paragraphs,
    two_hop_paragraphs,
)
from longctx.fixtures.corpora.synthetic.world import Entity, World
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.words import contains_words
from tests.helpers.solvers import first_of_type
from tests.helpers.tiny_tokenizers import GENERATED, formatter

WORLD = World(0)


@pytest.fixture(params=[one_hop_paragraphs, two_hop_paragraphs], ids=["one hop", "two hops"])
def questions(request: pytest.FixtureRequest) -> ParagraphQuestions:
    """One of the sets, built on first use rather than while tests are collected."""
    built = request.param(0)
    assert isinstance(built, ParagraphQuestions)
    return built


def sample(questions: ParagraphQuestions, count: int) -> list[ParagraphQuestion]:
    return Random(0).sample(questions.questions, count)


def subject_of(question: ParagraphQuestion) -> Entity:
    """Return the entity that a question names."""
    kind, _, index = question.id.partition(".")[0].partition("-")
    return Entity(kind, int(index))


def answers(text: str, question: ParagraphQuestion) -> bool:
    return any(contains_words(text, form) for form in question.answers)


@pytest.mark.whole_loop
def test_there_is_enough_for_a_million_tokens(questions: ParagraphQuestions) -> None:
    assert questions.source == "archive"
    assert questions.left_out == 0
    assert len(set(questions.paragraphs)) == len(questions.paragraphs)
    assert sum(len(paragraph) for paragraph in questions.paragraphs) > 1.1 * 4.2 * 2**20
    assert len({question.question for question in questions.questions}) == len(questions.questions) >= 9000
    assert len({question.id for question in questions.questions}) == len(questions.questions)


def test_the_answer_stands_in_the_last_gold_paragraph_and_not_in_the_question(questions: ParagraphQuestions) -> None:
    for question in sample(questions, 2000):
        assert answers(questions.paragraphs[question.gold[-1]], question), question
        assert not answers(question.question, question), question


def test_one_hop_names_the_subject_of_its_paragraph() -> None:
    questions = one_hop_paragraphs(0)
    for question in sample(questions, 1000):
        (gold,) = question.gold
        name = WORLD.name(subject_of(question)).lower()
        assert name in question.question.lower()
        assert name in questions.paragraphs[gold].lower()


def test_two_hops_need_both_paragraphs() -> None:
    """The first paragraph names the person but hardly ever the answer; the second does not name the work."""
    questions = two_hop_paragraphs(0)
    # A book may appear in the year of its author's death.
    answered_at_once = 0
    for question in sample(questions, 1000):
        work, person = (questions.paragraphs[place] for place in question.gold)
        name, maker = WORLD.name(subject_of(question)), WORLD.name(WORLD.maker(subject_of(question)))
        assert name in question.question
        assert name.lower() in work.lower()
        assert name not in person
        assert maker not in question.question
        assert maker in work
        assert maker in person
        answered_at_once += answers(work, question)
    assert answered_at_once <= 10


def test_the_best_constant_answer_scores_at_chance(questions: ParagraphQuestions) -> None:
    """The constant answer is the one that is most often right for half of the questions, tried on the others."""
    questions_ = sample(questions, 800)
    forms = Counter(form for question in questions_[:400] for form in question.answers)
    guess = " ".join(form for form, _ in forms.most_common(3))
    assert sum(answers(guess, question) for question in questions_[400:]) / 400 <= 0.1


@pytest.mark.parametrize(("task", "most"), [("qa_1", 0.8), ("qa_2", 0.3)])
def test_a_word_matcher_scores_below_the_oracle(task: str, most: float) -> None:
    """The matcher answers with the first name or year of the paragraph that BM25 ranks first."""
    right = []
    for index in range(40):
        sample = TASKS[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=GENERATED)
        texts = re.split(r"(?:^|\n\n)Document \d+:\n", sample.context)[1:]
        (best,) = _Bm25Index(texts).search(sample.question, 1)
        right.append(TASKS[task].score(sample, first_of_type(sample.question, texts[best])).value)
    assert sum(right) / len(right) <= most


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_the_last_quarter_of_the_context_answers_about_a_quarter_of_the_questions(task: str) -> None:
    def answered(index: int) -> bool:
        sample = TASKS[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=GENERATED)
        return any(contains_words(sample.context[-len(sample.context) // 4 :], form) for form in sample.references)

    assert 0.12 <= sum(map(answered, range(100))) / 100 <= 0.38
