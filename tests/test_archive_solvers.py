"""Solvable and not trivial: what an oracle, a blind guesser, a word matcher and half a memory score on the archive."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from solvers import first_of_type

from fixtures.corpora.archive import (
    case_files,
    classification,
    long_documents,
    passage_questions,
    ranking_questions,
)
from fixtures.corpora.archive.chronicles import Chronicle
from fixtures.corpora.archive.draws import Draws
from fixtures.corpora.archive.entities import Ref, World
from fixtures.corpora.archive.lexical import LexicalIndex
from fixtures.corpora.archive.longqa import FEWEST_PARAGRAPHS, plot_questions
from fixtures.corpora.archive.schemes import SHAPES, scheme_plan
from fixtures.corpora.shapes import DocumentQuestion, Labelled, Passage, PassageQuestion
from fixtures.scoring.facts import Evidence, citation_score, split_items, split_sentences, summary_score
from fixtures.scoring.match import states

WORLD = World(0)
RAG = ("nq", "triviaqa", "popqa", "hotpotqa")
CITED = ("asqa", "qampari")
# Some 4K tokens of passages and of paragraphs.
SHOWN = 30
PARAGRAPHS = 32


def shown(question: PassageQuestion) -> list[Passage]:
    """The gold passages and the best of the others, in random order."""
    others = question.others[: SHOWN - len(question.gold)]
    return Draws(len(question.question)).shuffled([*question.gold, *others])


def is_right(output: str, question: PassageQuestion) -> bool:
    return any(form.lower() in output.lower() for form in question.answers[0])


def ref_of(fact: str) -> tuple[Ref, str]:
    name, _, relation = fact.partition(".")
    kind, _, index = name.partition("-")
    return Ref(kind, int(index)), relation


def share(right: Sequence[bool]) -> float:
    return sum(right) / len(right)


@pytest.fixture(scope="module")
def asked() -> dict[str, list[PassageQuestion]]:
    return {name: [passage_questions(name)[i] for i in range(32)] for name in (*RAG, *CITED)}


@pytest.mark.parametrize("name", RAG)
def test_an_oracle_that_reads_the_fact_base_answers_every_question(
    name: str, asked: dict[str, list[PassageQuestion]]
) -> None:
    for question in asked[name]:
        (facts,) = question.facts
        known = frozenset[str]().union(*(passage.facts for passage in question.gold))
        assert facts <= known
        told = [WORLD.fact(*ref_of(fact)) for fact in facts if not fact.endswith(".byname")]
        if name == "popqa":
            ref, _ = ref_of(next(iter(facts)))
            assert is_right(WORLD.name(ref), question)
            assert told[0].value in question.question
        else:
            assert any(is_right(fact.value, question) for fact in told)


@pytest.mark.parametrize("name", [*RAG, *CITED])
def test_the_gold_passages_alone_state_the_answers(name: str, asked: dict[str, list[PassageQuestion]]) -> None:
    for question in asked[name]:
        everything = " ".join(f"{passage.title} {passage.text}" for passage in question.gold)
        for forms in question.answers:
            assert any(states(everything, form) for form in forms)
            assert not any(states(question.question, form) for form in forms)
            for other in question.others[:SHOWN]:
                assert not any(states(f"{other.title} {other.text}", form) for form in forms)


def test_two_hops_need_both_passages(asked: dict[str, list[PassageQuestion]]) -> None:
    for question in asked["hotpotqa"]:
        work, person = question.gold
        assert work.title.lower().removeprefix("the ") in question.question.lower()
        assert not any(states(work.text, form) for form in question.answers[0])
        assert person.title in work.text
        assert person.title not in question.question
        assert work.title not in person.text


def test_bynames_and_rare_people_are_not_the_titles_of_their_passages(asked: dict[str, list[PassageQuestion]]) -> None:
    for question in asked["triviaqa"]:
        assert question.gold[0].title.lower() not in question.question.lower()
    for question in asked["popqa"]:
        assert question.gold[0].title.lower() not in question.question.lower()


def test_negatives_never_repeat_and_begin_with_namesakes(asked: dict[str, list[PassageQuestion]]) -> None:
    question = asked["nq"][0]
    others = question.others[:400]
    assert len({other.id for other in others} | {question.gold[0].id}) == 401
    assert set(question.gold[0].title.split()) & set(others[0].title.split())
    assert len(question.others) >= 1 << 15
    assert [other.id for other in passage_questions("nq")[0].others[:50]] == [other.id for other in others[:50]]


@pytest.mark.parametrize("name", RAG)
def test_who_sees_no_context_scores_at_chance(name: str, asked: dict[str, list[PassageQuestion]]) -> None:
    """The best constant answer: what is most often right for the other half of the questions."""
    forms = Counter(form for question in asked[name][:16] for form in question.answers[0])
    guess = " ".join(form for form, _ in forms.most_common(3))
    assert share([is_right(guess, question) for question in asked[name][16:]]) <= 0.1


@pytest.mark.parametrize(("name", "most"), [("nq", 0.8), ("triviaqa", 0.8), ("popqa", 0.9), ("hotpotqa", 0.3)])
def test_a_word_matcher_stays_under_the_oracle(name: str, most: float, asked: dict[str, list[PassageQuestion]]) -> None:
    right = []
    for question in asked[name]:
        passages = shown(question)
        texts = [f"{passage.title}. {passage.text}" for passage in passages]
        (best,) = LexicalIndex(texts).search(question.question, 1)
        right.append(is_right(first_of_type(question.question, texts[best]), question))
    assert share(right) <= most


def cite(question: PassageQuestion, passages: list[Passage]) -> str:
    """What the oracle writes: each facet with its cue, cited where it is stated."""
    parts = []
    for claim, facts in zip(question.claims, question.facts, strict=True):
        number = next(i for i, passage in enumerate(passages, start=1) if facts <= passage.facts)
        parts.append(f"{claim.values[0]}{f', of {claim.cues[0]}' if claim.cues else ''} [{number}]")
    return ", ".join(parts) if not question.claims[0].cues else ". ".join(parts) + "."


@pytest.mark.parametrize("name", CITED)
def test_an_oracle_cites_perfectly_and_careless_citing_does_not_pay(
    name: str, asked: dict[str, list[PassageQuestion]]
) -> None:
    split = split_sentences if name == "asqa" else split_items
    careless = []
    for question in asked[name]:
        passages = shown(question)
        evidence = [Evidence(passage.facts, f"{passage.title} {passage.text}") for passage in passages]
        answer = cite(question, passages)
        found = citation_score(split(answer), question.claims, evidence, question.question)
        assert (found.recall, found.precision) == (1, 1), answer
        first = re.sub(r"\[\d+\]", "[1]", answer)
        careless.append(citation_score(split(first), question.claims, evidence, question.question).recall)
        assert 3 <= len(question.claims) <= 6
    assert sum(careless) / len(careless) < 0.3


def ndcg(labels: Sequence[int], of: Sequence[int]) -> float:
    def gain(ranked: Sequence[int]) -> float:
        return sum(label / math.log2(place + 2) for place, label in enumerate(ranked[:10]))

    return gain(labels) / gain(sorted(of, reverse=True))


def test_ranking_is_balanced_and_words_alone_do_not_rank() -> None:
    scores = []
    for index in range(24):
        query = ranking_questions()[index]
        labels, passages = query.labels[:48], query.passages[:48]
        assert Counter(labels) == dict.fromkeys(range(4), 12)
        assert len({passage.text for passage in passages}) == 48
        assert all(60 <= len(passage.text.split()) <= 180 for passage in passages)
        ranked = LexicalIndex([f"{passage.title} {passage.text}" for passage in passages]).search(query.query, 10)
        scores.append(ndcg([labels[place] for place in ranked], labels))
    assert sum(scores) / len(scores) <= 0.6


def test_relevance_is_in_the_passages() -> None:
    """The town and the craft's own words are in what is relevant: a reader can tell the labels apart."""
    for index in range(6):
        query = ranking_questions()[index]
        about = [passage for label, passage in zip(query.labels[:40], query.passages[:40], strict=True) if label >= 2]
        frame = r"^(?:A walk through|The trades of|Notes on) | in former times$"
        (town,) = {re.sub(frame, "", passage.title) for passage in about}
        assert town in query.query
        assert all(town in passage.text for passage in about)


@pytest.mark.parametrize("name", SHAPES)
def test_schemes_are_balanced_distinct_and_as_large_as_they_should_be(name: str) -> None:
    scheme = classification(name)
    classes = {"trec_coarse": 6, "trec_fine": 50, "nlu": 68, "banking77": 77, "clinc150": 151}[name]
    assert len(scheme.labels) == len(set(scheme.labels)) == classes
    assert sorted(shot.label for shot in scheme.train[: 2 * classes]) == sorted([*range(classes)] * 2)
    assert len(scheme.train) >= 100_000
    assert len(scheme.test) >= 500
    texts = {shot.text for shot in (*scheme.train[:3000], *scheme.test[:500])}
    assert len(texts) == 3500


def features(shot: Labelled) -> set[str]:
    """Words without names, and their last two letters."""
    words = re.findall(r"(?<![A-Za-z])[a-z]+", shot.text)
    return {*words, *(f"-{word[-2:]}" for word in words if len(word) > 4)}


@pytest.mark.parametrize(("name", "shots", "least"), [("trec_coarse", 400, 0.7), ("nlu", 1400, 0.5)])
def test_schemes_are_learned_from_examples_and_not_without(name: str, shots: int, least: float) -> None:
    """Naive Bayes over words and endings, against the commonest class."""
    scheme = classification(name)
    seen: defaultdict[int, Counter[str]] = defaultdict(Counter)
    often: Counter[str] = Counter()
    for shot in scheme.train[:shots]:
        seen[shot.label].update(features(shot))
        often.update(features(shot))

    def guess(shot: Labelled) -> int:
        known = [word for word in features(shot) if word in often]

        def likelihood(label: int) -> float:
            counts = seen[label]
            return sum(math.log((counts[word] + 0.2 * often[word] / shots + 1e-3) / often[word]) for word in known)

        return max(sorted(seen), key=likelihood)

    test = scheme.test[:150]
    assert share([guess(shot) == shot.label for shot in test]) >= least
    assert max(Counter(shot.label for shot in test).values()) / len(test) <= 0.2


@pytest.mark.parametrize("name", SHAPES)
def test_the_rule_of_a_scheme_gives_every_label(name: str) -> None:
    """The oracle: which thing is meant, which matter, hence which class."""
    plan = scheme_plan(WORLD, name)
    thing = {noun: group for group, nouns in enumerate(plan.things) for noun in nouns}
    assert len(thing) == sum(map(len, plan.things)), "a thing of two groups"
    for shot in classification(name).test[:300]:
        text = re.sub(r"(Unlike|Next to) the \w+", "", shot.text)
        (noun,) = {word for word in re.findall(r"[a-z]+", text) if word in thing}
        (matter,) = {
            i for i, forms in enumerate(plan.matters) if any(form.lower() in shot.text.lower() for form in forms)
        }
        assert thing[noun] * len(plan.matters) + matter == shot.label, shot


@pytest.fixture(scope="module")
def documents() -> dict[str, list[DocumentQuestion]]:
    return {
        name: [long_documents(name).question(i, PARAGRAPHS) for i in range(60)]
        for name in ("narrativeqa", "infbench_qa", "infbench_mc")
    }


@pytest.mark.parametrize("name", ["narrativeqa", "infbench_qa", "infbench_mc"])
def test_the_evidence_of_a_document_tells_the_answer(name: str, documents: dict[str, list[DocumentQuestion]]) -> None:
    """The oracle reads the paragraphs that the answer rests on: one of its forms stands in the first one or two."""
    for index, question in enumerate(documents[name]):
        text = re.sub(r"(?m)^(?:Chapter|Minutes|From the papers).*\n\n", "", question.document)
        paragraphs = text.split("\n\n")
        assert len(paragraphs) == PARAGRAPHS
        evidence = [paragraphs[round(depth * (PARAGRAPHS - 1))] for depth in question.depths]
        answer = question.answers[-1 if question.options else 0]
        chronicle = long_documents(name).text(index)
        assert isinstance(chronicle, Chronicle)
        cast = [event.who for event in chronicle.happened(PARAGRAPHS) if event.kind == "arrive" and event.who]
        forms = next((person.forms for person in cast if person.name == answer), (answer,))
        assert any(states(paragraph, form) for paragraph in evidence for form in forms), question.question
        assert not states(question.question, answer)


def test_what_is_asked_of_a_landmark_does_not_change_in_its_paragraph() -> None:
    """Replayed from the happenings: whoever owns, lives or holds is the same before and after the paragraph."""
    for index in range(6):
        events = Chronicle(WORLD, f"replay-{index}", 200).happened(200)
        marks = {event.thing: event.paragraph for event in events if event.kind == "landmark"}
        dated = [found for found in plot_questions(events, Draws(index)) if found.kind in ("owner_at", "place_at")]
        assert len(dated) > 50
        for found in dated:
            fields = dict(found.fields)
            at = marks[fields["landmark"]]
            for end in (at, at + 1):
                state = ""
                for event in (event for event in events if event.paragraph < end):
                    if found.kind == "owner_at" and event.thing == fields["thing"]:
                        owner = {"find": event.who, "give": event.other}.get(event.kind)
                        state = owner.name if owner else ""
                    elif found.kind == "place_at" and event.who and event.who.name == fields["who"]:
                        state = (
                            event.town if event.kind in ("arrive", "move") else "" if event.kind == "leave" else state
                        )
                assert state == found.answers[0]


def test_options_are_four_different_ones_that_stand_in_the_text(documents: dict[str, list[DocumentQuestion]]) -> None:
    letters = Counter(question.answers[0] for question in documents["infbench_mc"])
    assert set(letters) == set("ABCD")
    assert max(letters.values()) <= 30
    for question in documents["infbench_mc"]:
        assert len(set(question.options)) == 4
        assert question.options["ABCD".index(question.answers[0])] == question.answers[1]
        assert all(option in question.document for option in question.options)


def test_a_word_matcher_stays_under_the_oracle_on_documents(documents: dict[str, list[DocumentQuestion]]) -> None:
    right = []
    for question in documents["infbench_qa"]:
        paragraphs = question.document.split("\n\n")
        (best,) = LexicalIndex(paragraphs).search(question.question, 1)
        guess = first_of_type(question.question, paragraphs[best])
        right.append(any(form in guess for form in question.answers))
    assert share(right) <= 0.6


@pytest.mark.parametrize("paragraphs", [PARAGRAPHS, 160])
def test_who_sees_the_last_quarter_loses_what_stands_before_it(paragraphs: int) -> None:
    questions = [long_documents("narrativeqa").question(i, paragraphs) for i in range(60)]
    depths = [min(question.depths) for question in questions]
    assert share([depth >= 0.75 for depth in depths]) <= 0.4
    assert all(share([low <= depth < low + 0.25 for depth in depths]) >= 0.08 for low in (0, 0.25, 0.5, 0.74))


def test_a_longer_document_begins_like_a_shorter_one() -> None:
    documents = long_documents("infbench_qa")
    short, long = (documents.question(3, count).document for count in (FEWEST_PARAGRAPHS, 60))
    assert long.startswith(short)
    assert documents.question(3, 60) == documents.question(3, 60)


@pytest.mark.parametrize("name", ["narrativeqa", "infbench_mc"])
def test_a_question_is_the_same_before_and_after_its_document_is_told(name: str) -> None:
    first, later = (long_documents(name, seed=77) for _ in range(2))
    asked = [first.asked(1, count) for count in (30, FEWEST_PARAGRAPHS)]
    told = [later.question(1, count) for count in (FEWEST_PARAGRAPHS, 30)]
    assert asked == [replace(question, document="") for question in reversed(told)]
    # Another text is told before any happening is asked for.
    assert " ".join(later.text(2)[:5]) == " ".join(told_after_asking(name, 2)[:5])


def told_after_asking(name: str, index: int) -> Sequence[str]:
    chronicle = Chronicle(World(77), f"{name}-{index}", 40)
    chronicle.happened(20)
    return chronicle


@pytest.mark.parametrize("name", ["infbench_sum", "multi_lexsum"])
def test_summaries_are_scored_exactly(name: str) -> None:
    """The oracle's summary holds everything; nothing, the beginning, the last quarter and a false one do not."""
    lead, last, false = [], [], []
    for index in range(12):
        case = case_files(name).case(index, PARAGRAPHS)

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
    assert sum(last) / len(last) < 0.7
    assert sum(false) / len(false) < 0.2


@pytest.mark.parametrize("paragraphs", [12, 40, 300])
def test_major_events_are_spread_over_the_whole_of_a_case(paragraphs: int) -> None:
    case = case_files("multi_lexsum").case(1, paragraphs)
    text = re.sub(r"(?m)^[^.]*\n\n", "", case.document)
    assert len(case.key_points) == len(case.events) == 10
    assert {event.id for event in case.events} <= {event.id for event in case.record}
    years = [event.years[0] for event in case.events]
    places = [text.find(year) / len(text) for year in years]
    assert places == sorted(places)
    assert places[0] < 0.2
    assert places[-1] > 0.75
