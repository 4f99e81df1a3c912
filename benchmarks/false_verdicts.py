"""Measure by simulation how often the verdicts of the gates are wrong, and how many samples they take.

    python -m benchmarks.false_verdicts [--orders 2000] [--section NAME] [--json FILE]

Errors are measured where they are most likely: for a level gate with the mean of the set one step from the threshold,
and for comparisons with an unchanged model and with one that lost exactly the drop to detect. Costs are measured
on the curves of RULER's Table 3 (Hsieh et al. 2024), with six gates that share the probability of error.
Limits: exit code 1 if more than 1 % of the verdicts of a
line are wrong, or if a median panel or model takes more than an eighth of all samples.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.simulated_panels import (
    PARTS,
    SAMPLES,
    Figure,
    Floats,
    curves,
    panel,
    task_accuracies,
)
from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.statistics import Decision, decide_level

SEED = 20240409
ALPHA = 0.01
THRESHOLD = 0.856
MIN_CASE_SAMPLES, MIN_PANEL_SAMPLES = 8, 26
MAX_COST_SHARE = 1 / 8
# Prefixes on which a verdict is sought before the whole set; verdicts do not depend on them.
PREFIXES = (600, 1500, 3000)


def queue_verdict(rng: np.random.Generator, scores: Floats, *, alpha: float, zone: float = 0.0) -> Decision:
    """Return the verdict on the scores in one random order; the complete set always gives one."""
    order = rng.permutation(scores.size)
    for prefix in (*(size for size in PREFIXES if size < scores.size), scores.size):
        decision = decide_level(
            scores.ravel()[order][:prefix],
            THRESHOLD,
            Strata.single(scores.size),
            alpha=alpha,
            indifference_zone=zone,
            min_observations=MIN_CASE_SAMPLES if len(scores) == 1 else MIN_PANEL_SAMPLES,
        )
        if decision is not None:
            return decision
    raise AssertionError("the complete set always gives a verdict")


def level_gate(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure a level gate with the mean of the set one step from the threshold."""
    sets = {"one task, right or wrong": (1,), "one task, ten parts": (10,), "13 tasks pooled": PARTS}
    for name, parts in sets.items():
        for step, wrong in ((-1, "pass"), (1, "fail")):
            scores = panel(rng, round(THRESHOLD * len(parts) * SAMPLES) + step, parts)
            decisions = [queue_verdict(rng, scores, alpha=ALPHA) for _ in range(orders)]
            stopping_times = [decision.stopping_time for decision in decisions]
            yield Figure(
                name=f"{name}: wrong {wrong}",
                value=sum(decision.verdict == wrong for decision in decisions) / orders,
                most=ALPHA,
                note=f"median look {np.median(stopping_times):.0f} of {scores.size}",
            )


def below_the_threshold(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure how often all planned samples pass a model whose own mean is one point below the threshold."""
    for samples in (24, 100, SAMPLES):
        means = (
            float((rng.binomial(samples, task_accuracies(rng, THRESHOLD - 0.01, len(PARTS))) / samples).mean())
            for _ in range(orders)
        )
        yield Figure(name=f"13 tasks of {samples}: passed", value=sum(mean > THRESHOLD for mean in means) / orders)


def costs(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Measure the samples and tokens until the verdict, as shares of all, for one gate and for six."""
    models = curves()
    lengths = np.array(models[0].lengths)
    size = len(PARTS) * SAMPLES
    panels = [[panel(rng, round(mean * size)) for mean in curve.means] for curve in models]
    above = np.array([[scores.sum() > THRESHOLD * size + 1e-6 for scores in row] for row in panels])
    settings = {
        "one gate": (ALPHA, 0.0),
        "six gates": (ALPHA / len(lengths), 0.0),
        "six gates, zone of 1 point": (ALPHA / len(lengths), 0.01),
    }
    for name, (alpha, zone) in settings.items():
        decisions = [
            [[queue_verdict(rng, scores, alpha=alpha, zone=zone) for _ in range(orders)] for scores in row]
            for row in panels
        ]
        passed = np.array([[[decision.verdict == "pass" for decision in cell] for cell in row] for row in decisions])
        looks = np.array([[[decision.stopping_time for decision in cell] for cell in row] for row in decisions])
        per_model = (looks.mean(axis=-1) @ lengths) / (size * lengths.sum())
        wrong = float((passed != above[..., np.newaxis]).mean())
        yield Figure(
            name=f"{name}: samples, median panel",
            value=float(np.median(looks)) / size,
            most=MAX_COST_SHARE,
            note=f"{np.median(looks):.0f} of {size}; mean {looks.mean():.0f}; not the full run's verdict {wrong:.2%}",
        )
        yield Figure(
            name=f"{name}: tokens, median model",
            value=float(np.median(per_model)),
            most=MAX_COST_SHARE,
            note=f"1/{1 / np.median(per_model):.1f}; all models together 1/{1 / per_model.mean():.1f}",
        )


Measure = Callable[[np.random.Generator, int], Iterator[Figure]]

# Each section has a seed of its own: changing one leaves the figures of the others.
SECTIONS: Mapping[str, tuple[int, str, Measure]] = {
    "level": (0, "Level gate, the set's mean one step from the threshold", level_gate),
    "costs": (2, "Cost against 13 x 500 samples, score curves of RULER's Table 3", costs),
    "below": (18, "A model one point below the threshold", below_the_threshold),
}
# `costs` measures this share of the orders, for each of its hundred panels.
COSTS_SHARE = 1 / 100


def main() -> int:
    """Print all figures; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(
        description="Measure how often the verdicts of the gates are wrong, and their cost."
    )
    parser.add_argument("--orders", type=int, default=2000, help="random orders of a set (default: 2000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--section", choices=SECTIONS, metavar="NAME", help=f"only one: {', '.join(SECTIONS)}")
    options = parser.parse_args()
    if options.orders < 1:
        parser.error(f"--orders: {options.orders}; give at least 1")
    figures: list[Figure] = []
    for name in [options.section] if options.section else SECTIONS:
        seed, title, section = SECTIONS[name]
        orders = math.ceil(options.orders * COSTS_SHARE) if name == "costs" else options.orders
        sys.stdout.write(f"\n{title}, {orders} orders\n")
        for figure in section(np.random.default_rng([SEED, seed]), orders):
            sys.stdout.write(f"  {figure}\n")
            sys.stdout.flush()
            figures.append(figure)
    if options.json:
        rows = [asdict(figure) | {"ok": figure.ok} for figure in figures]
        options.json.write_text(json.dumps({"seed": SEED, "orders": options.orders, "figures": rows}, indent=1) + "\n")
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
