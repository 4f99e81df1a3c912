"""The rates at which the samples of a panel's cases are drawn, from the results of an earlier checkpoint.

A mean over cases is known soonest if a case is drawn in proportion to the spread of its scores (Neyman 1934): a case on
which all samples score alike tells little with each further one. Verdicts hold for any rates (`plugins.gates.strata`);
the results of another checkpoint only decide how many samples they take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# An earlier checkpoint with fewer results of a case says too little about their spread.
MIN_RESULTS = 8
# A case is drawn at no less than this share of the largest rate: an earlier checkpoint may have scored alike by chance,
# and rare draws weigh so much that bets must be small.
SMALLEST_RATE = 0.4
# The spread of scores of which half are 0 and half are 1.
LARGEST_SPREAD = 0.5
# Every case has this many results with the largest spread besides its own.
PRIOR_RESULTS = 1


def draw_rates(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the rate of every case, from `SMALLEST_RATE` to 1, given its scores; {} if a case has too few of them.

    Rates are rounded, so that they are the same on every machine.
    """
    if any(len(values) < MIN_RESULTS for values in scores.values()):
        return {}
    return {case_id: _rate(values) for case_id, values in scores.items()}


def _rate(scores: Sequence[float]) -> float:
    mean = math.fsum(scores) / len(scores)
    squares = math.fsum((score - mean) ** 2 for score in scores) + PRIOR_RESULTS * LARGEST_SPREAD**2
    spread = math.sqrt(squares / (len(scores) + PRIOR_RESULTS))
    return round(min(1.0, max(SMALLEST_RATE, spread / LARGEST_SPREAD)), 2)
