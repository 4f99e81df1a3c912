"""RULER's questions over the archive: the last gold paragraph states the answer, and two hops need both."""

from random import Random

import pytest

from longctx.fixtures.corpora.schema import ParagraphQuestion, ParagraphQuestions
from longctx.fixtures.corpora.synthetic.passage_questions import (
    one_hop_paragraphs,
    two_hop_paragraphs,
)
from longctx.fixtures.corpora.synthetic.world import Entity
from longctx.fixtures.words import contains_words


@pytest.fixture(params=[one_hop_paragraphs, two_hop_paragraphs], ids=["one hop", "two hops"])
def questions(request: pytest.FixtureRequest) -> ParagraphQuestions:
    """One of the sets, built on first use rather than while tests are collected."""
    built = request.param()
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
    assert len(set(questions.paragraphs)) == len(questions.paragraphs)
    assert sum(len(paragraph) for paragraph in questions.paragraphs) > 1.1 * 4.2 * 2**20
    assert len({question.question for question in questions.questions}) == len(questions.questions) >= 9000
    assert len({question.id for question in questions.questions}) == len(questions.questions)


def test_the_answer_stands_in_the_last_gold_paragraph_and_not_in_the_question(questions: ParagraphQuestions) -> None:
    for question in sample(questions, 2000):
        assert answers(questions.paragraphs[question.gold[-1]], question), question
        assert not answers(question.question, question), question


def test_one_hop_names_the_subject_of_its_paragraph() -> None:
    questions = one_hop_paragraphs()
    for question in sample(questions, 1000):
        (gold,) = question.gold
        name = subject_of(question).name.lower()
        assert name in question.question.lower()
        assert name in questions.paragraphs[gold].lower()


def test_two_hops_need_both_paragraphs() -> None:
    """The first paragraph names the person but hardly ever the answer; the second does not name the work."""
    questions = two_hop_paragraphs()
    # A book may appear in the year of its author's death.
    answered_at_once = 0
    for question in sample(questions, 1000):
        work, person = (questions.paragraphs[place] for place in question.gold)
        name, maker = subject_of(question).name, subject_of(question).maker.name
        assert name in question.question
        assert name.lower() in work.lower()
        assert name not in person
        assert maker not in question.question
        assert maker in work
        assert maker in person
        answered_at_once += answers(work, question)
    assert answered_at_once <= 10
