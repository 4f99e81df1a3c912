"""The noisy binary search: what it names, the steps it measures, and histories that are not one step."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import bisect_chains
from longctx.ci.bisect.posterior import EndpointVotes, Posterior
from longctx.ci.bisect.search import Edge, Request, StepResult, search

# Sixteen telling samples do not make a loss of one in 78 steps certain to 99 %.
SAMPLES = 24


class Series:
    """Steps from a text such as `gggbbb`, without flips; other letters are skipped steps."""

    def __init__(self, text: str):
        self.text = text
        self.votes = EndpointVotes(worse=SAMPLES, better=0)
        self.telling = SAMPLES
        self.can_extend = False
        self.rounds: list[Sequence[Request]] = []

    @property
    def note(self) -> Callable[[Mapping[int, StepResult], Posterior, Sequence[int]], None]:
        return lambda *_: None

    def extend(self) -> None:
        raise AssertionError

    def measure(self, requests: Sequence[Request]) -> list[StepResult]:
        self.rounds.append(requests)
        return [self._measure(request) for request in requests]

    def _measure(self, request: Request) -> StepResult:
        if self.text[request.position] not in "gb":
            return StepResult(reason="broken")
        lost = float(self.text[request.position] == "b")
        return StepResult(reading=(lost,) * request.samples, pairs=request.samples)

    def search(self, parallel: int = 1) -> Edge:
        return search(len(self.text) - 1, self, confidence=0.99, parallel=parallel)


PARALLEL = st.integers(1, 5)


@settings(deadline=None)
@given(st.integers(2, 80), PARALLEL, st.data())
def test_a_clear_loss_gives_its_step_with_a_probability_near_one(
    length: int, parallel: int, data: st.DataObject
) -> None:
    first_bad = data.draw(st.integers(1, length - 1))
    series = Series("g" * first_bad + "b" * (length - first_bad))
    edge = series.search(parallel)
    assert (edge.last_good, edge.first_bad, edge.dips, edge.is_step, edge.is_shown) == (
        first_bad - 1, first_bad, (), True, True,
    )  # fmt: skip
    assert edge.probability >= 0.99
    assert max(map(len, series.rounds), default=0) <= parallel
    measured = [request.position for requests in series.rounds for request in requests]
    assert len(set(measured)) <= 4 + parallel * (2 + np.log2(length))


@settings(deadline=None)
@given(st.text("gbx", max_size=40), PARALLEL)
def test_any_history_gives_a_true_statement(middle: str, parallel: int) -> None:
    """Check that a step is good and the other bad, and that a certain step has only skipped ones before it."""
    chain = f"g{middle}b"
    edge = Series(chain).search(parallel)
    if edge.is_shown and (edge.last_good, edge.first_bad) != (0, len(chain) - 1):
        assert (chain[edge.last_good], chain[edge.first_bad]) == ("g", "b")
    assert set(edge.skipped) == {place for place in range(edge.last_good + 1, edge.first_bad) if place in edge.results
                                 and chain[place] == "x"}  # fmt: skip
    assert all(chain[begins] == "b" and chain[again] == "g" for _, begins, again in edge.dips)


def test_a_measured_dip_is_distinguished_from_the_permanent_loss() -> None:
    """Steps 30 to 34 are a dip: of three steps at a time, one is in it and the next one is good again."""
    edge = Series("g" * 30 + "b" * 5 + "g" * 20 + "b" * 9).search(parallel=3)
    assert (edge.last_good, edge.first_bad) == (54, 55)
    assert [dip.first_bad for dip in edge.dips] == [32]


def test_the_search_ends_once_both_steps_of_the_edge_are_certain() -> None:
    series = Series("g" * 6 + "b" * 4)
    assert series.search().first_bad == 6
    measured = [request.position for requests in series.rounds for request in requests]
    assert len(measured) == len(set(measured)) <= 4
    assert {5, 6} <= set(measured)


def test_broken_steps_at_the_edge_are_listed_as_skipped() -> None:
    edge = Series("ggggxxbbb").search()
    assert (edge.last_good, edge.first_bad, edge.skipped, edge.is_step) == (3, 6, (4, 5), True)
    assert edge.probability >= 0.99


def test_neighbours_need_no_measurement() -> None:
    series = Series("gb")
    edge = series.search()
    assert (edge.last_good, edge.first_bad, edge.is_shown) == (0, 1, True)
    assert not series.rounds


@pytest.mark.parametrize("points", [10, 30])
def test_three_steps_at_a_time_cost_at_most_half_more_samples(points: int) -> None:
    one, three = (
        bisect_chains.run("step", points, chains=10, length=64, flipping=0.02, seed=1, parallel=parallel)
        for parallel in (1, 3)
    )
    assert {result.word for result in (*one, *three)} <= {"step right", "range right"}
    assert sum(result.samples for result in three) <= 1.5 * sum(result.samples for result in one)
    assert sum(result.rounds for result in three) <= 0.8 * sum(result.rounds for result in one)


@pytest.mark.parametrize(("points", "flipping"), [(10, 0.0), (30, 0.0), (90, 0.0), (30, 0.1)])
def test_searches_of_64_checkpoints_are_right_at_a_tenth_of_the_cost_of_a_scan(points: int, flipping: float) -> None:
    searches = bisect_chains.run("step", points, chains=10, length=64, flipping=flipping, seed=1)
    assert {result.word for result in searches} <= {"step right", "range right"}
    assert np.mean([result.samples for result in searches]) <= 64 * bisect_chains.SAMPLES / 10


@pytest.mark.parametrize("kind", [*bisect_chains.HISTORIES, "none"])
def test_no_history_makes_a_search_certain_of_a_wrong_step(kind: str) -> None:
    searches = bisect_chains.run(kind, 10, chains=8, length=64, flipping=0.1, seed=2)
    assert "step wrong" not in {result.word for result in searches}
    assert kind != "none" or {result.word for result in searches} == {"not shown"}


def test_ten_points_lost_among_a_tenth_of_flips_are_found() -> None:
    searches = bisect_chains.run("step", 10, chains=12, length=64, flipping=0.1, seed=3)
    right = [result for result in searches if result.word in ("step right", "range right")]
    assert len(right) >= 10


def test_no_statement_is_surer_than_the_loss_of_the_endpoints() -> None:
    """Nine votes against two: equal endpoints differ as much in 3.3 % of draws, so nothing reaches 99 %."""
    series = Series("g" * 9 + "b" * 9)
    series.votes = EndpointVotes(worse=9, better=2)
    assert series.votes.p_value == pytest.approx(67 / 2**11)
    edge = series.search()
    assert edge.probability <= 1 - series.votes.p_value
    assert not edge.is_shown
