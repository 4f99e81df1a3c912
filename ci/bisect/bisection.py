"""The setting of one search: its checkpoints, the loss between the endpoints, and the bounds of a step's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ci.bisect.compare import SCREEN_ALPHA, Bounds, Suite, compare_step, search_bounds
from ci.bisect.endpoints import Endpoints
from ci.bisect.journal_stats import JournalStats
from ci.bisect.search import StepVerdict, max_measurements
from ci.bisect.telling_samples import TellingSamples, telling_samples
from ci.checkpoint_dirs import Step

# With neighbouring endpoints no step is measured, and only the edge itself is compared.
NEIGHBOURS_ALPHA = 0.01


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """A series of checkpoints from a good one to a bad one, and the settings for measuring those between them."""

    suite: Suite
    steps: Sequence[Step]
    """All checkpoints by step: the good endpoint first, the bad one last."""
    endpoints: Endpoints
    confidence: float
    """Probability that the whole search is right, 0 to 1."""
    parallel: int = 1
    """Number of steps to measure at a time."""

    @property
    def last(self) -> int:
        """Position of the bad endpoint."""
        return len(self.steps) - 1

    @property
    def bounds(self) -> Bounds:
        """Bounds of a step's verdict; all steps of a search share its probability of error."""
        alpha = NEIGHBOURS_ALPHA
        if self.last > 1:
            alpha = (1 - self.confidence) / max_measurements(self.last, parallel=self.parallel)
        return search_bounds(self.endpoints.loss_points, alpha=alpha)

    @cached_property
    def telling(self) -> TellingSamples:
        """The samples that screen a step."""
        report = self.endpoints.report
        good, bad = (self.suite.journal_fingerprint(self.steps[position].path) for position in (0, self.last))
        flips = JournalStats(report, self.suite.samples).flips(good, bad, self.endpoints.cases)
        return telling_samples(flips, {case["id"]: case.get("group", 1) for case in report["cases"]})

    def screen(self, position: int) -> StepVerdict:
        """Compare the step at this position with the good endpoint on the samples on which the endpoints differ.

        The difference is that of the whole case if the step has lost the same share of it.
        """
        bounds = search_bounds(self.telling.loss_points, alpha=SCREEN_ALPHA)
        step, good = self.steps[position].path, self.steps[0].path
        verdict = compare_step(self.suite, step, good, bounds, self.endpoints.cases, self.telling.values)
        if verdict.difference is None or verdict.interval is None:
            return verdict
        share = self.endpoints.loss_points / self.telling.loss_points
        low, high = verdict.interval
        return replace(
            verdict, difference=share * verdict.difference, interval=(share * low, share * high), is_screened=True
        )

    def measure(self, position: int) -> StepVerdict:
        """Compare the step at this position with the good endpoint."""
        return self.compare(position, 0)

    def compare(self, position: int, baseline: int) -> StepVerdict:
        """Compare the step at one position with the step at another."""
        model_path, baseline_path = self.steps[position].path, self.steps[baseline].path
        return compare_step(self.suite, model_path, baseline_path, self.bounds, self.endpoints.cases)
