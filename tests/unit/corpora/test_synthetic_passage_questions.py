"""The scores of simple solvers on the archive's passage questions: oracle, guesser, careless citing."""

import re

import pytest

from longctx.fixtures.corpora.schema import Passage, PassageQuestion
from longctx.fixtures.corpora.synthetic.archive import archive_set
from longctx.fixtures.corpora.synthetic.keyed_random import KeyedRandom
from longctx.fixtures.corpora.synthetic.world import Entity, facts_of
from longctx.fixtures.scoring.synthetic import Evidence, citation_score, split_items, split_sentences
from longctx.fixtures.words import contains_words

RAG = ("nq", "triviaqa", "popqa", "hotpotqa")
CITED = ("asqa", "qampari")
# About 4K tokens.
PASSAGES = 30


def context_of(question: PassageQuestion) -> list[Passage]:
    """Return the gold passages and the most similar distractors, in random order."""
    others = question.others[: PASSAGES - len(question.gold)]
    return KeyedRandom(len(question.question)).shuffled([*question.gold, *others])


def is_right(output: str, question: PassageQuestion) -> bool:
    return any(form.lower() in output.lower() for form in question.answers[0])


def subject_and_relation(fact: str) -> tuple[Entity, str]:
    name, _, relation = fact.partition(".")
    kind, _, index = name.partition("-")
    return Entity(kind, int(index)), relation


@pytest.fixture(scope="module")
def questions() -> dict[str, list[PassageQuestion]]:
    return {name: [archive_set(name)[i] for i in range(32)] for name in (*RAG, *CITED)}


@pytest.mark.parametrize("name", RAG)
def test_an_oracle_that_reads_the_fact_base_answers_every_question(
    name: str, questions: dict[str, list[PassageQuestion]]
) -> None:
    for question in questions[name]:
        (facts,) = question.facts
        stated = frozenset[str]().union(*(passage.facts for passage in question.gold))
        assert facts <= stated
        named = [subject_and_relation(fact) for fact in facts if not fact.endswith(".byname")]
        known = [facts_of(subject)[relation] for subject, relation in named]
        if name == "popqa":
            entity, _ = subject_and_relation(next(iter(facts)))
            assert is_right(entity.name, question)
            assert known[0].value in question.question
        else:
            assert any(is_right(fact.value, question) for fact in known)


@pytest.mark.parametrize("name", [*RAG, *CITED])
def test_the_gold_passages_alone_state_the_answers(name: str, questions: dict[str, list[PassageQuestion]]) -> None:
    for question in questions[name]:
        evidence = " ".join(f"{passage.title} {passage.text}" for passage in question.gold)
        for forms in question.answers:
            assert any(contains_words(evidence, form) for form in forms)
            assert not any(contains_words(question.question, form) for form in forms)
            for other in question.others[:PASSAGES]:
                assert not any(contains_words(f"{other.title} {other.text}", form) for form in forms)


def test_two_hops_need_both_passages(questions: dict[str, list[PassageQuestion]]) -> None:
    for question in questions["hotpotqa"]:
        work, person = question.gold
        assert work.title.lower().removeprefix("the ") in question.question.lower()
        assert not any(contains_words(work.text, form) for form in question.answers[0])
        assert person.title in work.text
        assert person.title not in question.question
        assert work.title not in person.text


def test_questions_with_bynames_and_rare_people_name_no_title(
    questions: dict[str, list[PassageQuestion]],
) -> None:
    for question in questions["triviaqa"]:
        assert question.gold[0].title.lower() not in question.question.lower()
    for question in questions["popqa"]:
        assert question.gold[0].title.lower() not in question.question.lower()


def test_distractors_never_repeat_and_begin_with_namesakes(questions: dict[str, list[PassageQuestion]]) -> None:
    question = questions["nq"][0]
    others = question.others[:400]
    assert len({other.id for other in others} | {question.gold[0].id}) == 401
    assert set(question.gold[0].title.split()) & set(others[0].title.split())
    assert len(question.others) >= 1 << 15
    assert [other.id for other in archive_set("nq")[0].others[:50]] == [other.id for other in others[:50]]


def cite(question: PassageQuestion, passages: list[Passage]) -> str:
    """Return the oracle's answer: every facet with its cue and the number of the passage that states it."""
    parts = []
    for claim, facts in zip(question.claims, question.facts, strict=True):
        number = next(i for i, passage in enumerate(passages, start=1) if facts <= passage.facts)
        parts.append(f"{claim.values[0]}{f', of {claim.cues[0]}' if claim.cues else ''} [{number}]")
    return ", ".join(parts) if not question.claims[0].cues else ". ".join(parts) + "."


@pytest.mark.parametrize("name", CITED)
def test_an_oracle_cites_perfectly_and_careless_citing_does_not_pay(
    name: str, questions: dict[str, list[PassageQuestion]]
) -> None:
    split = split_sentences if name == "asqa" else split_items
    careless = []
    for question in questions[name]:
        passages = context_of(question)
        evidence = [Evidence(passage.facts, f"{passage.title} {passage.text}") for passage in passages]
        answer = cite(question, passages)
        score = citation_score(split(answer), question.claims, evidence, question.question)
        assert (score.recall, score.precision) == (1, 1), answer
        first = re.sub(r"\[\d+\]", "[1]", answer)
        careless.append(citation_score(split(first), question.claims, evidence, question.question).recall)
        assert 3 <= len(question.claims) <= 6
    assert sum(careless) / len(careless) < 0.3
