"""Token counts that are known, because the model runs in this process."""


def count(tokens: int | None) -> int:
    """Return a count; raise AssertionError for one that is not known."""
    assert tokens is not None
    return tokens
