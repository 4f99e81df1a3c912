"""How sure a mean of scores is. Pure arithmetic: no pytest, no torch."""

from __future__ import annotations

import math
from statistics import NormalDist

CONFIDENCE = 0.99


def mean_interval(mean: float, samples: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval for the mean of `samples` scores in [0, 1].

    Exact to the normal approximation for scores of 0 and 1; wider than needed for scores between,
    whose variance is smaller. Raises ValueError for a mean outside [0, 1] or no samples.
    """
    if samples < 1 or not 0 <= mean <= 1:
        raise ValueError(f"mean {mean!r} of {samples} samples: give a mean from 0 to 1 of at least one sample")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    spread = z * math.sqrt(mean * (1 - mean) / samples + z * z / (4 * samples * samples))
    centre = mean + z * z / (2 * samples)
    scale = 1 + z * z / samples
    return max(0.0, min(mean, (centre - spread) / scale)), min(1.0, max(mean, (centre + spread) / scale))
