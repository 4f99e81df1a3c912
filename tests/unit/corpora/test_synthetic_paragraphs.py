"""RULER's questions over the archive: every answer is evidence in the last gold paragraph, two hops need both."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from random import Random

import pytest

from fixtures.corpora.qa import Question, QuestionSet
from fixtures.corpora.synthetic import paragraph_questions
from fixtures.corpora.synthetic.bm25 import Bm25Index
from fixtures.corpora.synthetic.entities import Entity, World
from fixtures.corpora.synthetic.paragraph_questions import one_hop_paragraphs, two_hop_paragraphs
from fixtures.corpora.synthetic.passages import passage
from fixtures.scoring.match import contains_words
from fixtures.tasks import TASKS
from tests.helpers.paths import REPOSITORY
from tests.helpers.solvers import first_of_type
from tests.helpers.tiny_tokenizers import GENERATED, formatter

WORLD = World(0)
DIGEST = """
import hashlib
from fixtures.corpora.synthetic.paragraph_questions import one_hop_paragraphs, two_hop_paragraphs
one, two = one_hop_paragraphs(3), two_hop_paragraphs(3)
print(hashlib.sha256(repr((one.paragraphs[:50], one.questions[:50], two.questions[:50])).encode()).hexdigest())
"""


@pytest.fixture(params=[one_hop_paragraphs, two_hop_paragraphs], ids=["one hop", "two hops"])
def questions(request: pytest.FixtureRequest) -> QuestionSet:
    """Each of the sets; they are built on first use, not while tests are collected."""
    built = request.param(0)
    assert isinstance(built, QuestionSet)
    return built


def some(questions: QuestionSet, count: int) -> list[Question]:
    return Random(0).sample(questions.questions, count)


def ref_of(question: Question) -> Entity:
    """Whom or what a question names."""
    kind, _, index = question.id.partition(".")[0].partition("-")
    return Entity(kind, int(index))


def stated(question: Question, text: str) -> bool:
    return any(contains_words(text, form) for form in question.answers)


def test_there_is_enough_for_a_million_tokens(questions: QuestionSet) -> None:
    assert questions.source == "archive"
    assert questions.left_out == 0
    assert len(set(questions.paragraphs)) == len(questions.paragraphs)
    assert sum(len(paragraph) for paragraph in questions.paragraphs) > 1.1 * 4.2 * 2**20
    assert len({question.question for question in questions.questions}) == len(questions.questions) >= 9000
    assert len({question.id for question in questions.questions}) == len(questions.questions)


def test_gold_paragraphs_are_known_before_the_question(questions: QuestionSet) -> None:
    assert questions.golds is not None
    assert all(questions.gold(at) == question.gold for at, question in enumerate(questions.questions))


def test_the_answer_stands_in_the_last_gold_paragraph_and_not_in_the_question(questions: QuestionSet) -> None:
    for question in some(questions, 2000):
        assert stated(question, questions.paragraphs[question.gold[-1]]), question
        assert not stated(question, question.question), question


def test_one_hop_names_whom_its_paragraph_is_about() -> None:
    questions = one_hop_paragraphs(0)
    for question in some(questions, 1000):
        (gold,) = question.gold
        name = WORLD.name(ref_of(question)).lower()
        assert name in question.question.lower()
        assert name in questions.paragraphs[gold].lower()


def test_two_hops_need_both_paragraphs() -> None:
    """The first names the person and, but for a book out in its author's last year, no answer; the second no work."""
    questions = two_hop_paragraphs(0)
    told_at_once = 0
    for question in some(questions, 1000):
        work, person = (questions.paragraphs[place] for place in question.gold)
        name, maker = WORLD.name(ref_of(question)), WORLD.name(WORLD.maker(ref_of(question)))
        assert name in question.question
        assert name.lower() in work.lower()
        assert name not in person
        assert maker not in question.question
        assert maker in work
        assert maker in person
        told_at_once += stated(question, work)
    assert told_at_once <= 10


def test_every_subject_has_a_namesake_in_the_pool() -> None:
    questions = one_hop_paragraphs(0)
    everything = frozenset(map(ref_of, questions.questions))
    assert len(everything) == len(questions.paragraphs)
    assert all(not everything.isdisjoint(WORLD.namesakes(entity)) for entity in everything)


def test_paragraphs_are_those_of_the_archive() -> None:
    questions = two_hop_paragraphs(0)
    for question in some(questions, 50):
        work = ref_of(question)
        golds = [passage(WORLD, entity).text for entity in (work, WORLD.maker(work))]
        assert [questions.paragraphs[place] for place in question.gold] == golds


def test_the_question_sets_share_one_pool_and_are_built_once() -> None:
    assert one_hop_paragraphs(0) is one_hop_paragraphs(0)
    assert one_hop_paragraphs(0).paragraphs is two_hop_paragraphs(0).paragraphs


def test_a_question_words_no_more_than_its_own_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sample of a run does not wait for the whole pool."""
    worded: list[Entity] = []

    def counted(world: World, entity: Entity) -> object:
        worded.append(entity)
        return passage(world, entity)

    monkeypatch.setattr(paragraph_questions, "passage", counted)
    questions = two_hop_paragraphs(11)
    asked = questions.questions[4321]
    assert worded == []
    assert all(questions.paragraphs[place] for place in asked.gold)
    assert len(worded) == 2


def test_the_pool_does_not_depend_on_the_process() -> None:
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run([sys.executable, "-c", DIGEST], env=env, capture_output=True, check=True, text=True)
    one, two = one_hop_paragraphs(3), two_hop_paragraphs(3)
    here = repr((one.paragraphs[:50], one.questions[:50], two.questions[:50]))
    assert run.stdout.strip() == sha256(here.encode()).hexdigest()


def test_who_sees_no_context_scores_at_chance(questions: QuestionSet) -> None:
    """The best constant answer: what is most often right for half of the questions, tried on the others."""
    asked = some(questions, 800)
    forms = Counter(form for question in asked[:400] for form in question.answers)
    guess = " ".join(form for form, _ in forms.most_common(3))
    assert sum(stated(question, guess) for question in asked[400:]) / 400 <= 0.1


@pytest.mark.parametrize(("task", "most"), [("qa_1", 0.8), ("qa_2", 0.3)])
def test_a_word_matcher_stays_under_the_oracle(task: str, most: float) -> None:
    """The first name or year of the paragraph that shares most words with the question."""
    right = []
    for index in range(40):
        found = TASKS[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=GENERATED)
        texts = re.split(r"(?:^|\n\n)Document \d+:\n", found.context)[1:]
        (best,) = Bm25Index(texts).search(found.question, 1)
        right.append(TASKS[task].score(found, first_of_type(found.question, texts[best])).value)
    assert sum(right) / len(right) <= most


@pytest.mark.parametrize("task", ["qa_1", "qa_2"])
def test_who_sees_the_last_quarter_loses_what_stands_before_it(task: str) -> None:
    def seen(index: int) -> bool:
        found = TASKS[task].sample(4096, index, seed=0, tokenizer=formatter(), corpora=GENERATED)
        return any(contains_words(found.context[-len(found.context) // 4 :], form) for form in found.references)

    assert 0.12 <= sum(map(seen, range(100))) / 100 <= 0.38
