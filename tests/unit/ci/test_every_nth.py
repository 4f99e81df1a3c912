"""Every Nth checkpoint is chosen while training writes more, and a choice stays."""

from hypothesis import given
from hypothesis import strategies as st

from longctx.ci.watch.loop import every_nth


def test_the_lowest_step_and_every_nth_after_it_are_chosen() -> None:
    assert every_nth(range(100, 1100, 100), (), 4) == {100, 500, 900}
    assert every_nth([7], (), 4) == {7}
    assert every_nth(range(5), (), 1) == set(range(5))


def test_a_step_that_is_written_late_changes_no_choice_behind_it() -> None:
    assert every_nth([1, 2, 3, 5, 6, 7], (), 3) == {1, 5}
    assert every_nth([1, 2, 3, 4, 5, 6, 7, 8], {1, 5}, 3) == {1, 4, 5, 8}
    # The lowest step is the anchor, also if it is written late.
    assert every_nth([0, 1, 2], {1}, 3) == {0, 1}


@given(st.lists(st.integers(0, 60), unique=True, min_size=1), st.integers(1, 6))
def test_steps_that_appear_in_order_are_chosen_as_if_all_had_been_there(steps: list[int], number: int) -> None:
    """Measure each chosen step at once, and delete every step as soon as the next one is there."""
    measured: set[int] = set()
    seen: set[int] = set()
    for step in sorted(steps):
        seen.add(step)
        measured |= every_nth(seen, measured, number)
    assert measured == every_nth(steps, (), number) == set(sorted(steps)[::number])
