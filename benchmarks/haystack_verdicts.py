"""Sections of benchmarks/false_verdicts.py about samples that share haystacks, and about an unchanged checkpoint.

Samples on one haystack are correlated by copying: with probability sqrt(rho), a sample takes the score that is drawn
for its haystack. So two samples on a haystack correlate by rho, and every score keeps its distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from benchmarks.simulated_panels import DISCORDANT, PARTS, Figure, Floats, task_accuracies
from longctx.fixtures.records import HAYSTACKS, Case
from longctx.plugins.evidence.clusters import ClusteredQueue
from longctx.plugins.evidence.haystacks import Haystacks, Ints, model_interval
from longctx.plugins.evidence.sequential import NonInferiority, decide_pairs
from longctx.plugins.evidence.statistics import Decision, decide_paired
from longctx.plugins.verdicts.diagnoses import _worse_cases
from longctx.plugins.verdicts.panels import Panel

ALPHA = 0.01
DROP, CLEAR = 0.02, 0.01
CORRELATIONS = (0.0, 0.1, 0.2, 0.3)
TASKS = len(PARTS)
# 16 samples on each of a task's haystacks.
SAMPLES = 512
# The samples on one haystack.
BLOCK = SAMPLES // HAYSTACKS
# A third of that for intervals, which take longest; a narrower interval misses no more often.
FEWER_SAMPLES = 192
LENGTHS = 3
FALSE_DISCOVERIES = 0.05
# The number of pairs of a case at the earlier look.
EARLY_LOOK = 128
# The other cases of a run in which one case is named.
OTHERS_FLIP, OTHERS_CORRELATION = 0.05, 0.1
LOSSES, NAMED_CORRELATION = (0.05, 0.1, 0.15, 0.2), 0.3
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


def case_of(number: int, samples: int) -> Case:
    """Return a case whose samples share haystacks."""
    return Case(
        id=f"test_ruler[task{number}-4k]", suite="ruler", category="retrieval", task=f"task{number}", length=4096,
        samples=samples, source="archive", generation_tokens=1, shares_haystacks=True,
    )  # fmt: skip


@cache
def queue_of(samples: int) -> ClusteredQueue:
    """Return the queue of a panel of 13 tasks whose samples share haystacks."""
    cases = [case_of(number, samples) for number in range(TASKS)]
    return Panel("ruler", 4096, cases, seed=0, hypotheses=()).queue({case.id for case in cases})


def changes(rng: np.random.Generator, loss: float, discordant: float = DISCORDANT) -> Draw:
    """Return a draw of differences with an expected mean of -loss."""
    shares = ((discordant + loss) / 2, 1 - discordant, (discordant - loss) / 2)
    return lambda tasks: rng.choice((-1.0, 0.0, 1.0), tasks.size, p=shares)


def model_gate(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the regression gate about the model, and for contrast a test that takes samples as independent."""
    queue = queue_of(SAMPLES)
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
    queue = queue_of(SAMPLES)
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
    """Measure how often a run of 39 cases names a case of an unchanged model, with all pairs or at one look before."""
    cases, samples = TASKS * LENGTHS, SAMPLES
    of_case = np.array([case_of(0, samples).haystack(index) for index in range(samples)], dtype=np.intp)
    own = np.tile(np.sort(of_case), (cases, 1))
    sizes = np.bincount(of_case)
    for correlation, share in (*((value, DISCORDANT) for value in CORRELATIONS), (0.0, RARE), (0.3, RARE)):
        at_end = at_any_look = 0
        for _ in range(orders):
            haystacks = [Haystacks(of_cluster=order, sizes=sizes) for order in rng.permuted(own, axis=1)]
            draw = changes(rng, 0, share)
            differences = [
                on_haystacks(rng, draw, np.zeros(samples, dtype=np.intp), each.of_cluster, correlation)
                for each in haystacks
            ]
            early, named = (
                bool(_names([values[:look] for values in differences], haystacks)) for look in (EARLY_LOOK, samples)
            )
            at_end, at_any_look = at_end + named, at_any_look + (early or named)
        yield Figure(
            name=f"correlation {correlation:g}, {share:.1%} flip: names a case",
            value=at_end / orders,
            most=FALSE_DISCOVERIES,
            note=f"or at {EARLY_LOOK} pairs {at_any_look / orders:.2%}",
        )


def named_among_others(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure how often one case is named among 38 of an unchanged model: one that trades many small losses for few
    large gains, and one that has lost."""
    for share, gain in ((1 / 8, 0.02), (1 / 8, 0.0), (1 / 4, 0.0)):
        yield Figure(
            name=f"{100 * gain:+g} points in the mean, better on {share:.0%} of haystacks",
            value=_named_share(rng, orders, partial(_trade, rng, share, gain)),
            most=FALSE_DISCOVERIES,
        )
    own = np.repeat(np.arange(HAYSTACKS), BLOCK)
    zeros = np.zeros(own.size, dtype=np.intp)
    for loss in LOSSES:
        for both in (0.0, 0.05):
            draw = changes(rng, loss, loss + both)
            named = _named_share(rng, orders, partial(on_haystacks, rng, draw, zeros, own, NAMED_CORRELATION))
            yield Figure(name=f"{100 * loss:g} points lost, {100 * (loss + both):g} % flip: named", value=named)


def _named_share(rng: np.random.Generator, orders: int, draw: Callable[[], Floats]) -> float:
    """Return how often a case with the drawn differences is named."""
    own = np.repeat(np.arange(HAYSTACKS), BLOCK)
    zeros, unchanged = np.zeros(own.size, dtype=np.intp), changes(rng, 0, OTHERS_FLIP)
    named = 0
    for _ in range(orders):
        cases = [draw()]
        cases += [on_haystacks(rng, unchanged, zeros, own, OTHERS_CORRELATION) for _ in range(TASKS * LENGTHS - 1)]
        queues = [rng.permutation(own.size) for _ in cases]
        differences = [values[order] for values, order in zip(cases, queues, strict=True)]
        haystacks = [Haystacks(of_cluster=own[order], sizes=np.full(HAYSTACKS, BLOCK)) for order in queues]
        named += "0" in _names(differences, haystacks)
    return named / orders


def _trade(rng: np.random.Generator, share: float, gain: float) -> Floats:
    """Return the differences of a case with this mean: a share of haystacks gains much, every other one loses once."""
    expected = (BLOCK * gain + 1 - share) / share
    gains = rng.random(HAYSTACKS) < share
    counts = np.where(gains, np.floor(expected + rng.random(HAYSTACKS)), 1)
    places = rng.permuted(np.tile(np.arange(BLOCK), (HAYSTACKS, 1)), axis=1)
    differences = np.where(places < counts[:, np.newaxis], np.where(gains, 1.0, -1.0)[:, np.newaxis], 0.0)
    return differences.ravel()


def model_intervals(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure how often the interval about the model misses its mean at any look: unequal tasks, fractional scores."""
    queue = queue_of(FEWER_SAMPLES)
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
    size = TASKS * SAMPLES
    for lengths, drop in ((1, DROP), (6, DROP), (6, 0.03)):
        for share in FLIPS:
            # A pass of every length may use the whole error probability of the run.
            limit = _least_pairs(share, drop, ALPHA)
            decisions = [
                decide_paired(
                    changes(rng, 0, share)(np.zeros(size, dtype=np.intp)),
                    drop=drop,
                    clear=drop / 2,
                    alpha=ALPHA / lengths,
                    pass_alpha=ALPHA,
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


def _names(differences: list[Floats], haystacks: list[Haystacks]) -> set[str]:
    by_case = {str(number): each for number, each in enumerate(zip(differences, haystacks, strict=True))}
    return _worse_cases(by_case, FALSE_DISCOVERIES)


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
