"""The setting of one search: its checkpoints, the loss between the endpoints, and the bounds of a step's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ci.bisect.compare import SCREEN_ALPHA, Bounds, Suite, compare_step, search_bounds
from ci.bisect.endpoints import Endpoints
from ci.bisect.gold_answers import CONTEXTS, LossRise, rise_of_loss, verdict_by_rise
from ci.bisect.journal_stats import Flip, JournalStats
from ci.bisect.search import StepVerdict, max_measurements
from ci.bisect.telling_samples import MOST_CONTEXTS, TellingSamples, telling_samples
from ci.checkpoint_dirs import Step
from fixtures.checkpoints.checkpoint import CheckpointError

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
        return self._telling(MOST_CONTEXTS)

    @cached_property
    def rise_between_endpoints(self) -> LossRise:
        """The rise of the loss of the gold answers from the good endpoint to the bad one."""
        return self._rise(self.last)

    def screen(self, position: int) -> StepVerdict:
        """Compare the step at this position with the good endpoint on the samples on which the endpoints differ."""
        return self._screen_by_loss(position) or self._screen_by_answers(position)

    @cached_property
    def _flips(self) -> tuple[Flip, ...]:
        """The samples that the endpoints score differently."""
        good, bad = (self.suite.journal_fingerprint(self.steps[position].path) for position in (0, self.last))
        return JournalStats(self.endpoints.report, self.suite.samples).flips(good, bad, self.endpoints.cases)

    def _telling(self, most: int) -> TellingSamples:
        groups = {case["id"]: case.get("group", 1) for case in self.endpoints.report["cases"]}
        return telling_samples(self._flips, groups, most)

    def _rise(self, position: int) -> LossRise:
        """Return the rise of a step's loss of the gold answers over the good endpoint's."""
        step, good = self.steps[position].path, self.steps[0].path
        few = self._telling(CONTEXTS).values
        try:
            run = self.suite.compare(step, good, self.bounds, cases=self.endpoints.cases, only=few, likelihood=True)
        except CheckpointError as error:
            return LossRise(nats=None, reason=str(error))
        return rise_of_loss(run)

    def _screen_by_loss(self, position: int) -> StepVerdict | None:
        """Return the verdict by the loss of the gold answers, None if it does not tell.

        The difference is that of the whole case if the step has the same share of the loss of answers.
        """
        whole = self.rise_between_endpoints.nats
        if whole is None or not self.rise_between_endpoints.tells:
            return None
        rise = self._rise(position)
        verdict = None if rise.nats is None else verdict_by_rise(rise.nats, whole)
        if rise.nats is None or verdict is None:
            return None
        # A gold answer may be less likely still than at the bad endpoint, which says nothing about points.
        share = min(1.0, max(0.0, rise.nats / whole))
        return StepVerdict(
            verdict=verdict, difference=-self.endpoints.loss_points * share, pairs=rise.pairs, is_screened=True,
            rise_of_loss=rise.nats,
        )  # fmt: skip

    def _screen_by_answers(self, position: int) -> StepVerdict:
        """Return the verdict by the answers.

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
