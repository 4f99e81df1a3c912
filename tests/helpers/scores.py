"""Scores to decide about: drawn by hypothesis, or with a share of right ones that is known."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

MEANS = st.floats(0, 1)
SCORES = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
QUEUES = st.lists(SCORES, min_size=1, max_size=60)

Floats = NDArray[np.float64]


def binary_scores(share: float, samples: int, seed: int = 0) -> Floats:
    """Scores of 0 and 1 with exactly this share of ones, in a random order."""
    return np.random.default_rng(seed).permutation(np.arange(samples) < round(share * samples)).astype(float)


def paired_differences(share: float, change: float, samples: int, seed: int) -> Floats:
    """Differences of pairs: this share of them -1 or 1, and `change` lost on average."""
    shares = ((share + change) / 2, 1 - share, (share - change) / 2)
    return np.random.default_rng(seed).choice((-1.0, 0.0, 1.0), samples, p=shares)
