"""Tell good steps from bad ones by the loss of the gold answers, the negative log-likelihood of what is right.

On the samples on which the endpoints differ, this loss is far apart at the two endpoints, and it hardly moves where
single answers flip by chance. So a few samples tell, and nothing is decoded. A step in between is screened by answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ci.bisect.compare import CLEAR_SHARE, DROP_SHARE
from ci.suite_process import SuiteRun

# In 4000 draws from measured pairs, one sample was enough to separate good steps from bad ones; more of them guard
# against one whose gold answer is unusual.
CONTEXTS = 3
# A difference between the endpoints that a step without a loss can have by chance.
LEAST_RISE_NATS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRise:
    """The loss of a checkpoint on the gold answers, less that of the good endpoint."""

    nats: float | None
    """Nats a token; None if it was not measured."""
    pairs: int = 0
    """Samples of both checkpoints."""
    reason: str = ""
    """One line that says why it was not measured."""

    @property
    def tells(self) -> bool:
        """Return True for a bad endpoint whose steps can be told apart by it."""
        return self.nats is not None and self.nats >= LEAST_RISE_NATS

    @property
    def line(self) -> str:
        """What a bad endpoint with this rise means for the screening of steps."""
        if self.nats is None:
            return f"by answers, because likelihoods were not measured: {self.reason}"
        lost = f"gold answers lose {self.nats:.2f} nats a token between the endpoints"
        return f"by likelihood: {lost}" if self.tells else f"by answers: {lost}, less than {LEAST_RISE_NATS:g}"


def rise_of_loss(run: SuiteRun) -> LossRise:
    """Return the rise over the baseline's loss that a run measured."""
    likelihood = run.report["likelihood"] if run.report else None
    changes = [panel["change"] for panel in likelihood["panels"] if panel["change"]] if likelihood else []
    pairs = sum(change["pairs"] for change in changes)
    if not pairs:
        return LossRise(nats=None, reason=run.reason or "no samples of both checkpoints")
    nats = sum(change["pairs"] * change["nll"]["mean"] for change in changes) / pairs
    return LossRise(nats=nats, pairs=pairs)


def verdict_by_rise(rise: float, between_endpoints: float) -> Literal["good", "bad"] | None:
    """Return the verdict of a step whose loss rose by so many nats; None if that lies between the thresholds."""
    share = rise / between_endpoints
    if share <= CLEAR_SHARE:
        return "good"
    return "bad" if share >= DROP_SHARE else None
