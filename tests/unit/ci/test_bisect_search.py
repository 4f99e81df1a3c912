"""The search by halves: which step is named, what is looked at, and what a chain with a history of its own gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bisect_chains
from ci.bisect.search import StepVerdict, most_questions, search


def words(text: str) -> Callable[[int], StepVerdict]:
    """Answers from a text such as `gggbbb`; anything else is skipped."""

    def ask(place: int) -> StepVerdict:
        if text[place] not in "gb":
            return StepVerdict(word="skipped", reason="broken")
        return StepVerdict(word="good" if text[place] == "g" else "bad", difference=0.0, interval=(0.0, 0.0), pairs=8)

    return ask


@given(st.integers(2, 200), st.data())
def test_a_monotone_chain_gives_its_edge_in_as_many_looks_as_promised(length: int, data: st.DataObject) -> None:
    edge = data.draw(st.integers(1, length - 1))
    found = search(length - 1, words("g" * edge + "b" * (length - edge)))
    assert (found.last_good, found.first_bad, found.dips, found.skipped) == (edge - 1, edge, (), ())
    assert len(found.answers) <= most_questions(length - 1)


@given(st.text("gbx", max_size=60))
def test_whatever_the_history_the_answer_is_a_true_edge(middle: str) -> None:
    """Its neighbours are good and bad, and all between them were skipped."""
    chain = f"g{middle}b"
    found = search(len(chain) - 1, words(chain))
    assert (chain[found.last_good], chain[found.first_bad]) == ("g", "b")
    assert set(chain[found.last_good + 1 : found.first_bad]) <= {"x"}
    assert all(chain[begins] == "b" and chain[again] == "g" for _, begins, again in found.dips)


def test_a_dip_that_is_hit_is_told_from_the_loss_that_stays() -> None:
    """Places 30 to 34 are a dip; halves hit it at 32, and the look behind it finds the run good again."""
    chain = "g" * 30 + "b" * 5 + "g" * 20 + "b" * 9
    found = search(len(chain) - 1, words(chain))
    assert (found.last_good, found.first_bad) == (54, 55)
    assert [dip[:2] for dip in found.dips] == [(29, 30)]


def test_a_broken_step_beside_the_edge_leaves_it_open() -> None:
    found = search(6, words("ggxxbbb"))
    assert (found.last_good, found.first_bad, found.skipped) == (1, 4, (2, 3))


def test_neighbours_need_no_look() -> None:
    assert search(1, words("gb")).answers == {}
    assert most_questions(1) == 0


@pytest.mark.parametrize(("points", "promised"), bisect_chains.PROMISED.items())
def test_chains_of_64_are_searched_rightly_at_a_tenth_of_a_scan(points: int, promised: float) -> None:
    found = bisect_chains.run(points, chains=20, length=64, flipping=0.0, seed=1)
    assert sum(each.right for each in found) / len(found) >= promised
    assert max(each.samples for each in found) <= 64 * bisect_chains.CASE.samples / 10
    assert max(each.loads for each in found) <= 9


def test_two_losses_of_a_chain_end_at_the_larger() -> None:
    """10 points at 20, 20 more at 45: half of the 30 is crossed at 45, and 44 had already lost 10."""
    chain = bisect_chains.Chain(length=64, edge=45, points=30, flipping=0.0, chance=np.random.default_rng(0))
    changed = (chain.scores[0] != chain.scores[63]).nonzero()[0][:25]
    for place in range(20, 45):
        chain.scores[place][changed] = 0.0
    found = chain.search().found
    assert (found.last_good, found.first_bad) == (44, 45)
