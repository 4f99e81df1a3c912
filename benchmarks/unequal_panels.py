"""Sections of benchmarks/false_verdicts.py about panels whose cases differ in clusters or their size.

A level gate has 13 tasks of 20 to 160 samples, with the threshold one step from their mean. The panel of comparisons is
a family of a tasks file with sets of 500, 200, 100 and 40 questions, of which the second asks four about each text.
Clusters of small sets weigh more, and samples are drawn at rates proportional to these weights. The order that is
uniform over all clusters is measured beside it. HELMET's recall has equally many clusters of every data set, of which
one asks six questions about each context.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from benchmarks.simulated_panels import SIZES as TASK_SIZES
from benchmarks.simulated_panels import Figure, Floats, unequal_panel
from longctx.fixtures.records import Case
from longctx.fixtures.tasks import TASKS
from longctx.plugins.evidence.clusters import ClusteredQueue
from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.sequential import NonInferiority, decide_pairs
from longctx.plugins.evidence.statistics import decide_level
from longctx.plugins.verdicts.panels import Panel

FAMILY, LENGTH = "own", 8192
# The samples and the group of every set.
SETS = ((500, 1), (200, 4), (100, 1), (40, 1))
TEST = NonInferiority(drop=0.02, clear=0.01, alpha=0.01, finite_population=True)
# The shares of clusters that differ, and the points, 0 to 1, by which they do.
FLIPS = (0.02, 0.1, 0.3)
SIZES = (1.0, 0.25)
# The questions of a data set that has no limit of its own.
HELMET_QUESTIONS = 500
CORRELATION, BLOCK = 0.3, 16
THRESHOLD = 0.856


def one_step_off(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure wrong verdicts on scores alone, and with bets on the differences to the mean of each task so far."""
    stratum = np.repeat(np.arange(len(TASK_SIZES)), TASK_SIZES)
    weights = min(TASK_SIZES) / np.array(TASK_SIZES, dtype=float)
    for name, has_task_means in (("scores alone", False), ("and task means", True)):
        for step, wrong in ((1, "pass"), (-1, "fail")):
            errors = 0
            for _ in range(orders):
                order = rng.permutation(stratum.size)
                values = np.concatenate(unequal_panel(rng, THRESHOLD))[order] * weights[stratum[order]]
                strata = Strata(stratum=stratum[order], weights=weights, rates=np.ones(len(TASK_SIZES)))
                # The smallest change of the panel's mean is that of one sample of the largest task.
                decision = decide_level(
                    values,
                    float(values.mean()) + step * float(weights.min()) / values.size,
                    alpha=TEST.alpha,
                    population=values.size,
                    min_observations=26,
                    strata=strata if has_task_means else None,
                )
                errors += decision is not None and decision.verdict == wrong
            yield Figure(name=f"13 unequal tasks, {name}: wrong {wrong}", value=errors / orders, most=TEST.alpha)


@cache
def queue_of_sets(*, by_weight: bool) -> ClusteredQueue:
    """Return the queue of a comparison on the sets."""
    cases = [
        Case(
            id=f"test_questions[set{number}-8k]", suite=FAMILY, category=FAMILY, task=f"set{number}", length=LENGTH,
            samples=samples, source="archive", generation_tokens=1, group=group,
        )
        for number, (samples, group) in enumerate(SETS)
    ]  # fmt: skip
    panel = Panel(FAMILY, LENGTH, cases, seed=0, hypotheses=(), draws_by_weight=by_weight)
    return panel.queue(panel.cases)


def unequal_panels(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure wrong verdicts on sets whose mean lies exactly at a limit, and the cost of right ones."""
    queue = queue_of_sets(by_weight=True)
    for share in FLIPS:
        for size in SIZES:
            for loss, wrong in ((TEST.clear, "fail"), (TEST.drop, "pass")):
                errors = 0
                for _ in range(orders):
                    drawn, values = _shuffled(rng, queue, _with_mean(rng, queue, share, size, -loss))
                    decision = decide_pairs(TEST, drawn, values)
                    errors += decision is not None and decision.verdict == wrong
                yield Figure(
                    name=f"{share:.0%} differ by {100 * size:g}, lost {100 * loss:g} points: wrong {wrong}",
                    value=errors / orders,
                    most=TEST.alpha,
                )
    for share in (0.0, FLIPS[0]):
        costs = {
            by_weight: _samples_until_pass(rng, queue_of_sets(by_weight=by_weight), share, orders)
            for by_weight in (True, False)
        }
        yield Figure(
            name=f"unchanged, {share:.0%} flip: samples by weight, share of uniform",
            value=costs[True] / costs[False],
            note=f"{costs[True]:.0f} instead of {costs[False]:.0f} of {len(queue.refs)}",
        )


def helmet_recall(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the samples until an unchanged model passes HELMET's recall with the samples of a default run."""
    cases = [
        Case(
            id=name, suite="helmet", category=task.category, task=name, length=LENGTH,
            samples=task.group * (task.max_questions or HELMET_QUESTIONS), source="archive", generation_tokens=1,
            group=task.group, shares_haystacks=task.shares_haystacks,
        )
        for name, task in TASKS.items()
        if task.category == "recall"
    ]  # fmt: skip
    queue = Panel("recall", LENGTH, cases, seed=0, hypotheses=()).queue({case.id for case in cases})
    for share in (0.0, FLIPS[0]):
        samples = _samples_until_pass(rng, queue, share, orders)
        yield Figure(
            name=f"unchanged, {share:.0%} flip: samples",
            value=samples / len(queue.refs),
            note=f"median {samples:.0f} of {len(queue.refs)}",
        )


def _samples_until_pass(rng: np.random.Generator, queue: ClusteredQueue, share: float, orders: int) -> float:
    """Return the median number of samples until an unchanged model passes, of which this share of clusters flips."""
    looks = []
    for _ in range(orders):
        differences = rng.choice((-1.0, 0.0, 1.0), queue.strata.population, p=(share / 2, 1 - share, share / 2))
        drawn, values = _shuffled(rng, queue, differences)
        decision = decide_pairs(TEST, drawn, values)
        assert decision is not None
        looks.append(drawn.sample_count(decision.stopping_time))
    return float(np.median(looks))


def _with_mean(rng: np.random.Generator, queue: ClusteredQueue, share: float, size: float, mean: float) -> Floats:
    """Return unweighted differences by cluster, alike in blocks, with exactly this mean of the cases' means.

    What flips add to the mean by chance is taken away from all clusters that differ by nothing, a little from each.
    """
    strata = queue.strata
    count = strata.population
    blocks = np.arange(count) // BLOCK
    draw = rng.choice((-size, 0.0, size), (2, count), p=(share / 2, 1 - share, share / 2))
    differences: Floats = np.where(rng.random(count) < np.sqrt(CORRELATION), draw[0][blocks * BLOCK], draw[1])
    free = differences == 0
    missing = mean / queue.scale * count - float((differences * strata.largest_values).sum())
    differences[free] += missing / float(strata.largest_values[free].sum())
    return differences


def _shuffled(rng: np.random.Generator, queue: ClusteredQueue, differences: Floats) -> tuple[ClusteredQueue, Floats]:
    """Return the queue in another order of draws at its rates, and the weighted differences in that order."""
    strata = queue.strata
    order = np.argsort(rng.exponential(size=strata.population) / strata.rates[strata.stratum])
    drawn = _Reordered(queue, order)
    return drawn, np.clip(differences * strata.largest_values, -1.0, 1.0)[order]


class _Reordered(ClusteredQueue):
    """A queue whose clusters come in another order."""

    def __init__(self, queue: ClusteredQueue, order: np.ndarray):
        clusters = [queue.clusters[place] for place in order]
        super().__init__([ref for cluster in clusters for ref in cluster], queue._cases, queue._rates)
