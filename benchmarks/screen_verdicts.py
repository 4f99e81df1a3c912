"""A section of benchmarks/false_verdicts.py about the screen of `longctx watch --screen`.

The screen compares a checkpoint with one whose gold answers are a little likelier or less likely at random: differences
have the heavy tails of a t-distribution and are correlated on haystacks. Sixteen samples of a case stand on as many
haystacks, 64 on 32 of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure
from longctx.ci.watch.measure import _has_fallen, _has_risen
from longctx.plugins.evidence.haystacks import Haystacks, clustered_error

CASES = 13
HAYSTACKS = 32
SAMPLES = (16, 64)
# The standard deviation of one sample's difference in nats: as little as that of one more step of training.
SPREAD = 0.1
FREEDOM = 4
CORRELATION = 0.3
LENGTHS = 6
# The fall by which embeddings of 1.3 times their size were accepted, in standard errors.
GAIN = 10.0


def screens(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure how often a screen accepts an unchanged checkpoint, and one whose gold answers became likelier."""
    for samples in SAMPLES:
        own = np.concatenate([case * HAYSTACKS + np.arange(samples) % HAYSTACKS for case in range(CASES)])
        haystacks = Haystacks(of_cluster=own, sizes=np.bincount(own))
        upwards, both_ways, found = np.zeros((orders, LENGTHS), dtype=bool), np.zeros((orders, LENGTHS), dtype=bool), 0
        for order in range(orders):
            for length in range(LENGTHS):
                shared = rng.standard_t(FREEDOM, int(own.max()) + 1)[own] * np.sqrt(CORRELATION)
                alone = rng.standard_t(FREEDOM, own.size) * np.sqrt(1 - CORRELATION)
                differences = SPREAD * (shared + alone) / np.sqrt(FREEDOM / (FREEDOM - 2))
                rise, error = float(differences.mean()), clustered_error(differences, haystacks)
                assert error is not None
                found += _has_fallen(rise - GAIN * error, error)
                upwards[order, length] = not _has_risen(rise, error)
                both_ways[order, length] = upwards[order, length] and not _has_fallen(rise, error)
        name = f"{CASES} cases of {samples} samples"
        for title, chosen in (("one length", slice(0, 1)), (f"{LENGTHS} lengths", slice(None))):
            yield Figure(
                name=f"{name}, {title}: unchanged, measured at length",
                value=1 - float(both_ways[:, chosen].all(axis=1).mean()),
                note=f"looking upwards only {1 - float(upwards[:, chosen].all(axis=1).mean()):.2%}",
            )
        yield Figure(
            name=f"{name}: likelier by {GAIN:g} standard errors, not found",
            value=1 - found / (orders * LENGTHS),
            most=0.01,
        )


SCREEN_SECTIONS = {"Screen of a watch": screens}
