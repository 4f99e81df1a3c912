"""--invariance: the engine gives the same answer to the same question, however it computes it."""

from collections.abc import Callable


def test_invariance(check_invariance: Callable[[], None]) -> None:
    """Check the properties of the engine; fail if that is impossible. Each property is a test of its own."""
    check_invariance()
