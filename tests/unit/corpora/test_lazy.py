"""A lazy sequence is the tuple of its items, made as far as it is looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.corpora.synthetic.lazy import Lazy

sizes = st.integers(0, 12)
ends = st.none() | st.integers(-15, 15)


@given(size=sizes, start=ends, stop=ends, step=st.none() | st.sampled_from((-3, -1, 1, 2)))
def test_it_is_indexed_and_sliced_as_a_tuple(size: int, start: int | None, stop: int | None, step: int | None) -> None:
    lazy, whole = Lazy(size, str), tuple(map(str, range(size)))
    assert lazy[start:stop:step] == whole[start:stop:step]
    assert tuple(lazy) == whole
    assert [lazy[at] for at in range(-size, size)] == [whole[at] for at in range(-size, size)]
    assert (len(lazy), repr(lazy), list(reversed(lazy))) == (size, repr(whole), list(reversed(whole)))
    for outside in (size, -size - 1):
        with pytest.raises(IndexError):
            lazy[outside]


@given(size=st.integers(1, 12), asked=st.lists(st.integers(0, 11)))
def test_each_item_is_made_once_when_it_is_first_asked_for(size: int, asked: list[int]) -> None:
    made: list[int] = []

    def make(index: int) -> object:
        made.append(index)
        return object()

    lazy = Lazy(size, make)
    found = [lazy[at % size] for at in asked]
    assert made == list(dict.fromkeys(at % size for at in asked))
    assert all(item is lazy[at % size] for at, item in zip(asked, found, strict=True))
