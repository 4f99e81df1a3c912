"""The cache of ids stays within its bounds and keeps the texts that come again."""

from __future__ import annotations

from longctx.fixtures.tokenization.incremental import UNIT_CHARACTERS, Ids, _IdCache


def test_the_cache_stays_within_bounds_and_keeps_repeated_texts() -> None:
    made_texts: list[str] = []

    def make(text: str) -> Ids:
        made_texts.append(text)
        return (len(text),)

    id_cache = _IdCache(make, max_units=20)
    for number in range(500):
        assert id_cache["again"] == (5,)
        assert id_cache[f"new {number}"]
        assert sum(map(len, (*id_cache, *id_cache._old))) <= 20 * UNIT_CHARACTERS
    assert made_texts.count("again") == 1
    assert len(made_texts) == 501


def test_long_texts_stay_within_the_same_bounds_and_a_very_long_one_is_not_cached() -> None:
    id_cache = _IdCache(lambda text: (len(text),), max_units=100)
    for number in range(50):
        assert id_cache[f"{number}" + " word" * 400]
        assert sum(map(len, (*id_cache, *id_cache._old))) <= 100 * UNIT_CHARACTERS
    assert id_cache["word " * 1000] == (5000,)
    assert "word " * 1000 not in id_cache
