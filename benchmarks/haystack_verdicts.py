"""Sections of benchmarks/false_verdicts.py about samples that share haystacks, and about an unchanged checkpoint.

Samples on one haystack are correlated by copying: with probability sqrt(rho), a sample takes the score that is drawn
for its haystack. So two samples on a haystack correlate by rho, and every score keeps its distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from benchmarks.figures import Figure
from benchmarks.simulated_panels import DISCORDANT, PARTS, Floats, task_accuracies
from fixtures.records import Case
from plugins.gates.clusters import ClusteredQueue
from plugins.gates.diagnoses import worse_cases
from plugins.gates.haystacks import Haystacks, Ints, model_interval, votes
from plugins.gates.panels import Panel
from plugins.gates.sequential import NonInferiority, decide_pairs
from plugins.gates.statistics import Decision, decide_paired

ALPHA = 0.01
DROP, CLEAR = 0.02, 0.01
CORRELATIONS = (0.0, 0.1, 0.2, 0.3)
TASKS = len(PARTS)
# 32 haystacks a task, as in 500 samples.
HAYSTACKS, BLOCK = 32, 16
# A third of that for intervals, which take longest; a narrower interval misses no more often.
FEWER_HAYSTACKS = 12
LENGTHS = 3
FALSE_DISCOVERIES = 0.05
# The number of pairs of a case at the earlier look.
EARLY_LOOK = 128
# Most cases of a run have no vote where so few answers flip.
RARE = 0.001
FLIPS = (0.005, 0.01, 0.02, 0.05)

Draw = Callable[[Ints], Floats]
"""Draws one score for every task number."""


def on_haystacks(rng: np.random.Generator, draw: Draw, tasks: Ints, of_cluster: Ints, correlation: float) -> Floats:
    """Return a score for every cluster; `tasks` and `of_cluster` hold its task and its haystack."""
    task_of_haystack = np.zeros(int(of_cluster.max()) + 1, dtype=np.intp)
    task_of_haystack[of_cluster] = tasks
    copies = rng.random(tasks.size) < np.sqrt(correlation)
    scores: Floats = np.where(copies, draw(task_of_haystack)[of_cluster], draw(tasks))
    return scores


@cache
def queue_of(haystacks: int) -> ClusteredQueue:
    """Return the queue of a panel of 13 tasks whose samples share haystacks by sixteens."""
    cases = [
        Case(
            id=f"test_ruler[task{number}-4k]", suite="ruler", category="retrieval", task=f"task{number}", length=4096,
            samples=haystacks * BLOCK, source="archive", generation_tokens=1, block=BLOCK,
        )
        for number in range(TASKS)
    ]  # fmt: skip
    return Panel("ruler", 4096, cases, seed=0, hypotheses=()).queue({case.id for case in cases})


def changes(rng: np.random.Generator, loss: float, discordant: float = DISCORDANT) -> Draw:
    """Return a draw of differences with an expected mean of -loss."""
    shares = ((discordant + loss) / 2, 1 - discordant, (discordant - loss) / 2)
    return lambda tasks: rng.choice((-1.0, 0.0, 1.0), tasks.size, p=shares)


def model_gate(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the regression gate about the model, and for contrast a test that takes samples as independent."""
    queue = queue_of(HAYSTACKS)
    hypothesis = NonInferiority(drop=DROP, clear=CLEAR, alpha=ALPHA)
    for correlation in CORRELATIONS:
        for loss, wrong in ((0.0, "fail"), (DROP, "pass")):
            verdicts: list[Decision | None] = []
            independent: list[Decision | None] = []
            for _ in range(orders):
                draw = changes(rng, loss)
                scores = on_haystacks(rng, draw, queue.strata.stratum, queue.haystacks.of_cluster, correlation)
                verdicts.append(decide_pairs(hypothesis, queue, scores))
                independent.append(decide_paired(scores, drop=DROP, clear=CLEAR, alpha=ALPHA, min_observations=26))
            yield Figure(
                name=f"correlation {correlation:g}, {'2 points worse' if loss else 'unchanged'}: {wrong}",
                value=_share(verdicts, wrong),
                most=ALPHA,
                note=f"as if independent {_share(independent, wrong):.2%}; open {_share(verdicts, None):.0%}",
            )


def planned_gate(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the gate about the planned samples in random orders of sets that lie one step on the other side.

    It also shows how often it fails an unchanged model whose planned samples happen to be worse.
    """
    queue = queue_of(HAYSTACKS)
    size = len(queue.clusters)
    for correlation in CORRELATIONS:
        for loss, step, wrong in ((CLEAR, 1, "fail"), (DROP, -1, "pass")):
            scores = on_haystacks(
                rng, changes(rng, loss), queue.strata.stratum, queue.haystacks.of_cluster, correlation
            )
            with_total = _with_total(rng, scores, step - round(loss * size))
            verdicts = [_planned(rng.permutation(with_total)) for _ in range(orders)]
            yield Figure(
                name=f"correlation {correlation:g}, set {100 * loss:g} points worse: wrong {wrong}",
                value=_share(verdicts, wrong),
                most=ALPHA,
                note=f"median {np.median([verdict.stopping_time for verdict in verdicts if verdict]):.0f} pairs",
            )
        unchanged = [
            _planned(on_haystacks(rng, changes(rng, 0), queue.strata.stratum, queue.haystacks.of_cluster, correlation))
            for _ in range(orders)
        ]
        yield Figure(
            name=f"correlation {correlation:g}, unchanged model: set is worse, fail", value=_share(unchanged, "fail")
        )


def named_cases(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure how often a run of 39 cases names a case of an unchanged model, with all pairs or at one look before.

    For contrast, the same test takes every sample as a vote.
    """
    cases, samples = TASKS * LENGTHS, HAYSTACKS * BLOCK
    own = np.tile(np.repeat(np.arange(HAYSTACKS), BLOCK), (cases, 1))
    sizes = np.full(HAYSTACKS, BLOCK)
    for correlation, share in (*((value, DISCORDANT) for value in CORRELATIONS), (0.0, RARE), (0.3, RARE)):
        at_end = at_any_look = as_samples = 0
        for _ in range(orders):
            haystacks = [Haystacks(of_cluster=order, sizes=sizes) for order in rng.permuted(own, axis=1)]
            draw = changes(rng, 0, share)
            differences = [
                on_haystacks(rng, draw, np.zeros(samples, dtype=np.intp), of_case.of_cluster, correlation)
                for of_case in haystacks
            ]
            early, named = (
                _names([votes(values[:look], of_case) for values, of_case in zip(differences, haystacks, strict=True)])
                for look in (EARLY_LOOK, samples)
            )
            at_end, at_any_look = at_end + named, at_any_look + (early or named)
            as_samples += _names([values[values != 0] for values in differences])
        yield Figure(
            name=f"correlation {correlation:g}, {share:.1%} flip: names a case",
            value=at_end / orders,
            most=FALSE_DISCOVERIES,
            note=f"or at {EARLY_LOOK} pairs {at_any_look / orders:.2%}; samples as votes {as_samples / orders:.1%}",
        )


def model_intervals(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure how often the interval about the model misses its mean at any look: unequal tasks, fractional scores."""
    queue = queue_of(FEWER_HAYSTACKS)
    for correlation in CORRELATIONS:
        missed, widths = 0, []
        for _ in range(orders):
            accuracies = task_accuracies(rng, 0.85, TASKS)

            def draw(tasks: Ints, accuracies: Floats = accuracies) -> Floats:
                parts = np.array(PARTS)[tasks]
                shares: Floats = rng.binomial(parts, accuracies[tasks]) / parts
                return shares

            scores = on_haystacks(rng, draw, queue.strata.stratum, queue.haystacks.of_cluster, correlation)
            # The bounds at the last look enclose what all looks have left.
            low, high = model_interval(scores, queue.haystacks, alpha=ALPHA)
            missed += not low <= 0.85 <= high
            widths.append(high - low)
        yield Figure(
            name=f"correlation {correlation:g}: interval about the model misses",
            value=missed / orders,
            most=ALPHA,
            note=f"median width {100 * np.median(widths):.1f} points after {len(queue.clusters)} samples",
        )


def unchanged_costs(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the pairs until an unchanged model passes, as shares of all planned pairs."""
    size = TASKS * HAYSTACKS * BLOCK
    for lengths, drop in ((1, DROP), (6, DROP), (6, 0.03)):
        for share in FLIPS:
            limit = _least_pairs(share, drop, ALPHA / lengths)
            decisions = [
                decide_paired(
                    changes(rng, 0, share)(np.zeros(size, dtype=np.intp)),
                    drop=drop,
                    clear=drop / 2,
                    alpha=ALPHA / lengths,
                    min_observations=26,
                    population=size,
                )
                for _ in range(orders)
            ]
            pairs = [decision.stopping_time for decision in decisions if decision is not None]
            yield Figure(
                name=f"{lengths} lengths, drop {100 * drop:g}, {share:.1%} of answers flip: pairs",
                value=float(np.median(pairs)) / size,
                note=f"median {np.median(pairs):.0f}; limit of any bet {limit:.0f}",
            )


def _least_pairs(share: float, drop: float, alpha: float) -> float:
    """Return log(1/alpha) divided by the growth of the best bet that is fixed beforehand, for unlimited samples."""
    stakes = np.linspace(0.001, 0.999, 999)
    growth = (
        (1 - share) * np.log1p(stakes * drop / (1 - drop))
        + share / 2 * np.log1p(-stakes)
        + share / 2 * np.log1p(stakes * (1 + drop) / (1 - drop))
    )
    return float(-np.log(alpha) / growth.max())


def _planned(differences: Floats) -> Decision | None:
    return decide_paired(
        differences, drop=DROP, clear=CLEAR, alpha=ALPHA, min_observations=26, population=differences.size
    )


def _names(votes_of_cases: list[Floats]) -> bool:
    by_case = {str(number): cast for number, cast in enumerate(votes_of_cases)}
    return bool(worse_cases(by_case, FALSE_DISCOVERIES))


def _with_total(rng: np.random.Generator, differences: Floats, total: int) -> Floats:
    """Return the differences with as few of them changed as give this total."""
    changed = differences.copy()
    missing = total - int(changed.sum())
    step = 1 if missing > 0 else -1
    candidates = np.flatnonzero(changed != step)
    while missing:
        # A candidate may be -1 and is raised to 0 first.
        place = rng.choice(candidates)
        if changed[place] != step:
            changed[place] += step
            missing -= step
    return changed


def _share(verdicts: list[Decision | None], word: str | None) -> float:
    return sum((verdict.verdict if verdict else None) == word for verdict in verdicts) / len(verdicts)


HAYSTACK_SECTIONS = {
    "Regression gate on the planned samples, 13 tasks, samples alike by sixteens": planned_gate,
    "Regression gate on the model (population = false), 13 tasks, samples alike by sixteens": model_gate,
    "Cases of an unchanged model that are named, 39 cases, samples alike by sixteens": named_cases,
    "Interval about the model, 13 unequal tasks, fractional scores, samples alike by sixteens": model_intervals,
    "Pairs until an unchanged model passes, share of 6656": unchanged_costs,
}
