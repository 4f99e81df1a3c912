"""A lazy sequence reads like the tuple of its items, which are made only as far as they are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.corpora.synthetic.keyed_random import LazySequence, in_order

sizes = st.integers(0, 12)
ends = st.none() | st.integers(-15, 15)


@given(size=sizes, start=ends, stop=ends, step=st.none() | st.sampled_from((-3, -1, 1, 2)))
def test_it_is_read_like_a_tuple(size: int, start: int | None, stop: int | None, step: int | None) -> None:
    lazy, whole = LazySequence(size, str), tuple(map(str, range(size)))
    assert lazy[start:stop:step] == whole[start:stop:step]
    assert tuple(lazy) == whole
    assert [lazy[index] for index in range(-size, size)] == [whole[index] for index in range(-size, size)]
    assert (len(lazy), repr(lazy), list(reversed(lazy))) == (size, repr(whole), list(reversed(whole)))
    for outside in (size, -size - 1):
        with pytest.raises(IndexError, match=f"there are {size}"):
            lazy[outside]


@given(size=st.integers(1, 12), reads=st.lists(st.integers(0, 11)))
def test_with_a_cache_an_item_is_made_once_when_it_is_first_read(size: int, reads: list[int]) -> None:
    made: list[int] = []

    @cache
    def make(index: int) -> object:
        made.append(index)
        return object()

    lazy = LazySequence(size, make)
    items = [lazy[index % size] for index in reads]
    assert made == list(dict.fromkeys(index % size for index in reads))
    assert all(item is lazy[index % size] for index, item in zip(reads, items, strict=True))


@given(reads=st.lists(st.integers(0, 11)))
def test_an_iterator_is_read_in_order_and_only_as_far_as_needed(reads: list[int]) -> None:
    made: list[int] = []

    def generate() -> Iterator[int]:
        for number in range(12):
            made.append(number)
            yield number

    lazy = LazySequence(12, in_order(generate()))
    assert [lazy[index] for index in reads] == reads
    assert made == list(range(max(reads, default=-1) + 1))
