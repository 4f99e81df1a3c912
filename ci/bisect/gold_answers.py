"""Tell good steps from bad ones by the loss of the gold answers, the negative log-likelihood of what is right.

On the samples on which the endpoints differ, this loss is far apart at the two endpoints, and it hardly moves where
single answers flip by chance. So a few samples tell, and nothing is decoded. A step in between is screened by answers.
"""

from __future__ import annotations

from typing import Literal

from ci.bisect.compare import CLEAR_SHARE, DROP_SHARE
from ci.suite_process import SuiteRun

# One sample told every step from the other side in 4000 draws from measured pairs; more of them guard against one
# whose gold answer is unusual.
CONTEXTS = 3
# A difference between the endpoints that a step without a loss can have by chance.
LEAST_RISE_NATS = 0.2


def rise_of_loss(run: SuiteRun) -> tuple[float, int] | None:
    """Return by how many nats a token the loss exceeds the baseline's, and on how many samples.

    None if the run has no likelihoods of both checkpoints.
    """
    likelihood = run.report["likelihood"] if run.report else None
    changes = [panel["change"] for panel in likelihood["panels"] if panel["change"]] if likelihood else []
    pairs = sum(change["pairs"] for change in changes)
    if not pairs:
        return None
    return sum(change["pairs"] * change["nll"]["mean"] for change in changes) / pairs, pairs


def verdict_of(rise: float, between_endpoints: float) -> Literal["good", "bad"] | None:
    """Return the verdict of a step whose loss rose by so many nats; None between the two."""
    share = rise / between_endpoints
    if share <= CLEAR_SHARE:
        return "good"
    return "bad" if share >= DROP_SHARE else None
