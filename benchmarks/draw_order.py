"""Sections of benchmarks/false_verdicts.py: level verdicts that use the tasks of a panel.

Two tests read the same panels: the plain one on scores alone, and one that also bets on the differences to the mean of
each task so far.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure
from benchmarks.simulated_panels import SIZES, Floats, profile_panel, unequal_panel
from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.statistics import Decision, decide_level

ALPHA = 0.01
LENGTHS = 6
THRESHOLD = 0.856
MIN_PANEL_SAMPLES = 26
TESTS = ("plain", "task means")
DISTANCES = (8, 4, 2, -2, -4)
# Prefixes on which a verdict is sought before the whole set; verdicts do not depend on them.
PREFIXES = (600, 1500, 3000)


def draw(rng: np.random.Generator, tasks: list[Floats]) -> tuple[Floats, Strata]:
    """Return all scores of a panel in a uniformly random order, weighted by the size of their task."""
    sizes = np.array([scores.size for scores in tasks])
    stratum = np.repeat(np.arange(sizes.size), sizes)
    order = np.argsort(rng.exponential(size=stratum.size))
    weights = sizes.min() / sizes
    values = np.concatenate(tasks) * weights[stratum]
    return values[order], Strata(stratum=stratum[order], weights=weights, rates=np.ones(len(tasks)))


def decide(
    values: Floats,
    strata: Strata | None,
    threshold: float,
    alpha: float,
    *,
    zone: float = 0.0,
    min_observations: int = MIN_PANEL_SAMPLES,
    control_variate: Floats | None = None,
) -> Decision:
    """Return the verdict on the mean of all values; without strata that of the plain test."""
    for prefix in (*(size for size in PREFIXES if size < values.size), values.size):
        decision = decide_level(
            values[:prefix],
            threshold,
            alpha=alpha,
            population=values.size,
            indifference_zone=zone,
            min_observations=min_observations,
            control_variate=control_variate,
            strata=strata,
        )
        if decision is not None:
            return decision
    raise AssertionError("the complete set always gives a verdict")


def one_step_off(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure wrong verdicts with the threshold one step from the mean of a new panel in every order."""
    for name in TESTS:
        for step, verdict in ((1, "pass"), (-1, "fail")):
            errors, looks = 0, []
            for _ in range(orders):
                tasks = unequal_panel(rng, THRESHOLD)
                values, strata = draw(rng, tasks)
                # The smallest change of the panel's mean is that of one sample of the largest task.
                threshold = float(values.mean()) + step * float(strata.weights.min()) / values.size
                decision = decide(values, None if name == "plain" else strata, threshold, ALPHA)
                errors += decision.verdict == verdict
                looks.append(decision.stopping_time)
            yield Figure(
                name=f"13 unequal tasks, {name}: wrong {verdict}",
                value=errors / orders,
                most=ALPHA,
                note=f"median look {np.median(looks):.0f} of {sum(SIZES)}",
            )


def samples_near_the_threshold(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the samples to a verdict with 13 x 500 samples and six gates, as shares of the plain test's."""
    for distance in DISTANCES:
        looks: dict[str, list[int]] = {name: [] for name in TESTS}
        wrong = dict.fromkeys(TESTS, 0)
        mean = THRESHOLD + distance / 100
        for _ in range(orders):
            values, strata = draw(rng, list(profile_panel(rng, mean)))
            for name in TESTS:
                decision = decide(values, None if name == "plain" else strata, THRESHOLD, ALPHA / LENGTHS)
                looks[name].append(decision.stopping_time)
                wrong[name] += decision.verdict != ("pass" if distance > 0 else "fail")
        plain = float(np.median(looks["plain"]))
        for name in TESTS:
            median = float(np.median(looks[name]))
            yield Figure(
                name=f"{distance:+} points, {name}: median samples",
                value=median / plain,
                note=f"{median:.0f}; mean {np.mean(looks[name]):.0f}; wrong {wrong[name] / orders:.2%}",
            )
