"""Sections of benchmarks/false_verdicts.py about gates on the worst phase.

The scores of one sample at two residues are correlated by copying, as those on one haystack in
benchmarks/haystack_verdicts.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.figures import Figure
from benchmarks.simulated_panels import Floats
from plugins.gates.phases import decide_phases

ALPHA = 0.01
WITHIN = 0.15
CORRELATION = 0.3
# The number of base samples, each with a score for every phase.
ROWS = 256
MIN_ROWS = 8
# Mean scores by residue.
EQUAL = {4: np.full(4, 0.6), 8: np.full(8, 0.6)}
AT_LIMIT = np.array([0.6, 0.6 - WITHIN, 0.6, 0.6])
ONE_LOW = np.array([0.9, 0.5, 0.9, 0.9])
SOUND = np.full(8, 0.97)


def phase_rows(rng: np.random.Generator, means: Floats) -> Floats:
    """Return right and wrong answers with these means, correlated by `CORRELATION` within a row."""
    shared = rng.random((ROWS, 1))
    copies = rng.random((ROWS, means.size)) < np.sqrt(CORRELATION)
    scores: Floats = (np.where(copies, shared, rng.random((ROWS, means.size))) < means).astype(float)
    return scores


def worst_phase(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure gates on phases that score alike, that differ by exactly the limit, and that differ by 40 points."""
    for modulus, means in EQUAL.items():
        yield _figure(f"mod {modulus}, all phases at 60: wrong fail", rng, orders, means, ("fail",))
    for wrong in ("fail", "pass"):
        name = f"mod 4, one phase lower by the limit: wrong {wrong}"
        yield _figure(name, rng, orders, AT_LIMIT, (wrong,))
    yield _figure("mod 4, one phase at 50, others at 90: not found", rng, orders, ONE_LOW, ("pass", "inconclusive"))
    yield _figure("mod 8, all phases at 97: not passed", rng, orders, SOUND, ("fail", "inconclusive"), most=None)


def _figure(
    name: str,
    rng: np.random.Generator,
    orders: int,
    means: Floats,
    wrong: Sequence[str],
    most: float | None = ALPHA,
) -> Figure:
    words: Counter[str] = Counter()
    looks = []
    for _ in range(orders):
        rows = phase_rows(rng, means)
        decision = decide_phases(rows, (means.size,), WITHIN, alpha=ALPHA, min_observations=MIN_ROWS)
        words[decision.verdict if decision else "inconclusive"] += 1
        looks.append(decision.stopping_time if decision else ROWS)
    shares = ", ".join(f"{word} {words[word] / orders:.1%}" for word in ("pass", "fail", "inconclusive"))
    errors = sum(words[word] for word in wrong) / orders
    samples = means.size * np.median(looks)
    return Figure(name=name, value=errors, most=most, note=f"{shares}; median {samples:.0f} samples")


PHASE_SECTIONS = {f"Worst phase, {100 * WITHIN:g} points allowed, samples correlated by {CORRELATION:g}": worst_phase}
