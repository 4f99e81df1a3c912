"""Scores for the statistical tests: drawn by Hypothesis, or with a known share of correct samples."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from longctx.plugins.evidence.e_process import LevelBets, Strata
from longctx.plugins.evidence.statistics import Decision, decide_level

MEANS = st.floats(0, 1)
SCORES = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
QUEUES = st.lists(SCORES, min_size=1, max_size=60)

Floats = NDArray[np.float64]


def binary_scores(share: float, samples: int, seed: int = 0) -> Floats:
    """Return scores of 0 and 1 with exactly this share of ones, in random order."""
    return np.random.default_rng(seed).permutation(np.arange(samples) < round(share * samples)).astype(float)


def paired_differences(share: float, change: float, samples: int, seed: int) -> Floats:
    """Return differences of paired scores.

    `share` of them are -1 or 1, the others 0. Their mean is about `-change`.
    """
    shares = ((share + change) / 2, 1 - share, (share - change) / 2)
    return np.random.default_rng(seed).choice((-1.0, 0.0, 1.0), samples, p=shares)


def evidence_against(scores: ArrayLike, mean: float, population: int) -> Floats:
    """Return the logarithm of the evidence against "the mean is at most `mean`" after every score."""
    bets = LevelBets(np.asarray(scores, dtype=np.float64), Strata.single(population))
    evidence: Floats = bets.log_evidence(mean, mean)[0]
    return evidence


def decide(
    scores: ArrayLike, threshold: float, *, alpha: float = 0.01, population: int, zone: float = 0.0, least: int = 8
) -> Decision | None:
    """Return the verdict on the first scores of a population in a uniformly random order."""
    values, strata = np.asarray(scores, dtype=np.float64), Strata.single(population)
    return decide_level(values, threshold, strata, alpha=alpha, indifference_zone=zone, min_observations=least)
