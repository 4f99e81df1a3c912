"""The generated world: every answer is evidence in one place, and two hops need two paragraphs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from itertools import pairwise, product
from pathlib import Path
from random import Random

import pytest

from fixtures.corpora import QuestionSet, world
from fixtures.corpora.names import Apart
from fixtures.corpora.slots import entries, parse_slots

REPOSITORY = Path(__file__).parents[1]
ENTITIES = world._entities
DIGEST = """
import hashlib
from fixtures.corpora import world
print(hashlib.sha256(repr((world.generated_single_hop(), world.generated_two_hop())).encode()).hexdigest())
"""


@pytest.fixture(params=[world.generated_single_hop, world.generated_two_hop], ids=["one hop", "two hops"])
def questions(request: pytest.FixtureRequest) -> QuestionSet:
    """Each of the generated sets; they are built on first use, not while tests are collected."""
    built = request.param()
    assert isinstance(built, QuestionSet)
    return built


def about(question: str) -> str:
    """Whom or what a question names: two names in capitals."""
    (name,) = re.findall(r"(?<= )[A-Z]\w+ (?:& )?[A-Z]\w+", question)
    return str(name)


def test_there_is_enough_for_long_contexts(questions: QuestionSet) -> None:
    assert questions.source == "archive"
    assert questions.left_out == 0
    assert len(set(questions.paragraphs)) == len(questions.paragraphs) >= 2000
    assert len({question.question for question in questions.questions}) == len(questions.questions) >= 2000
    assert len({question.id for question in questions.questions}) == len(questions.questions)
    assert all(80 <= len(paragraph.split()) <= 130 for paragraph in questions.paragraphs)


def test_the_answer_stands_in_the_last_gold_paragraph(questions: QuestionSet) -> None:
    for question in questions.questions:
        assert len(question.answers) == 1
        assert question.answers[0] in questions.paragraphs[question.gold[-1]], question


def test_every_fact_has_an_answer_of_its_own() -> None:
    answers = [question.answers[0].lower() for question in world.generated_single_hop().questions]
    assert len(set(answers)) == len(answers)


def test_the_answer_stands_nowhere_else(questions: QuestionSet) -> None:
    """By containment, as outputs are scored. A part of the questions: each one searches a whole world."""
    everything = "\n".join(questions.paragraphs).lower()
    for question in Random(0).sample(questions.questions, 400):
        assert everything.count(question.answers[0].lower()) == 1, question


def test_the_answer_stands_nowhere_else_word_by_word(questions: QuestionSet) -> None:
    """All questions, by the words of the answer in a row."""
    places: Counter[str] = Counter()
    for paragraph in questions.paragraphs:
        words = re.findall(r"\w+", paragraph.lower())
        places.update({" ".join(words[i : i + n]) for n in range(1, 5) for i in range(len(words))})
    for question in questions.questions:
        assert places[question.answers[0].lower()] == 1, question


def test_the_question_does_not_give_the_answer(questions: QuestionSet) -> None:
    for question in questions.questions:
        assert question.answers[0].lower() not in question.question.lower()


def test_one_hop_names_whom_its_paragraph_is_about() -> None:
    questions = world.generated_single_hop()
    for question in questions.questions:
        (gold,) = question.gold
        assert about(question.question) in questions.paragraphs[gold].partition(".")[0]


def test_two_hops_need_both_paragraphs() -> None:
    """The first names the person and not the answer, the second the answer and not the firm or vessel."""
    questions = world.generated_two_hop()
    people = {one.gold[0]: about(one.question) for one in world.generated_single_hop().questions}
    for question in questions.questions:
        link, person = (questions.paragraphs[place] for place in question.gold)
        name = about(question.question)
        assert name in link
        assert name not in person
        assert question.answers[0].lower() not in link.lower()
        assert people[question.gold[1]] in link
        assert people[question.gold[1]] in person
        assert people[question.gold[1]] not in question.question


def test_a_firm_or_vessel_is_named_in_one_paragraph() -> None:
    questions = world.generated_two_hop()
    everything = "\n".join(questions.paragraphs).lower()
    for question in Random(1).sample(questions.questions, 300):
        name = about(question.question)
        assert sum(name in paragraph for paragraph in questions.paragraphs) == 1
        assert everything.count(name.lower()) == 1, "also as something else, such as a thing of that name"


def test_paragraphs_are_plain_prose(questions: QuestionSet) -> None:
    for paragraph in questions.paragraphs:
        assert re.fullmatch(r"[A-Z][A-Za-z,.&' ]+\.", paragraph), paragraph
        assert "  " not in paragraph
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou]|[.] [a-z]|,,|,\.", paragraph), paragraph


def test_the_question_sets_share_one_pool_and_are_built_once() -> None:
    assert world.generated_single_hop() is world.generated_single_hop()
    assert world.generated_single_hop().paragraphs is world.generated_two_hop().paragraphs


def test_a_question_words_no_more_than_its_own_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sample of a run does not wait for the whole world."""
    worded: list[int] = []

    def entities(place: int) -> tuple[world.Entity, world.Entity]:
        worded.append(place)
        return ENTITIES(place)

    monkeypatch.setattr(world, "_entities", entities)
    questions = world.generated_two_hop.__wrapped__()
    asked = questions.questions[4321]
    assert set(worded) == {asked.gold[1]}
    assert asked == world.generated_two_hop().questions[4321]
    worded.clear()
    assert len(questions.questions[10:14]) == 4
    assert len(set(worded)) == 2


def test_the_world_does_not_depend_on_the_process() -> None:
    run = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=True,
        text=True,
    )
    here = repr((world.generated_single_hop(), world.generated_two_hop()))
    assert run.stdout.strip() == sha256(here.encode()).hexdigest()


def test_names_apart_neither_contain_nor_repeat_one_another() -> None:
    drawn = iter(["Harrow", "Harrow", "Harrowgate", "arrow", "Garrowby", "Bygar"])
    stream = Apart().stream(lambda: next(drawn))
    assert [next(stream) for _ in range(3)] == ["Harrow", "Garrowby", "Bygar"]


def test_names_of_one_world_are_apart_across_kinds() -> None:
    answers = sorted(question.answers[0].lower() for question in world.generated_single_hop().questions)
    assert not any(longer.startswith(shorter) for shorter, longer in pairwise(answers))


def test_the_halves_of_a_slot_share_nothing() -> None:
    slots = parse_slots({"tool": "awl, hammer,\n rasp, adze, oar"})
    assert slots["tool"] == ("awl", "hammer", "rasp", "adze", "oar")
    assert set(entries("tool1", slots)) | set(entries("tool2", slots)) == set(slots["tool"])
    assert all(one != other for one, other in product(entries("tool1", slots), entries("tool2", slots)))
    assert entries("A_tool1", slots) == ("An awl", "A rasp", "An oar")
    with pytest.raises(KeyError, match="tools"):
        entries("tools", slots)
