"""Scores for the statistical tests: drawn by Hypothesis, or with a known share of correct samples."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

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
