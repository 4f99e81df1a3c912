"""The binary search: the edge it returns, the steps it measures, and its behaviour on histories with dips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import bisect_chains
from ci.bisect.search import StepVerdict, max_measurements, search


def verdicts(text: str) -> Callable[[Sequence[int]], list[StepVerdict]]:
    """Return a callback that reads verdicts from a text such as `gggbbb`; other letters are skipped steps."""

    def read(position: int) -> StepVerdict:
        if text[position] not in "gb":
            return StepVerdict(verdict="skipped", reason="broken")
        return StepVerdict(
            verdict="good" if text[position] == "g" else "bad", difference=0.0, interval=(0.0, 0.0), pairs=8
        )

    return lambda positions: [read(position) for position in positions]


PARALLEL = st.integers(1, 9)


@given(st.integers(2, 200), PARALLEL, st.data())
def test_a_monotone_series_gives_its_edge_within_the_promised_measurements(
    length: int, parallel: int, data: st.DataObject
) -> None:
    first_bad = data.draw(st.integers(1, length - 1))
    chain = verdicts("g" * first_bad + "b" * (length - first_bad))
    rounds: list[Sequence[int]] = []

    def measure(positions: Sequence[int]) -> list[StepVerdict]:
        rounds.append(positions)
        return chain(positions)

    edges: list[tuple[int, int]] = []
    edge = search(length - 1, measure, parallel=parallel, on_edge=lambda *found: edges.append(found))
    assert (edge.last_good, edge.first_bad, edge.dips, edge.skipped) == (first_bad - 1, first_bad, (), ())
    assert set(edges) <= {(first_bad - 1, first_bad)}
    assert len(edge.verdicts) <= max_measurements(length - 1, parallel=parallel)
    assert sum(map(len, rounds)) == len(edge.verdicts)
    assert max(map(len, rounds), default=0) <= parallel
    # Every round leaves one of N + 1 parts, and the last one doubts the edge.
    assert len(rounds) <= math.ceil(math.log(length, parallel + 1) - 1e-9) + 1


def test_one_at_a_time_is_a_binary_search() -> None:
    assert [max_measurements(last) for last in (2, 3, 7, 8, 63)] == [2, 3, 4, 4, 7]
    assert max_measurements(63, parallel=3) == 10


@given(st.text("gbx", max_size=60), PARALLEL)
def test_any_history_gives_a_true_edge(middle: str, parallel: int) -> None:
    """Check that its steps are good and bad, and that all steps between them were skipped."""
    chain = f"g{middle}b"
    edge = search(len(chain) - 1, verdicts(chain), parallel=parallel)
    assert (chain[edge.last_good], chain[edge.first_bad]) == ("g", "b")
    assert set(chain[edge.last_good + 1 : edge.first_bad]) <= {"x"}
    assert all(chain[begins] == "b" and chain[again] == "g" for _, begins, again in edge.dips)


def test_a_measured_dip_is_distinguished_from_the_permanent_loss() -> None:
    """Steps 30 to 34 are a dip: the search hits it at 32, and the step measured behind it is good again."""
    chain = "g" * 30 + "b" * 5 + "g" * 20 + "b" * 9
    edge = search(len(chain) - 1, verdicts(chain))
    assert (edge.last_good, edge.first_bad) == (54, 55)
    assert [dip[:2] for dip in edge.dips] == [(29, 30)]


def test_broken_steps_at_the_edge_are_listed_as_skipped() -> None:
    edge = search(6, verdicts("ggxxbbb"))
    assert (edge.last_good, edge.first_bad, edge.skipped) == (1, 4, (2, 3))


def test_neighbours_need_no_measurement() -> None:
    assert search(1, verdicts("gb")).verdicts == {}
    assert max_measurements(1) == 0


@pytest.mark.parametrize("parallel", [1, 3, 5])
def test_good_steps_behind_bad_ones_of_one_round_are_a_dip(parallel: int) -> None:
    """Steps 16 to 29 are a dip, which one round of three or five steps shows from both sides."""
    chain = "g" * 16 + "b" * 14 + "g" * 25 + "b" * 9
    edge = search(len(chain) - 1, verdicts(chain), parallel=parallel)
    assert (edge.last_good, edge.first_bad) == (54, 55)
    assert all(chain[dip.last_good] == "g" and 16 <= dip.first_bad <= 29 < dip.good_again for dip in edge.dips)
    assert len(edge.dips) == (parallel > 1)


@pytest.mark.parametrize("points", [10, 30])
def test_three_steps_at_a_time_cost_at_most_half_more_samples(points: int) -> None:
    one, three = (
        bisect_chains.run(points, chains=20, length=64, flipping=0.02, seed=1, parallel=parallel) for parallel in (1, 3)
    )
    assert [result.edge.first_bad for result in one] == [result.edge.first_bad for result in three]
    assert sum(result.samples for result in three) <= 1.5 * sum(result.samples for result in one)
    assert sum(result.rounds for result in three) <= 0.6 * sum(result.rounds for result in one)


@pytest.mark.parametrize(("points", "promised"), bisect_chains.PROMISED.items())
def test_searches_of_64_checkpoints_are_right_at_a_tenth_of_the_cost_of_a_scan(points: int, promised: float) -> None:
    searches = bisect_chains.run(points, chains=20, length=64, flipping=0.0, seed=1)
    assert sum(result.is_right for result in searches) / len(searches) >= promised
    assert max(result.samples for result in searches) <= 64 * bisect_chains.CASE.samples / 10
    assert max(result.loads for result in searches) <= 9


def test_of_two_losses_the_larger_one_is_the_edge() -> None:
    """Lose 10 points at step 20 and 20 more at 45: the loss passes half of the 30 points at 45."""
    chain = bisect_chains.Chain(length=64, edge=45, points=30, flipping=0.0, rng=np.random.default_rng(0))
    changed = (chain.scores[0] != chain.scores[63]).nonzero()[0][:25]
    for position in range(20, 45):
        chain.scores[position][changed] = 0.0
    result = chain.search()
    assert result is not None
    edge = result.edge
    assert (edge.last_good, edge.first_bad) == (44, 45)


@given(st.integers(2, 100), PARALLEL, st.data())
def test_a_screen_that_is_sometimes_wrong_changes_no_result(length: int, parallel: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, length - 1))
    wrong = data.draw(st.sets(st.integers(1, max(1, length - 2)), max_size=2))
    text = "g" * first_bad + "b" * (length - first_bad)
    lies = "".join({"g": "b", "b": "g"}[word] if place in wrong else word for place, word in enumerate(text))
    measured: list[int] = []

    def measure(positions: Sequence[int]) -> list[StepVerdict]:
        measured.extend(positions)
        return verdicts(text)(positions)

    edge = search(length - 1, measure, screen=verdicts(lies), parallel=parallel)
    assert (edge.last_good, edge.first_bad, edge.dips) == (first_bad - 1, first_bad, ())
    assert len(measured) == len(set(measured))
    assert {edge.last_good, edge.first_bad} - {0, length - 1} <= set(measured)
    if not wrong:
        assert set(measured) == {edge.last_good, edge.first_bad} - {0, length - 1}
        assert edge.screened == first_bad
