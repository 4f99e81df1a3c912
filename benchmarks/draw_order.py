"""Sections of benchmarks/false_verdicts.py: level verdicts that use the tasks of a panel and an order of draws.

Three tests read the same panels: the plain one on scores alone, one that also bets on the differences to the mean of
each task so far, and one on samples drawn at the rates that follow from an earlier checkpoint. That checkpoint is 3
points worse and was measured on 20 samples of each task. A wrong checkpoint has its tasks interchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure
from benchmarks.simulated_panels import SIZES, Floats, profile_panel, unequal_panel
from longctx.plugins.evidence.e_process import Strata, draw_rates
from longctx.plugins.evidence.statistics import Decision, decide_level

ALPHA = 0.01
LENGTHS = 6
THRESHOLD = 0.856
MIN_PANEL_SAMPLES = 26
PRIOR_SAMPLES = 20
DISTANCES = (8, 4, 2, -2, -4)
# The largest median of the test with rates, as a share of the plain one's, at these distances.
MAX_SHARE, LIMITED_DISTANCES = 0.7, (4, 2, -2, -4)
# Prefixes on which a verdict is sought before the whole set; verdicts do not depend on them.
PREFIXES = (600, 1500, 3000)


def rates_of(rng: np.random.Generator, earlier: list[Floats], *, wrong: bool = False) -> Floats:
    """Return the rates of all tasks given the scores of an earlier checkpoint."""
    measured = {str(task): list(rng.choice(scores, PRIOR_SAMPLES)) for task, scores in enumerate(earlier)}
    rates = np.array(list(draw_rates(measured).values()))
    return rng.permutation(rates) if wrong else rates


def draw(rng: np.random.Generator, tasks: list[Floats], rates: Floats) -> tuple[Floats, Strata]:
    """Return all scores of a panel in a random order at these rates, weighted by the size of their task."""
    sizes = np.array([scores.size for scores in tasks])
    stratum = np.repeat(np.arange(sizes.size), sizes)
    order = np.argsort(rng.exponential(size=stratum.size) / rates[stratum])
    weights = sizes.min() / sizes
    values = np.concatenate(tasks) * weights[stratum]
    return values[order], Strata(stratum=stratum[order], weights=weights, rates=rates)


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
    settings = {
        "plain": (True, None),
        "task means": (False, None),
        "rates": (False, False),
        "wrong rates": (False, True),
    }
    for name, (plain, wrong) in settings.items():
        for step, verdict in ((1, "pass"), (-1, "fail")):
            errors, looks = 0, []
            for _ in range(orders):
                tasks = unequal_panel(rng, THRESHOLD)
                rates = np.ones(len(SIZES))
                if wrong is not None:
                    rates = rates_of(rng, unequal_panel(rng, THRESHOLD - 0.03), wrong=wrong)
                values, strata = draw(rng, tasks, rates)
                # The smallest change of the panel's mean is that of one sample of the largest task.
                threshold = float(values.mean()) + step * float(strata.weights.min()) / values.size
                decision = decide(values, None if plain else strata, threshold, ALPHA)
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
    names = ("plain", "task means", "rates", "wrong rates")
    for distance in DISTANCES:
        looks: dict[str, list[int]] = {name: [] for name in names}
        wrong = dict.fromkeys(names, 0)
        mean = THRESHOLD + distance / 100
        for _ in range(orders):
            tasks, earlier = list(profile_panel(rng, mean)), list(profile_panel(rng, mean - 0.03, noise=0.0))
            uniform = draw(rng, tasks, np.ones(len(tasks)))
            orders_of = {
                "plain": uniform,
                "task means": uniform,
                "rates": draw(rng, tasks, rates_of(rng, earlier)),
                "wrong rates": draw(rng, tasks, rates_of(rng, earlier, wrong=True)),
            }
            for name, (values, strata) in orders_of.items():
                decision = decide(values, None if name == "plain" else strata, THRESHOLD, ALPHA / LENGTHS)
                looks[name].append(decision.stopping_time)
                wrong[name] += decision.verdict != ("pass" if distance > 0 else "fail")
        plain = float(np.median(looks["plain"]))
        for name in names:
            median = float(np.median(looks[name]))
            yield Figure(
                name=f"{distance:+} points, {name}: median samples",
                value=median / plain,
                most=MAX_SHARE if name == "rates" and distance in LIMITED_DISTANCES else None,
                note=f"{median:.0f}; mean {np.mean(looks[name]):.0f}; wrong {wrong[name] / orders:.2%}",
            )
