"""Frontier tasks: every answer recounted from the text alone, unique, at a uniform depth; wrong ones by their kind."""

import re
from collections import Counter
from dataclasses import replace
from statistics import mean

import pytest

from longctx.fixtures.records import Sample, Score
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.frontier.counting import subjects
from longctx.fixtures.tasks.frontier.hidden_facts import _associations
from longctx.fixtures.tasks.frontier.suite import people
from tests.helpers.counts import is_even, ranks_of
from tests.helpers.frontier_recounts import ORDINALS, edges_of, gives_answer_once, messages_of
from tests.helpers.tiny_tokenizers import FRONTIER, drafts, make_sample

# One task of every way of placing evidence.
PLACED = (
    "mrcr_2", "graph_parents_shuffled", "ladder_mk_hard", "ladder_mv_hard", "association", "world_one_fact",
    "world_two_arguments", "not_in_text", "ladder_qa_hard",
)  # fmt: skip


def sampled(task: str, index: int = 0) -> Sample:
    return make_sample(task, 4096, index, kind="pieces")


def scored(sample: Sample, text: str) -> Score:
    return TASKS[sample.task].score(sample, text)


# --- all tasks ---


@pytest.mark.parametrize("task", FRONTIER)
def test_the_text_gives_the_answer_once(task: str) -> None:
    for draft in drafts(task, 12, token_budget=700, length=4096):
        assert gives_answer_once(task, draft), draft.question


@pytest.mark.parametrize("task", PLACED)
def test_the_evidence_of_an_answer_stands_at_uniform_depths(task: str) -> None:
    drawn = drafts(task, 60, token_budget=500, length=4096)
    assert is_even(ranks_of(drawn))
    assert mean(depth for draft in drawn for depth in draft.depths) == pytest.approx(0.5, abs=0.12)


# --- graphs ---


@pytest.mark.parametrize("task", [name for name in FRONTIER if name.startswith("graph_")])
def test_a_graph_has_1_to_20_answers_at_the_depths_of_their_edges(task: str) -> None:
    sizes = Counter[int]()
    for draft in drafts(task, 25, token_budget=1200):
        edges = edges_of(draft.context)
        assert len(edges) == draft.context.count("\n") + 1
        assert set(draft.references).isdisjoint((*draft.distractors, re.findall(r"\w{10}", draft.question)[0]))
        for answer, depth in zip(draft.references, draft.depths, strict=True):
            assert answer in edges[round(depth * (len(edges) - 1))]
        sizes[len(draft.references)] += 1
        runs = len(re.findall(r"^(\w+) .*\n(?!\1)", f"{draft.context}\n", re.MULTILINE))
        degree = Counter(source for source, _ in edges).most_common(1)[0][1]
        if degree > 1:
            assert (runs == len({source for source, _ in edges})) is not task.endswith("_shuffled")
    assert len(sizes) > 3
    assert 1 <= min(sizes) <= 3
    assert 6 < max(sizes) <= 20


# --- conversations ---


@pytest.mark.parametrize("instances", [2, 4, 8])
def test_one_request_of_a_conversation_repeats_and_no_other(instances: int) -> None:
    wanted = set()
    for draft in drafts(f"mrcr_{instances}", 12, token_budget=1500, length=4096):
        turns = re.findall(r"^User: (.*)\nAssistant: (.*)$", draft.context, re.MULTILINE)
        [(repeated, times), *others] = Counter(request for request, _ in turns).most_common()
        assert times == instances
        assert {count for _, count in others} == {1}
        assert len({reply for request, reply in turns if request == repeated}) == instances
        wanted.add(re.findall(r"to the (\w+)", draft.question)[0])
    assert min(instances, 4) <= len(wanted) <= instances
    assert wanted <= set(ORDINALS)


def test_an_answer_without_the_code_or_with_another_reply_is_told_apart() -> None:
    sample = sampled("mrcr_4", 1)
    code, replies, wanted = sample.truth
    reply = sample.references[0]
    assert scored(sample, f" {code}{reply}\n").value == 1
    assert (scored(sample, reply).value, scored(sample, reply).parts["ratio"]) == (0, 1)
    half = scored(sample, code + reply[: len(reply) // 2])
    assert 0.6 < half.value < 0.7
    assert half.failure == "incomplete"
    other = (wanted + 1) % 4
    wrong = scored(sample, code + replies[other])
    assert (wrong.failure, wrong.parts["copied"], wrong.parts["wanted"]) == (
        "wrong instance", other + 1, wanted + 1,
    )  # fmt: skip
    assert wrong.value < 0.3


# --- ladders ---


@pytest.mark.parametrize("task", [name for name in FRONTIER if name.startswith("ladder_m")])
def test_every_number_of_a_ladder_has_one_item_or_four(task: str) -> None:
    [draft] = drafts(task, 1, token_budget=800, length=4096)
    numbers = Counter(re.findall(r"(?:R|r)ecord (\d{7})", draft.context))
    assert len(numbers) > 3
    assert set(numbers.values()) == {4 if "_mv_" in task else 1}


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


@pytest.mark.parametrize("task", ["ladder_qa_basic", "ladder_qa_easy"])
def test_a_copy_of_the_question_is_no_number_of_a_document(task: str) -> None:
    sample = sampled(task)
    number = sample.references[0]
    asked = replace(sample, question=f"In {number} towns the barges came back.")
    for answer in (f" {number}", f" {number}.", f"{number}\n\nThe text: In", f"Document {number}, which says so"):
        assert scored(asked, answer).value == 1
    for answer in (asked.question, f"In {number} towns", f"{asked.question} Answer: Document", f"In {number} towns.\n"):
        assert scored(asked, answer).value == 0


# --- association ---


def test_a_question_shares_no_word_with_its_needle() -> None:
    common = {"the", "of", "in"}
    for one in _associations():
        words = set(re.findall(r"\w+", one.cue.lower())) - common
        assert words.isdisjoint(re.findall(r"\w+", f"works in {one.city} {one.country}".lower())), one
    assert len({one.cue for one in _associations()}) == 60


def test_the_three_association_tasks_differ_in_the_question_alone() -> None:
    tasks = ("association", "association_far", "association_literal")
    for variants in zip(*(drafts(task, 3, token_budget=400) for task in tasks), strict=True):
        assert len({(draft.context, draft.references, draft.depths) for draft in variants}) == 1
        assert len({draft.question for draft in variants}) == 3


def test_names_say_nothing_about_places() -> None:
    """So a model that never reads the text cannot prefer a name: the same place gets other names in other samples."""
    by_question: dict[str, set[str]] = {}
    for draft in drafts("association", 150, token_budget=0):
        by_question.setdefault(draft.question, set()).update(draft.references)
    repeated = [names for names in by_question.values() if len(names) > 1]
    assert len(repeated) > 20
    assert len(people()) == len(set(people())) == 960


# --- counting ---


@pytest.mark.parametrize("task", ["count_labels", "count_users", "count_dates"])
def test_a_twin_differs_in_the_printed_labels_alone(task: str) -> None:
    pairs = zip(
        drafts(f"{task}_labelled", 15, token_budget=500), drafts(task, 15, token_budget=500), strict=True
    )  # fmt: skip
    for labelled, plain in pairs:
        assert (plain.question, plain.references) == (labelled.question, labelled.references)
        assert "|| Label" not in plain.context
        rows = messages_of(labelled.context)
        assert f"next {len(rows)} lines" in labelled.user_text
        label = next(word for word in re.findall(r"\w+", plain.question) if word in subjects())
        assert 1 <= sum(row[2] == label for row in rows) <= 20


def test_answers_are_read_as_oolong_reads_them() -> None:
    count, user, day = (sampled(f"count_{kind}") for kind in ("labels", "users", "dates"))
    number = int(count.references[0])
    assert scored(count, f"Label: **{number + 1}**").value == 0.75
    assert scored(count, "between 3 and 5").value == 0
    assert scored(count, " ".join(count.context.split()[3:20])).value == 0
    assert scored(user, f"[{user.references[0]}]").value == 1
    month, number_of_day, year = re.findall(r"\w+", day.references[0])
    assert scored(day, f"{number_of_day} {month} {year}").value == 1
    assert scored(day, day.distractors[0]).failure == "distractor"


# --- a small world, and questions without an answer ---


def test_an_answer_counts_if_its_first_sentence_names_one_label() -> None:
    sample = sampled("world_one_fact")
    place, other = sample.references[0], next(one for one in sample.distractors if one in sample.truth)
    assert scored(sample, f"The {place.upper()}. Then the {other}.").value == 1
    assert scored(sample, f"{place} or {other}").failure == "distractor"
    assert scored(sample, f"It was there. The {place}").value == 0


def test_a_quarter_of_the_questions_has_no_answer_in_the_text() -> None:
    drawn = drafts("not_in_text", 200, token_budget=0)
    absent = [draft for draft in drawn if draft.references[1].endswith("The text does not say")]
    assert 30 <= len(absent) <= 70
    letters = Counter(
        re.findall(r"^([A-D])\. The text does not say$", draft.user_text, re.MULTILINE)[0] for draft in drawn
    )
    assert min(letters[letter] for letter in "ABCD") >= 30
    assert [draft.truth[1] for draft in drawn] == [draft in absent for draft in drawn]
    sample = sampled("not_in_text")
    assert set(scored(sample, sample.references[0]).parts) <= {"present", "absent"}
    assert scored(sample, "\n".join((*sample.distractors, sample.references[1]))).value == 0


def test_a_route_scores_the_share_of_lines_before_the_first_error() -> None:
    sample = make_sample("route")
    stops = sample.references
    cases = {
        "\n".join(stops): 1.0,
        "\n".join(f"{number}. {stop}" for number, stop in enumerate(stops, start=1)): 1.0,
        "\n".join(stops[:10]): 0.25,
        "\n".join([*stops[:10], stops[11], *stops[11:]]): 0.25,
        "\n".join(["Here is the route:", *stops]): 0.0,
        ", ".join(stops): 0.0,
    }
    assert {text: FRONTIER["route"].score(sample, text).value for text in cases} == cases
