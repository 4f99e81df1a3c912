"""The generated haystack: sentences that never repeat and never look like a needle."""

from __future__ import annotations

import re
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.corpora.synthetic import prose
from longctx.fixtures.corpora.synthetic.sentences import entries, parse_slots

FORBIDDEN = re.compile(r"\b(?:magic|special|numbers?|variables?|var|values?|words?|uuids?)\b", re.IGNORECASE)
indices = st.integers(min_value=0, max_value=prose.SENTENCES - 1)

Elements = tuple[tuple[str, ...], ...]
State = tuple[int, int, str, bool]
LEVEL: State = (0, 0, "", True)


def elements(pattern: str, slots: Elements) -> Elements:
    """Return a form as a sequence of choices; a literal is a choice of one."""
    literals = pattern.split("%s")
    mixed: list[tuple[str, ...]] = [(literals[0],)]
    for slot, literal in zip(slots, literals[1:], strict=True):
        mixed += [slot, (literal,)]
    return tuple(mixed)


def can_meet(first: Elements, second: Elements, start: list[State]) -> bool:
    """Return whether two sequences of choices can spell the same string (after Sardinas and Patterson).

    A state (i, j, lead, first_leads) has made i choices of `first` and j of `second`; one leads by the text `lead`.
    """
    seen, queue = set(start), list(start)
    while queue:
        i, j, lead, first_leads = queue.pop()
        if i == len(first) and j == len(second) and not lead:
            return True
        behind, position = (second, j) if first_leads else (first, i)
        moved = (i, j + 1) if first_leads else (i + 1, j)
        for entry in behind[position] if position < len(behind) else ():
            if lead.startswith(entry):
                state = (*moved, lead[len(entry) :], first_leads)
            elif entry.startswith(lead):
                state = (*moved, entry[len(lead) :], not first_leads)
            else:
                continue
            if state not in seen:
                seen.add(state)
                queue.append(state)
    return False


def is_ambiguous(parts: Elements) -> bool:
    """Return whether one form can spell a string in two ways; the first two choices that differ must start alike."""
    differing = [
        (position + 1, position + 1, long[len(short) :], True)
        for position, entries in enumerate(parts)
        for long in entries
        for short in entries
        if long != short and long.startswith(short)
    ]
    return any(len(set(entries)) != len(entries) for entries in parts) or can_meet(parts, parts, differing)


def test_the_proof_detects_ambiguity() -> None:
    assert is_ambiguous((("a", "ab"), ("b", "bb"), (".",)))
    assert not is_ambiguous((("a", "ab"), ("c", "cb"), (".",)))
    assert can_meet((("The ",), ("cat", "dog"), (".",)), (("The", "A"), (" cat",), (".",)), [LEVEL])
    assert not can_meet((("The ",), ("cat", "dog"), (".",)), (("The", "A"), (" hen",), (".",)), [LEVEL])


def test_no_two_forms_can_render_the_same_sentence() -> None:
    """Together with the next two tests, this proves that `sentence` is injective."""
    for one, other in combinations(prose.forms(), 2):
        first, second = (elements(form.pattern, form.slots) for form in (one, other))
        assert not can_meet(first, second, [LEVEL]), (one.pattern, other.pattern)


def test_no_form_renders_two_choices_alike() -> None:
    for form in prose.forms():
        assert not is_ambiguous(elements(form.pattern, form.slots)), form.pattern


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
