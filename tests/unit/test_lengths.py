"""Lengths are read as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.lengths import LengthError, format_length, parse_length


@pytest.mark.parametrize(("text", "tokens"), [("8k", 8192), ("8192", 8192), ("1m", 2**20), (" 4K ", 4096)])
def test_a_length_may_have_a_unit(text: str, tokens: int) -> None:
    assert parse_length(text) == tokens


@pytest.mark.parametrize("text", ["8kb", "", "0", "-4k", "4.5k", "k", "٣k"])
def test_other_lengths_are_refused(text: str) -> None:
    with pytest.raises(LengthError, match="write 8k, 8192 or 1m"):
        parse_length(text)


@given(st.integers(1, 2**22))
def test_a_formatted_length_is_parsed_back(tokens: int) -> None:
    assert parse_length(format_length(tokens)) == tokens
