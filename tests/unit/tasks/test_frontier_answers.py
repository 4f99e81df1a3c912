"""Frontier tasks other than GraphWalks: every answer recounted from the text alone, unique, and at a uniform depth."""

from __future__ import annotations

import re
from collections import Counter
from statistics import mean
from typing import Any

import pytest

from fixtures.preflight import depth_problems
from fixtures.records import Sample, Score
from fixtures.tasks import TASKS
from fixtures.tasks.frontier.association import associations
from fixtures.tasks.frontier.counting import subjects
from fixtures.tasks.frontier.stories import STORIES
from fixtures.tasks.sample_spec import Draft
from tests.helpers.tiny_tokenizers import FRONTIER, drafts, make_sample

COUNT = 60
LADDERS = [name for name in FRONTIER if name.startswith("ladder_m")]
RECORD = re.compile(r"^Record (\d+)\. (.*) Who keeps the (most|fewest) \w+\?$")
CODE = re.compile(r"^The code of record (\d+) is (\d+)\.$")


def sampled(task: str, index: int = 0) -> Sample:
    return make_sample(task, 4096, index, kind="pieces")


def scored(sample: Sample, text: str) -> Score:
    return TASKS[sample.task].score(sample, text)


# --- depths ---


# One task of every way of placing evidence.
PLACED = (
    "mrcr_2", "graph_parents_shuffled", "ladder_mk_hard", "ladder_mv_hard", "association", "world_one_fact",
    "world_two_arguments", "not_in_text",
)  # fmt: skip


@pytest.mark.parametrize("task", PLACED)
def test_the_evidence_of_an_answer_stands_at_uniform_depths(task: str) -> None:
    drawn = drafts(task, COUNT, token_budget=500, length=4096)
    assert depth_problems([draft.rank for draft in drawn if draft.rank is not None]) == []
    assert mean(depth for draft in drawn for depth in draft.depths) == pytest.approx(0.5, abs=0.12)


# --- conversations ---


@pytest.mark.parametrize("instances", [2, 4, 8])
def test_the_wanted_reply_is_the_one_of_its_rank_and_all_other_requests_are_unique(instances: int) -> None:
    wanted = Counter[int]()
    for draft in drafts(f"mrcr_{instances}", 12, token_budget=1500, length=4096):
        turns = re.findall(r"^User: (.*)\nAssistant: (.*)$", draft.context, re.MULTILINE)
        requests = Counter(request for request, _ in turns)
        [(repeated, times), *others] = requests.most_common()
        assert times == instances
        assert {count for _, count in others} == {1}
        ordinal, form, topic = re.findall(r"to the (\w+) (.*) about (.*)\. Do not", draft.question)[0]
        assert repeated == f"Write a {form} about {topic}."
        replies = [reply for request, reply in turns if request == repeated]
        rank = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth").index(ordinal)
        assert (replies[rank],) == draft.references
        assert len(set(replies)) == instances
        wanted[rank] += 1
    assert len(wanted) >= min(instances, 4)


def test_an_answer_without_the_code_or_with_another_reply_is_told_apart() -> None:
    sample = sampled("mrcr_4", 1)
    truth = sample.truth
    assert scored(sample, f" {truth.code}{sample.references[0]}\n").value == 1
    assert scored(sample, sample.references[0]).value == 0
    assert scored(sample, sample.references[0]).parts["ratio"] == 1
    half = scored(sample, truth.code + sample.references[0][: len(sample.references[0]) // 2])
    assert 0.6 < half.value < 0.7
    assert half.failure == "incomplete"
    other = (truth.wanted + 1) % 4
    wrong = scored(sample, truth.code + truth.replies[other])
    assert (wrong.failure, wrong.parts["copied"], wrong.parts["wanted"]) == (
        "wrong instance", other + 1, truth.wanted + 1,
    )  # fmt: skip
    assert wrong.value < 0.3


# --- ladders ---


@pytest.mark.parametrize("task", LADDERS)
def test_a_rung_asks_for_what_the_items_of_its_id_say(task: str) -> None:
    for draft in drafts(task, 8, token_budget=800, length=4096):
        items = draft.context.split("\n\n")
        number = re.findall(r"\d{7}", draft.question)[0]
        own = [item for item in items if re.search(rf"\b{number}\b", item)]
        assert len(own) == (4 if "_mv_" in task else 1)
        if "_mv_" in task:
            assert set(Counter(re.findall(r"(?:R|r)ecord (\d+)", draft.context)).values()) == {4}
        assert expected(task, draft, own) == draft.references


def expected(task: str, draft: Draft, own: list[str]) -> tuple[str, ...]:
    if task.endswith("basic"):
        return tuple(match[2] for item in own if (match := CODE.match(item)))
    if task.endswith("easy"):
        return tuple(own)
    if "_mv_" in task:
        ranks = [
            rank for rank, word in enumerate(("first", "second", "third", "fourth")) if word in draft.question.split()
        ]
        if task.endswith("medium"):
            ranks = ranks[1:] if len(ranks) > 1 else ranks
        return (own[ranks[-1]],)
    match = RECORD.match(own[0])
    assert match is not None
    counts = {name: int(count) for name, count in re.findall(r"(\w+) keeps (\d+)", match[2])}
    assert len(counts) == 4
    return ((max if match[3] == "most" else min)(counts, key=counts.__getitem__),)


def test_the_second_step_alone_is_scored() -> None:
    sample = sampled("ladder_mk_medium")
    name, other = sample.references[0], sample.distractors[0]
    record = "Record 1. somebody"
    assert scored(sample, f"{record}\n\nAnswer: {name}\n\nRecord 2. {other}").value == 1
    assert scored(sample, f"{record}\n\n{name}").value == 1
    assert scored(sample, f"{name}\n\nAnswer: {other}").value == 0
    assert scored(sample, name).value == 0
    ranked = sampled("ladder_mv_hard")
    assert scored(ranked, ranked.distractors[0]).failure == "wrong instance"


@pytest.mark.parametrize("task", ["ladder_qa_basic", "ladder_qa_easy"])
def test_the_number_of_a_document_is_that_of_its_text(task: str) -> None:
    for draft in drafts(task, 5, token_budget=800, length=4096):
        texts = dict(re.findall(r"Document (\d+):\n(.*)", draft.context))
        assert len(draft.references) == (1 if task.endswith("basic") else 2)
        assert draft.gold is not None
        for number in draft.references:
            assert texts[number] in draft.gold.evidence_text
            assert task.endswith("easy") or texts[number] == draft.question


# --- association ---


def test_a_question_shares_no_word_with_its_needle_but_the_literal_one_shares_all() -> None:
    common = {"the", "of", "a", "at", "in", "where", "and", "below", "works", "person", "which", "next", "to"}
    for one in associations():
        words = set(re.findall(r"\w+", one.cue.lower())) - common
        assert words.isdisjoint(re.findall(r"\w+", f"{one.city} {one.country}".lower())), one
    assert len(associations()) == len({one.cue for one in associations()}) == 60
    needles = [
        drafts(task, 1, token_budget=600)[0] for task in ("association", "association_far", "association_literal")
    ]
    assert len({(draft.context, draft.references, draft.depths) for draft in needles}) == 1
    assert len({draft.question for draft in needles}) == 3


def test_only_one_person_fits_the_question() -> None:
    by_city: dict[str, Any] = {one.cue: one for one in associations()}
    for draft in drafts("association_far", COUNT, token_budget=100):
        stated = {
            name: by_city[cue] for cue in by_city for name in re.findall(rf"(\w+) {re.escape(cue)}\.", draft.context)
        }
        assert len(stated) == 4
        fitting = [name for name, one in stated.items() if draft.question == f"Which person works in {one.country}?"]
        assert tuple(fitting) == draft.references


# --- counting ---


@pytest.mark.parametrize("task", ["count_labels", "count_users", "count_dates"])
def test_a_count_is_that_of_the_printed_labels(task: str) -> None:
    counts = []
    for draft, plain in zip(
        drafts(f"{task}_labelled", 20, token_budget=600, length=4096),
        drafts(task, 20, token_budget=600, length=4096),
        strict=True,
    ):
        label = next(word for word in draft.question.split() if word.strip(".?") in subjects()).strip(".?")
        rows = [re.split(r" \|\| \w+: ", line.removeprefix("Date: ")) for line in draft.context.splitlines()]
        own = [row for row in rows if row[3] == label]
        assert all("Label" not in line for line in plain.context.splitlines())
        assert (plain.question, plain.references) == (draft.question, draft.references)
        assert f"next {len(rows)} lines" in draft.user_text
        counts.append(len(own))
        if task == "count_labels":
            assert draft.references == (str(len(own)),)
        else:
            [(key, most), (_, second), *_] = Counter(row[task == "count_users"] for row in own).most_common()
            assert most > second
            assert draft.references == (key,)
    assert max(counts) <= 20


def test_no_form_of_a_message_names_a_subject() -> None:
    for forms in subjects().values():
        assert not any(label in form for form in forms for label in subjects())


def test_answers_are_read_as_oolong_reads_them() -> None:
    count, user, day = (sampled(f"count_{kind}") for kind in ("labels", "users", "dates"))
    number = int(count.references[0])
    assert scored(count, f"Label: **{number + 1}**").value == 0.75
    assert scored(count, "between 3 and 5").value == 0
    assert scored(user, f"[{user.references[0]}]").value == 1
    month, number_of_day, year = re.findall(r"\w+", day.references[0])
    assert scored(day, f"{number_of_day} {month} {year}").value == 1
    assert scored(day, day.distractors[0]).failure == "distractor"


# --- a small world ---


def answered(facts: str, question: str) -> str:
    """The answer by a second simulation, which reads the sentences."""
    at: dict[str, str] = {}
    held: dict[str, str] = {}
    seen: dict[str, list[str]] = {}
    for actor, verb, what in re.findall(r"(\w+) (went to|took|dropped) the (\w+)\.", facts):
        if verb == "took":
            held[what] = actor
        elif verb == "dropped":
            del held[what]
        else:
            at[actor] = what
        for thing, holder in held.items():
            places = seen.setdefault(thing, [])
            if places[-1:] != [at[holder]]:
                places.append(at[holder])
    if before := re.fullmatch(r"Where was the (\w+) before the (\w+)\?", question):
        places = seen[before[1]]
        return places[places.index(before[2]) - 1]
    if carried := re.fullmatch(r"Where is the (\w+)\?", question):
        return seen[carried[1]][-1]
    if person := re.fullmatch(r"Where is (\w+)\?", question):
        return at[person[1]]
    fact_of_question = {
        r"What is (?P<way>\w+) of the (?P<place>\w+)\?": r"The (\w+) is {way} of the {place}\.",
        r"What is the (?P<place>\w+) (?P<way>\w+) of\?": r"The {place} is {way} of the (\w+)\.",
        r"Who gave the (?P<thing>\w+) to (?P<to>\w+)\?": r"(\w+) gave the {thing} to {to}\.",
        r"What did (?P<by>\w+) give to (?P<to>\w+)\?": r"{by} gave the (\w+) to {to}\.",
        r"To whom did (?P<by>\w+) give the (?P<thing>\w+)\?": r"{by} gave the {thing} to (\w+)\.",
    }
    for pattern, fact in fact_of_question.items():
        if match := re.fullmatch(pattern, question):
            [answer] = re.findall(fact.format(**match.groupdict()), facts)
            return str(answer)
    raise AssertionError(question)


@pytest.mark.parametrize("task", STORIES)
def test_a_story_answers_its_question_once(task: str) -> None:
    for draft in drafts(task, COUNT, token_budget=100):
        assert (answered(draft.context, draft.question),) == draft.references


def test_an_answer_counts_if_its_first_sentence_names_one_label() -> None:
    sample = sampled("world_one_fact")
    place, other = sample.references[0], next(one for one in sample.distractors if one in sample.truth)
    assert scored(sample, f"The {place.upper()}. Then the {other}.").value == 1
    assert scored(sample, f"{place} or {other}").failure == "distractor"
    assert scored(sample, f"It was there. The {place}").value == 0


# --- lists, and questions without an answer ---


def test_a_list_is_what_python_makes_of_the_statements() -> None:
    kinds = Counter[str]()
    for draft in drafts("latent_list", COUNT, token_budget=100):
        names: dict[str, Any] = {}
        for line in draft.context.splitlines():
            if line.startswith("items"):
                exec(line, {}, names)  # statements of our own
        assert str(eval(draft.question, {}, names)) == draft.references[0]  # the same
        kinds[draft.question[:4]] += 1
    assert len(kinds) == 3


def test_the_option_without_an_answer_is_right_when_the_text_tells_nothing() -> None:
    absent = 0
    for draft in drafts("not_in_text", 200, token_budget=100):
        person = re.findall(r"does (\w+) live", draft.question)[0]
        towns = re.findall(rf"{person} lives in (\w+)\.", draft.context)
        assert person in draft.context
        text = draft.references[1].partition(". ")[2]
        assert towns == ([] if draft.truth.is_absent else [text])
        assert (text == "The text does not say") is draft.truth.is_absent
        absent += draft.truth.is_absent
    assert 30 <= absent <= 70
    sample = sampled("not_in_text")
    assert set(scored(sample, sample.references[0]).parts) <= {"present", "absent"}
    assert scored(sample, "\n".join((*sample.distractors, sample.references[1]))).value == 0
