"""Sections of benchmarks/false_verdicts.py about gates on the worst phase.

The gates run on the queues of real cases: a sweep of `niah_single_2`, of which every needle has a haystack of its own,
and one whose needles share 32 haystacks. Scores on one haystack are correlated by copying, as in
benchmarks/haystack_verdicts.py, at every residue by itself: that makes the differences between residues alike on a
haystack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from benchmarks.figures import Figure
from benchmarks.simulated_panels import Floats
from longctx.fixtures.records import PHASES, Case, sweep_name
from longctx.fixtures.tasks import load_tasks
from longctx.plugins.evidence.clusters import ClusteredQueue
from longctx.plugins.evidence.phases import decide_phases
from longctx.plugins.verdicts.panels import Panel

ALPHA = 0.01
WITHIN = 0.15
TASK, LENGTH = "niah_single_2", 4096
CORRELATIONS = (0.0, 0.1, 0.3, 0.6)
HAYSTACKS = 32
# The numbers of needles, each with a score for every phase; the last is large enough for most verdicts.
NEEDLES = (16, 64, 200, 500)
# Mean scores by residue.
EQUAL = np.full(8, 0.6)
AT_LIMIT = np.array([0.6, 0.6 - WITHIN, 0.6, 0.6])
HIGH_AT_LIMIT = np.array([0.99, 0.99 - WITHIN, 0.99, 0.99])
ONE_LOW = np.array([0.9, 0.5, 0.9, 0.9])
SOUND = np.full(8, 0.97)
WRONG = (
    ("mod 8, all at 60", EQUAL, ("fail",)),
    ("mod 4, one at 45, others 60", AT_LIMIT, ("fail", "pass")),
    ("mod 4, one at 84, others 99", HIGH_AT_LIMIT, ("fail", "pass")),
)


@cache
def sweep_queue(modulus: int, needles: int, *, shared: bool) -> ClusteredQueue:
    """Return the queue of a phase gate; with `shared`, its needles stand on `HAYSTACKS` haystacks in turn."""
    name = sweep_name(TASK, modulus)
    task = load_tasks(sweeps=[name])[name]
    case = Case(
        id=f"test_phases[{name}-4k]", suite=PHASES, category=task.category, task=name, length=LENGTH,
        samples=needles * modulus, source="archive", generation_tokens=task.generation_tokens, group=task.group,
    )  # fmt: skip
    if shared:
        case = replace(case, documents=tuple(index // modulus % HAYSTACKS for index in range(case.samples)))
    return Panel(PHASES, LENGTH, [case], seed=0, hypotheses=()).queue({case.id})


def phase_rows(rng: np.random.Generator, queue: ClusteredQueue, means: Floats, correlation: float) -> Floats:
    """Return right and wrong answers with these means, correlated on every haystack."""
    own = queue.haystacks.of_cluster
    drawn = rng.random((int(own.max()) + 1, means.size))[own]
    copies = rng.random(drawn.shape) < np.sqrt(correlation)
    scores: Floats = (np.where(copies, drawn, rng.random(drawn.shape)) < means).astype(float)
    return scores


def own_haystacks(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the gates of a run: wrong verdicts, and the needles that right ones take."""
    for needles in NEEDLES:
        for name, means, words in WRONG:
            queue = sweep_queue(means.size, needles, shared=False)
            yield from _figures(f"{needles} needles, {name}", rng, orders, queue, means, 0.0, words)
    for name, means, words in (
        ("mod 4, one at 50, others 90: not found", ONE_LOW, ("pass", "inconclusive")),
        ("mod 8, all at 97: not passed", SOUND, ("fail", "inconclusive")),
    ):
        yield _figure(name, rng, orders, sweep_queue(means.size, NEEDLES[-1], shared=False), means, 0.0, words, None)


def shared_haystacks(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure wrong verdicts where needles share haystacks whose scores correlate."""
    for correlation in CORRELATIONS:
        for needles in NEEDLES:
            for name, means, words in WRONG:
                queue = sweep_queue(means.size, needles, shared=True)
                title = f"correlation {correlation:g}, {needles} needles, {name}"
                yield from _figures(title, rng, orders, queue, means, correlation, words)


def _figures(
    name: str,
    rng: np.random.Generator,
    orders: int,
    queue: ClusteredQueue,
    means: Floats,
    correlation: float,
    wrong: Sequence[str],
) -> Iterator[Figure]:
    for word in wrong:
        yield _figure(f"{name}: wrong {word}", rng, orders, queue, means, correlation, (word,))


def _figure(
    name: str,
    rng: np.random.Generator,
    orders: int,
    queue: ClusteredQueue,
    means: Floats,
    correlation: float,
    wrong: Sequence[str],
    most: float | None = ALPHA,
) -> Figure:
    words: Counter[str] = Counter()
    looks = []
    for _ in range(orders):
        rows = phase_rows(rng, queue, means, correlation)
        decision = decide_phases(
            rows, queue.haystacks, (means.size,), WITHIN, alpha=ALPHA, min_observations=queue.min_clusters
        )
        words[decision.verdict if decision else "inconclusive"] += 1
        looks.append(decision.stopping_time if decision else len(rows))
    shares = ", ".join(f"{word} {words[word] / orders:.1%}" for word in ("pass", "fail", "inconclusive"))
    errors = sum(words[word] for word in wrong) / orders
    return Figure(name=name, value=errors, most=most, note=f"{shares}; median {np.median(looks):.0f} needles")


PHASE_SECTIONS = {
    f"Worst phase, {100 * WITHIN:g} points allowed, as shipped: a haystack for every needle": own_haystacks,
    f"Worst phase, {100 * WITHIN:g} points allowed, needles on 32 haystacks": shared_haystacks,
}
