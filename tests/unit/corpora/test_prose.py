"""The generated haystack: sentences that never repeat and never look like a needle."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.corpora.synthetic import prose
from longctx.fixtures.corpora.synthetic.sentences import entries, parse_slots

FORBIDDEN = re.compile(r"\b(?:magic|special|numbers?|variables?|var|values?|words?|uuids?)\b", re.IGNORECASE)
indices = st.integers(min_value=0, max_value=prose.SENTENCES - 1)

State = tuple[int, int, str, bool]
LEVEL: State = (0, 0, "", True)


def test_every_form_has_enough_sentences_for_its_share_of_the_indices() -> None:
    forms = prose.forms()
    assert len(forms) >= 40
    assert prose.SENTENCES >= 10**9
    assert min(form.capacity for form in forms) * len(forms) >= prose.SENTENCES


@pytest.mark.parametrize("start", [0, 123_456_789, prose.SENTENCES - 60_000])
def test_a_million_tokens_of_consecutive_sentences_repeat_nothing(start: int) -> None:
    sentences = [prose.sentence(start + i) for i in range(60_000)]
    assert len(set(sentences)) == len(sentences)


@given(indices, indices)
def test_different_indices_give_different_sentences(one: int, other: int) -> None:
    assert (prose.sentence(one) == prose.sentence(other)) == (one == other)


@given(indices)
def test_a_sentence_is_one_plain_english_sentence(index: int) -> None:
    text = prose.sentence(index)
    assert re.fullmatch(r"[A-Z][A-Za-z', ]*\.", text), text
    assert "  " not in text
    assert " ," not in text
    assert 9 <= len(text.split()) <= 35
    assert not FORBIDDEN.search(text)
    assert not re.search(r"\bfor\b.*\b(?:is|are)\b", text)
    assert not re.search(r"\ba [aeiou]", text.lower())


@pytest.mark.parametrize("index", [-1, prose.SENTENCES])
def test_an_index_out_of_range_is_an_error(index: int) -> None:
    with pytest.raises(IndexError, match=str(index)):
        prose.sentence(index)


def test_the_halves_of_a_slot_share_nothing() -> None:
    slots = parse_slots({"tool": "awl, hammer,\n rasp, adze, oar"})
    assert slots["tool"] == ("awl", "hammer", "rasp", "adze", "oar")
    assert set(entries("tool1", slots)) | set(entries("tool2", slots)) == set(slots["tool"])
    assert all(one != other for one, other in product(entries("tool1", slots), entries("tool2", slots)))
    assert entries("A_tool1", slots) == ("An awl", "A rasp", "An oar")
    with pytest.raises(KeyError, match="tools"):
        entries("tools", slots)
