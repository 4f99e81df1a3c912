"""The probabilities of histories: what the answers of steps show, and how certain they are."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.ci.bisect.posterior import EndpointVotes, Posterior, Reading

CLEAR = EndpointVotes(worse=12, better=0)


def readings(lost: Mapping[int, tuple[int, int]]) -> dict[int, Reading]:
    """Return readings from the numbers of lost samples and of all samples by position."""
    return {place: (1.0,) * bad + (0.0,) * (of - bad) for place, (bad, of) in lost.items()}


@settings(deadline=None)
@given(
    st.integers(1, 40), st.integers(0, 30), st.integers(0, 30),
    st.dictionaries(st.integers(1, 39), st.tuples(st.integers(0, 12), st.just(12)), max_size=6),
)  # fmt: skip
def test_probabilities_are_probabilities(
    last: int, worse: int, better: int, lost: dict[int, tuple[int, int]]
) -> None:  # fmt: skip
    inside = {place: counts for place, counts in lost.items() if place < last}
    posterior = Posterior(last, readings(inside), EndpointVotes(worse=worse, better=better))
    for values in (posterior.lost, posterior.falls, [posterior.loss, posterior.fell(0, last)]):
        assert np.all(np.isfinite(values))
        assert np.all((np.array(values) >= -1e-9) & (np.array(values) <= 1 + 1e-9))
    assert [posterior.fell(place - 1, place) for place in range(1, last + 1)] == pytest.approx(posterior.falls[1:])


def test_clear_answers_of_two_neighbours_make_an_edge_certain() -> None:
    posterior = Posterior(63, readings({20: (0, 12), 21: (12, 12), 32: (12, 12)}), CLEAR)
    assert posterior.falls.argmax() == 21
    assert posterior.falls[21] > 0.999
    assert posterior.lost[[10, 20]].max() < 0.02
    assert posterior.lost[[21, 40]].min() > 0.95


def test_answers_that_flip_leave_an_edge_uncertain_and_more_of_them_decide() -> None:
    few, many = (
        Posterior(
            63, readings({place: ((3 if place < 21 else 7) * n, 12 * n) for place in range(18, 24)}),
            EndpointVotes(worse=84, better=36),
        )
        for n in (1, 7)
    )  # fmt: skip
    assert few.falls[21] < 0.95 < 0.99 < many.falls[21]
    assert few.fell(0, 63) > few.falls[21]


def test_a_slow_decay_has_no_step_that_is_certain_but_a_range() -> None:
    lost = {place: (min(40, max(0, 2 * (place - 20))), 40) for place in range(16, 46)}
    posterior = Posterior(63, readings(lost), EndpointVotes(worse=40, better=0))
    assert posterior.falls.max() < 0.2
    assert posterior.fell(20, 40) > 0.99


def test_the_share_of_the_loss_is_measured_from_endpoint_to_endpoint() -> None:
    """Answers flip: the good state loses a quarter of the telling samples, the bad one three quarters."""
    lost = {place: (10, 40) if place < 32 else (30, 40) for place in range(4, 60, 4)}
    posterior = Posterior(63, readings(lost), EndpointVotes(worse=40, better=20))
    for place, share in ((8, 0.0), (56, 1.0)):
        mean, low, high = posterior.share(place, 0.99)
        assert low < mean < high
        assert mean == pytest.approx(share, abs=0.15)


def test_steps_that_answer_alike_tell_more_than_as_many_independent_samples() -> None:
    """The same 20 of 40 samples are lost at every bad step; in the other series others each time."""
    rng = np.random.default_rng(0)
    same = (1.0,) * 20 + (0.0,) * 20
    alike, mixed = ({}, {})
    for place in range(20, 28):
        losses = same if place >= 24 else (1.0,) * 10 + (0.0,) * 30
        alike[place] = losses
        mixed[place] = tuple(rng.permutation(losses))
    votes = EndpointVotes(worse=40, better=25)
    assert Posterior(63, alike, votes).falls[24] > Posterior(63, mixed, votes).falls[24]
