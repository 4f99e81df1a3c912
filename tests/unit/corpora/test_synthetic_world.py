"""The archive's world and its passages are pure functions of their number, plausible and large enough."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.corpora.synthetic.archive import ARCHIVE, archive_set
from longctx.fixtures.corpora.synthetic.keyed_random import permute, unpermute
from longctx.fixtures.corpora.synthetic.passage_questions import _write_passage
from longctx.fixtures.corpora.synthetic.sentences import (
    grammar,
    name_words,
)
from longctx.fixtures.corpora.synthetic.world import KINDS, SHARES, SIZES, Entity, entity_at, facts_of
from tests.helpers.paths import REPOSITORY

entities = st.builds(
    lambda kind, number: Entity(kind, number % SIZES[kind]), st.sampled_from(KINDS), st.integers(0, 1 << 40)
)
LONG_TEXTS = """
import time
from longctx.fixtures.corpora.synthetic.archive import *
from tests.helpers.peak_memory import peak_mebibytes
start = time.process_time()
others = archive_set("hotpotqa")[0].others[:2500]
passages = time.process_time() - start
letters_of = [sum(len(other.text) for other in others)]
letters_of.append(len(archive_set("infbench_qa").question(0, 2500).document))
letters_of.append(len(archive_set("infbench_sum").case(0, 2500).document))
print(passages, peak_mebibytes() / 2**10, min(letters_of))
"""


def run(script: str, **env: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(REPOSITORY), **env},
        capture_output=True,
        check=True,
        text=True,
    )
    return ended.stdout.strip()


@given(st.integers(1, 10**6), st.integers(0, 2**64 - 1), st.data())
def test_permutations_are_bijections_with_an_inverse(size: int, key: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    there = permute(index, size, key)
    assert 0 <= there < size
    assert unpermute(there, size, key) == index


@given(entities)
def test_links_are_known_from_both_ends(entity: Entity) -> None:
    for kind, relation in SHARES:
        if entity.kind == kind:
            assert entity in entity.owner(relation).works(kind, relation)
        for work in entity.works(kind, relation):
            assert work.owner(relation) == entity


@given(entities)
def test_works_date_from_the_adult_life_of_their_maker(entity: Entity) -> None:
    if entity.kind in ("person", "town"):
        return
    maker = entity.maker
    # The last books of an author may appear soon after the author's death.
    latest = maker.died + (10 if entity.kind == "book" else 0)
    assert maker.year + 20 < entity.year < latest


@given(entities, entities)
def test_names_and_bynames_are_unique_within_a_kind(one: Entity, other: Entity) -> None:
    if one.kind == other.kind and one != other:
        same_vessel = one.kind == "vessel" and one in other.namesakes
        assert (one.name == other.name) == same_vessel
        assert one.byname != other.byname


@given(entities)
def test_namesakes_share_a_word_and_the_relations(entity: Entity) -> None:
    words = name_words(entity.name)
    for other in entity.namesakes:
        assert words & name_words(other.name)
        assert other.kind == entity.kind


@given(entities)
def test_a_passage_states_every_fact_that_it_lists(entity: Entity) -> None:
    text = _write_passage(entity)
    facts = facts_of(entity)
    byname = f"{entity}.byname"
    assert text.facts - {byname} == {fact.id for fact in facts.values()}
    for fact in facts.values():
        assert fact.value.removeprefix("the ") in text.text
    assert (entity.byname in text.text) == (byname in text.facts)
    assert entity.name.lower() in text.text.lower()


@given(entities)
def test_a_passage_is_plain_prose_of_about_a_hundred_words(entity: Entity) -> None:
    text = _write_passage(entity).text
    assert 85 <= len(text.split()) <= 150
    assert text.isascii()
    assert not re.search(
        r"\b[Aa] [aeio]|\b[Aa]n [^aeiouAEIOU]|  | ,|\.\.|,,|[{}]|\b(the|a|an) (the|a|an)\b|\. [a-z]", text
    ), text


def test_every_form_of_the_grammar_can_be_written() -> None:
    """A field that is no slot raises KeyError."""
    seen = {_write_passage(entity_at(kind, i)).text for kind in KINDS for i in range(300)}
    assert len(seen) == len(KINDS) * 300
    statements = [entry["statements"] for kind in KINDS for entry in grammar()[kind].values() if "statements" in entry]
    assert min(map(len, statements)) >= 4
    assert sum(map(len, statements)) >= 190


def texts() -> Iterator[str]:
    yield from (_write_passage(entity_at(kind, i)).text for kind in KINDS for i in range(250))
    yield from (other.text for other in archive_set("msmarco")[0].passages[:100])
    yield from (shot.text for shot in archive_set("clinc150").train[:500])
    yield from archive_set("narrativeqa").text(0)[:150]
    yield archive_set("multi_lexsum").case(0, 150).document


def test_fewer_than_two_in_a_hundred_sentences_are_repeated() -> None:
    sentences = [part for text in texts() for part in re.split(r"(?<=[.?!])\s+|\n+", text)]
    assert len(sentences) > 15_000
    assert len(set(sentences)) > 0.98 * len(sentences)


@pytest.mark.whole_loop
def test_a_long_text_is_built_quickly_and_in_little_memory() -> None:
    """Passages, a chronicle and a lawsuit, at 4.2 letters per token; the time limit is for the passages."""
    seconds, gibibytes, letters = map(float, run(LONG_TEXTS).split())
    assert letters / 4.2 > 250_000
    assert seconds < 6
    assert gibibytes < 0.4


def test_the_archive_has_all_data_sets_of_the_seven_categories() -> None:
    assert len(ARCHIVE) == 17
    for name in ARCHIVE:
        assert archive_set(name)


def test_entries_out_of_range_are_errors() -> None:
    reads: tuple[Callable[[], object], ...] = (
        lambda: archive_set("nq")[4096],
        lambda: archive_set("msmarco")[4096],
        lambda: archive_set("nlu").train[1 << 17],
    )
    for read in reads:
        with pytest.raises(IndexError, match="out of range"):
            read()
