"""The scores of simple solvers on the archive's long documents and summaries."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from longctx.fixtures.corpora.schema import DocumentQuestion
from longctx.fixtures.corpora.synthetic.archive import archive_set
from longctx.fixtures.corpora.synthetic.chronicle_questions import FEWEST_PARAGRAPHS, SETTING_OF, _plot_questions
from longctx.fixtures.corpora.synthetic.chronicles import Chronicle
from longctx.fixtures.corpora.synthetic.keyed_random import KeyedRandom
from longctx.fixtures.corpora.synthetic.sentences import FormFields, data_file, date_form
from longctx.fixtures.corpora.synthetic.summaries import _make_plot
from longctx.fixtures.scoring.synthetic import split_sentences, summary_score, tells
from longctx.fixtures.words import contains_words
from tests.helpers.solvers import share

# About 4K tokens.
PARAGRAPHS = 32
KINDS = data_file("summary_events")


@pytest.fixture(scope="module")
def documents() -> dict[str, list[DocumentQuestion]]:
    return {
        name: [archive_set(name).question(i, PARAGRAPHS) for i in range(60)]
        for name in ("narrativeqa", "infbench_qa", "infbench_mc")
    }


@pytest.mark.parametrize("name", ["narrativeqa", "infbench_qa", "infbench_mc"])
def test_the_evidence_of_a_document_states_the_answer(name: str, documents: dict[str, list[DocumentQuestion]]) -> None:
    """An oracle reads the paragraphs of the evidence, one of which states a form of the answer."""
    for index, question in enumerate(documents[name]):
        text = re.sub(r"(?m)^(?:Chapter|Log of the fleet|Letters, bundle).*\n\n", "", question.document)
        paragraphs = text.split("\n\n")
        assert len(paragraphs) == PARAGRAPHS
        evidence = [paragraphs[round(depth * (PARAGRAPHS - 1))] for depth in question.depths]
        answer = question.answers[-1 if question.options else 0]
        events = Chronicle(f"{name}-{index}", PARAGRAPHS, SETTING_OF[name]).events(PARAGRAPHS)
        people = [event.actor for event in events if event.kind == "arrive" and event.actor]
        forms = next((person.forms for person in people if person.name == answer), (answer,))
        assert any(contains_words(paragraph, form) for paragraph in evidence for form in forms), question.question
        assert not contains_words(question.question, answer)


def test_the_state_that_a_landmark_dates_does_not_change_in_its_paragraph() -> None:
    """Replaying the events gives the same owner or home before and after the landmark's paragraph."""
    for index in range(6):
        events = Chronicle(f"replay-{index}", 200, tuple(SETTING_OF.values())[index % 3]).events(200)
        marks = {event.thing: event.paragraph for event in events if event.kind == "landmark"}
        questions = _plot_questions(events, KeyedRandom(index))
        dated = [question for question in questions if question.kind in ("owner_at", "place_at")]
        assert len(dated) > 50
        for question in dated:
            fields = dict(question.fields)
            at = marks[fields["landmark"]]
            for end in (at, at + 1):
                state = ""
                for event in (event for event in events if event.paragraph < end):
                    if question.kind == "owner_at" and event.thing == fields["thing"]:
                        owner = {"find": event.actor, "give": event.recipient}.get(event.kind)
                        state = owner.name if owner else ""
                    elif question.kind == "place_at" and event.actor and event.actor.name == fields["who"]:
                        state = (
                            event.town if event.kind in ("arrive", "move") else "" if event.kind == "leave" else state
                        )
                assert state == question.answers[0]


def test_options_are_four_different_ones_that_stand_in_the_text(documents: dict[str, list[DocumentQuestion]]) -> None:
    letters = Counter(question.answers[0] for question in documents["infbench_mc"])
    assert set(letters) == set("ABCD")
    assert max(letters.values()) <= 30
    for question in documents["infbench_mc"]:
        assert len(set(question.options)) == 4
        assert question.options["ABCD".index(question.answers[0])] == question.answers[1]
        assert all(option in question.document for option in question.options)


@pytest.mark.parametrize("paragraphs", [PARAGRAPHS, 160])
def test_evidence_is_spread_over_the_whole_document(paragraphs: int) -> None:
    questions = [archive_set("narrativeqa").question_without_document(i, paragraphs) for i in range(60)]
    depths = [min(question.depths) for question in questions]
    assert share([depth >= 0.75 for depth in depths]) <= 0.4
    assert all(share([low <= depth < low + 0.25 for depth in depths]) >= 0.08 for low in (0, 0.25, 0.5, 0.74))


def test_a_longer_document_begins_like_a_shorter_one() -> None:
    documents = archive_set("infbench_qa")
    short, long = (documents.question(3, count).document for count in (FEWEST_PARAGRAPHS, 60))
    assert long.startswith(short)
    assert documents.question(3, 60) == documents.question(3, 60)


def test_a_question_is_the_same_before_and_after_its_document_is_written() -> None:
    documents = archive_set("infbench_mc")
    without = documents.question_without_document(1, 30)
    assert without == replace(documents.question(1, 30), document="")
    assert without == documents.question_without_document(1, 30)
    # One chronicle plans its events first and writes its text afterwards.
    written, planned = (Chronicle("planned", 40, "village") for _ in range(2))
    assert planned.events(20)
    assert written.paragraphs[:5] == planned.paragraphs[:5]
    assert written.events(20) == planned.events(20)


@pytest.mark.parametrize("name", ["infbench_sum", "multi_lexsum"])
def test_summaries_are_scored_exactly(name: str) -> None:
    """The ideal summary scores 1; an empty one, the beginning, the last quarter and one with false years do not."""
    lead, last, false = [], [], []
    for index in range(12):
        case = archive_set(name).case(index, PARAGRAPHS)

        def value(text: str) -> float:
            return summary_score(text, case.events, case.record).value  # noqa: B023  # called in this round only

        assert value(case.summary) == 1
        assert value("This is a long text about people and towns. Many things happen in it.") == 0
        paragraphs = case.document.split("\n\n")
        sentences = split_sentences(" ".join(paragraphs[: len(paragraphs) // 4]))
        lead.append(value(" ".join(sentences[:10])))
        tail = " ".join(paragraphs[-len(paragraphs) // 4 :])
        known = [point for point in case.key_points if any(re.findall(r"\d{4}", point)[-1] in part for part in (tail,))]
        last.append(value(" ".join(known)))
        false.append(
            value(re.sub(r"\b(1[67])(\d\d)\b", lambda year: f"{year[1]}{(int(year[2]) + 5) % 100:02}", case.summary))
        )
    assert sum(lead) / len(lead) < 0.4
    assert sum(last) / len(last) < 0.6
    assert sum(false) / len(false) < 0.2


@pytest.mark.parametrize("genre", ["saga", "lawsuit"])
def test_every_form_of_a_major_event_tells_it_with_its_date(genre: str) -> None:
    name = "infbench_sum" if genre == "saga" else "multi_lexsum"
    seen = set()
    for index in range(40):
        for major in _make_plot(genre, name, index).majors:
            seen.add(major.event.id.partition("-")[2])
            year, month, day = major.date
            assert tells(major.key_point, major.event)
            for number, form in enumerate(major.forms):
                when = date_form(year, KeyedRandom(index, number), month, day)
                given = {**major.given, "year": str(year), "when": when}
                sentence = FormFields(KeyedRandom(index, number), given).write(form)
                assert tells(sentence, major.event), sentence
                assert major.given["place"] in sentence
                assert not tells(sentence.replace(major.given["place"], "town").replace(str(year), ""), major.event)
    assert seen == {kind["name"] for kind in KINDS[genre]}
    assert len(seen) >= 25


def test_nobody_acts_in_prison_in_exile_or_after_death() -> None:
    for index in range(60):
        states: dict[str, str] = {}
        for major in _make_plot("saga", "infbench_sum", index).majors:
            kind = next(kind for kind in KINDS["saga"] if kind["name"] == major.event.id.partition("-")[2])
            for role in (role for role in "xy" if role in major.given):
                assert states.get(major.given[role], "free") == kind.get("needs", {}).get(role, "free")
            states |= {major.given[role]: state for role, state in kind.get("then", {}).items()}


@pytest.mark.parametrize(("month", "day"), [(1, 3), (11, 9), (6, 20)])
def test_all_forms_of_a_date_agree(month: int, day: int) -> None:
    forms = {date_form(1700, KeyedRandom(number), month, day) for number in range(60)}
    ordinals = {word for form in forms for word in re.findall(r"the (\w+) of [A-Z]", form)}
    assert {int(number) for form in forms for number in re.findall(r"\b\d{1,2}\b", form)} == {day}
    assert ordinals == ({3: {"third"}, 9: {"ninth"}}.get(day, set()))


@pytest.mark.parametrize("paragraphs", [12, 40, 300])
def test_major_events_are_spread_over_the_whole_of_a_case(paragraphs: int) -> None:
    case = archive_set("multi_lexsum").case(1, paragraphs)
    text = re.sub(r"(?m)^[^.]*\n\n", "", case.document)
    assert len(case.key_points) == len(case.events) == 8
    assert {event.id for event in case.events} <= {event.id for event in case.record}
    years = [event.years[0] for event in case.events]
    places = [text.find(year) / len(text) for year in years]
    assert places == sorted(places)
    assert places[0] < 0.2
    assert places[-1] > 0.75
