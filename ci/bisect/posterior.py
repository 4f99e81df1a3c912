"""The probability of each history of a training run, given the answers of its checkpoints. Pure: numbers in and out.

All steps of a search are measured on the telling samples: those that the bad endpoint answers worse than the good one.
The *level* of a step is the share of them that the run has lost there, in expectation, so that a step like the good
endpoint has a low level, and one like the bad endpoint a high one. Neither is 0 or 1 where answers flip besides the
loss: the endpoints' own flips chose the samples. So both levels are unknown, and all steps together measure them.

A history is the path of the level over the steps. Most paths are flat with a few jumps: one jump is a fault, two jumps
are a dip or a recovery, more of them several faults. Some paths decline over many steps. The forward-backward algorithm
sums over all paths. This is the posterior of a noisy binary search (Burnashev and Zigangirov 1974; Karp and Kleinberg
2007) for histories that need not be one step.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVELS = 20
LEVEL_VALUES: Floats = (np.arange(LEVELS) + 0.5) / LEVELS
# The level of the good endpoint is only remembered by its group of levels, which saves most of the time.
GROUPS = 5
FIRST_LEVELS: Floats = np.kron(np.eye(GROUPS), np.ones((1, LEVELS // GROUPS))).astype(np.float64)
FIRST_VALUES: Floats = (np.arange(GROUPS) + 0.5) / GROUPS
# A run fell at a step, or between two, if it lost at least this share of the loss between the endpoints there.
FALL_SHARE = 0.25
# The expected number of jumps in a history.
JUMPS = 1.5
# The expected number of declines in a history, each slow or fast.
DECLINES = 0.5
# By how many levels a declining run moves at each step, with probabilities; and the probability that it goes on.
SLOW, FAST = ((0.45, 0.4, 0.15), 0.95), ((0.0, 0.25, 0.3, 0.25, 0.15, 0.05), 0.8)
MODES = 3
STATES = MODES * LEVELS
STATE_VALUES: Floats = np.tile(LEVEL_VALUES, MODES)
DIFFERENCES: Floats = STATE_VALUES[None, :] - STATE_VALUES[:, None]
# Real checkpoints differ by more than their samples do: their levels wobble like the mean of this many samples.
WOBBLES = (40.0, 3000.0)
# How much more precise than that of independent samples a step's mean can be, and the pseudo-count before it is known.
MOST_WEIGHT, PRIOR_DIFFERENCES = 4.0, 4.0
# The endpoints' flips hide part of the loss from the telling samples of other steps: the share that stays visible.
VISIBLE_SHARES = (0.65, 0.8, 1.0)


Reading = tuple[float, ...]
"""The answers of one step to the first telling samples: the shares of the endpoints' loss that it has lost, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointVotes:
    """Contexts on which the endpoints differ."""

    worse: int
    """Contexts on which the bad endpoint is worse."""
    better: int

    @property
    def p_value(self) -> float:
        """The probability that endpoints without a loss differ as much in this direction, by a sign test."""
        votes = self.worse + self.better
        return float(sum(math.comb(votes, count) for count in range(self.worse, votes + 1)) / 2**votes)


class Posterior:
    """Probabilities of the events between position 0, the good endpoint, and position `last`, the bad one."""

    def __init__(self, last: int, readings: Mapping[int, Reading], votes: EndpointVotes):
        self.last = last
        self._moves = _moves(last)
        weights = _weights(readings)
        # Arrays are indexed by position, row and state; a row is a wobble and a group of the good endpoint's level.
        rows = len(WOBBLES) * GROUPS
        likelihoods = {}
        for position, reading in readings.items():
            lost, weight = sum(reading), weights[position]
            unchanged = len(reading) - lost
            likelihoods[position] = _likelihoods(round(weight * lost, 3), round(weight * unchanged, 3))
        self._likelihoods = np.ones((last + 1, rows, STATES))
        self._forward = np.zeros((last + 1, rows, STATES))
        self._backward = np.zeros((last + 1, rows, STATES))
        # A history begins flat.
        forward = self._forward[0]
        forward[:, :LEVELS] = np.tile(FIRST_LEVELS, (len(WOBBLES), 1))
        for position in range(1, last + 1):
            forward = forward @ self._moves
            if position in likelihoods:
                self._likelihoods[position] = likelihoods[position]
                forward = forward * likelihoods[position]
                forward /= forward.max()
            self._forward[position] = forward
        backward = self._backward[last] = np.tile(_end_weights(votes), (len(WOBBLES), MODES))
        for position in range(last, 0, -1):
            if position in likelihoods:
                backward = backward * likelihoods[position]
                backward /= backward.max()
            backward = backward @ self._moves.T
            self._backward[position - 1] = backward

    @cached_property
    def _ends_joint(self) -> Floats:
        """The probabilities of the levels of both endpoints, as (group of the good one, state of the bad one)."""
        joint: Floats = (self._forward[-1] * self._backward[-1]).reshape(len(WOBBLES), GROUPS, STATES).sum(axis=0)
        ends: Floats = joint / joint.sum()
        return ends

    @cached_property
    def ends(self) -> tuple[float, float]:
        joint = self._ends_joint
        return float(joint.sum(axis=1) @ FIRST_VALUES), float(joint.sum(axis=0) @ STATE_VALUES)

    @cached_property
    def loss(self) -> float:
        """The probability that the bad endpoint is worse than the good one."""
        return float(self._ends_joint[STATE_VALUES[None, :] - FIRST_VALUES[:, None] >= 1 / LEVELS].sum())

    @cached_property
    def _states(self) -> Floats:
        joint = np.einsum("prs,prs->ps", self._forward, self._backward)
        states: Floats = joint / joint.sum(axis=1, keepdims=True)
        return states

    @cached_property
    def lost(self) -> Floats:
        """For each position, the probability that more than half of the loss has happened."""
        lost: Floats = self._states[:, sum(self.ends) / 2 <= STATE_VALUES].sum(axis=1)
        return lost

    @cached_property
    def falls(self) -> Floats:
        """For each position, the probability that the run fell just there; 0 at the good endpoint."""
        before = self._forward[:-1]
        after = self._backward[1:] * self._likelihoods[1:]
        falling = self._moves * self._are_falls(FALL_SHARE)
        everything = np.einsum("prs,prs->p", before, after @ self._moves.T)
        fallen = np.einsum("prs,prs->p", before, after @ falling.T)
        return np.array([0.0, *(fallen / everything)])

    def share(self, position: int, confidence: float) -> tuple[float, float, float]:
        """Return the share of the loss between the endpoints that has happened at a position, and its interval.

        The good endpoint has lost a share of 0, the bad one of 1; a step may be better or worse than both.
        """
        joint = self._states[position].reshape(MODES, LEVELS).sum(axis=0)
        edges = np.linspace(0, 1, LEVELS + 1)
        sums = np.concatenate([[0.0], np.cumsum(joint)])
        tail = (1 - confidence) / 2
        mean = joint @ LEVEL_VALUES
        low = np.interp(tail, sums, edges)
        high = np.interp(1 - tail, sums, edges)
        good, bad = self.ends
        loss = max(1 / LEVELS, bad - good)
        shares = [float(level - good) / loss for level in (mean, low, high)]
        return shares[0], shares[1], shares[2]

    def fell(self, before: int, after: int, share: float = FALL_SHARE) -> float:
        """Return the probability that the run fell between two positions, by this share of the loss or more."""
        wobbles = len(WOBBLES)
        moves = np.broadcast_to(np.eye(STATES), (wobbles, STATES, STATES))
        likelihoods = self._likelihoods[:, ::GROUPS, None, :]
        for position in range(before + 1, after + 1):
            moves = (moves @ self._moves) * likelihoods[position]
            moves = moves / moves.max()
        one = self._forward[before].reshape(wobbles, GROUPS, STATES)
        two = self._backward[after].reshape(wobbles, GROUPS, STATES)
        joint = ((one.transpose(0, 2, 1) @ two) * moves).sum(axis=0)
        return float(joint[self._are_falls(share)].sum() / joint.sum())

    def _are_falls(self, share: float) -> NDArray[np.bool_]:
        """Return, for the moves between states, True for those that fall by this share of the loss or more."""
        low, high = self.ends
        return np.greater_equal(DIFFERENCES, max(share * (high - low), 1 / LEVELS) - 1e-9)


@lru_cache(maxsize=64)
def _moves(last: int) -> Floats:
    """Return the probabilities of moves between states at one step, as (before, after).

    A state is a level in one of three modes: flat, a slow decline, a fast decline.
    """
    jump, decline = min(0.5, JUMPS / last), min(0.5, DECLINES / last)
    flat = (1 - jump) * np.eye(LEVELS) + jump / LEVELS
    moves = np.zeros((MODES, LEVELS, MODES, LEVELS))
    moves[0, :, 0] = (1 - decline) * flat
    for mode, (shares, goes_on) in enumerate((SLOW, FAST), start=1):
        steps = np.zeros((LEVELS, LEVELS))
        for levels, share in enumerate(shares):
            steps += share * np.eye(LEVELS, k=levels)
        moves[0, :, mode] = decline / 2 * steps
        moves[mode, :, mode] = goes_on * steps
        moves[mode, :, 0] = (1 - goes_on) * flat
    return moves.reshape(STATES, STATES)


def _weights(readings: Mapping[int, Reading]) -> dict[int, float]:
    """Return by how much the steps' means are more precise than those of as many independent samples.

    Steps answer the same samples, and one state of the run answers most of them alike. So the mean of a step varies
    less than its samples do. The pairs of neighbouring steps that have answered the most samples tell by how much;
    pairs in two states differ in more samples, which only makes the weight smaller.
    """
    most = max(map(len, readings.values()), default=0)
    full = [position for position in sorted(readings) if len(readings[position]) == most]
    expected = observed = PRIOR_DIFFERENCES
    for before, after in itertools.pairwise(full):
        one = np.array(readings[before])
        two = np.array(readings[after])
        mean = (one.mean() + two.mean()) / 2
        expected += 2 * most * mean * (1 - mean)
        observed += float(np.square(one - two).sum())
    weight = min(MOST_WEIGHT, max(1.0, expected / observed))
    return {position: weight if position in full else 1.0 for position in readings}


@lru_cache(maxsize=4096)
def _likelihoods(lost: float, unchanged: float) -> Floats:
    """Return the likelihoods of a step's answers, as (row, state), the largest being 1."""
    alpha, beta = np.outer(WOBBLES, LEVEL_VALUES), np.outer(WOBBLES, 1 - LEVEL_VALUES)
    # scipy takes as long to import as the rest of the command, whose --help needs none of it.
    from scipy.special import betaln

    logs = betaln(lost + alpha, unchanged + beta) - betaln(alpha, beta)
    of_levels = np.exp(logs - logs.max())
    likelihoods: Floats = np.repeat(np.tile(of_levels, MODES), GROUPS, axis=0)
    return likelihoods


def _end_weights(votes: EndpointVotes) -> Floats:
    """Return the likelihood of the endpoints' votes by the levels of the good and the bad endpoint.

    Flips alone make as many contexts better as worse. Of the worse ones, a loss makes the share by which the levels
    differ, but for the part that flips hide.
    """
    total = np.full(FIRST_LEVELS.shape, -np.inf)
    differences = LEVEL_VALUES[None, :] - FIRST_VALUES[:, None]
    for visible in VISIBLE_SHARES:
        worse = 1 / (2 - np.clip(differences / visible, 0.0, 1.0))
        logs = votes.worse * np.log(worse) + votes.better * np.log(np.maximum(1 - worse, 1e-3))
        total = np.logaddexp(total, logs)
    weights: Floats = np.exp(total - total.max())
    return weights
