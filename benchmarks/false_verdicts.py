"""How often the gates' verdicts are wrong, and what they cost, by simulation.

    python -m benchmarks.false_verdicts [--orders 2000] [--json FILE]

Wrong at most 1 % of the time where it is hardest: with the set's mean one step from the threshold, for an
unchanged model, and for one that got worse by just the drop to be found, also where samples of two tasks share
most of their needles by twos. Cheap on real score curves: those of RULER's Table 3 (Hsieh et al. 2024), with six
gates that share the error. The same verdicts by a z-test that peeks stand beside them for contrast. Exits with 1
when a requirement is not met.

The table gives only means. A panel with a given mean is drawn so: 13 task accuracies spread around it on the
logit scale (standard deviation 1.2, shifted until their average is the mean), rounded to whole samples that
still add up; then 500 scores per task with exactly that total, each the share of the parts which RULER's task
asks for. A baseline for such a panel has every task's scores, half of them dealt out anew.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plugins.gates.statistics import Decision, decide_level, decide_paired

SEED = 20240409
ALPHA = 0.01
THRESHOLD = 0.856
SAMPLES = 500
# How many answers a sample of each task asks for: eight needle tasks, tracing, two aggregations, two QA.
PARTS = (1, 1, 1, 1, 1, 1, 4, 4, 5, 10, 3, 1, 1)
LEAST_CASE, LEAST_PANEL = 8, 26
CHEAP = 1 / 8
TABLE = Path(__file__).parents[1] / "tests" / "tables" / "ruler_table03.json"

# Of a model and its baseline, the share of samples on which they differ.
DISCORDANT = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table; `most` is what is required of it, None where it only informs."""

    name: str
    value: float
    most: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.most is None or self.value <= self.most

    def __str__(self) -> str:
        required = "" if self.most is None else f"<= {self.most:.2%}"
        says = "" if self.most is None else "ok" if self.ok else "NOT ok"
        return f"{self.name:<58} {self.value:>8.2%}  {required:<9} {says:<7} {self.note}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A row of the paper's table: the panel's mean at every length, from 0 to 1."""

    model: str
    lengths: tuple[int, ...]
    means: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedGate:
    """A gate against a baseline: the loss it is to find, the one it lets be, and its least number of samples."""

    drop: float
    clear: float
    least: int

    def figure(self, name: str, draws: Iterable[Floats], wrong: str | None, most: float | None = ALPHA) -> Figure:
        """How often the verdict on differences is `wrong`, or with None anything but "fail", which only informs."""
        found: Counter[str] = Counter()
        for differences in draws:
            decision = decide_paired(
                differences, drop=self.drop, clear=self.clear, alpha=ALPHA, min_observations=self.least
            )
            found[decision.verdict if decision else "inconclusive"] += 1
        orders = found.total()
        return Figure(
            name=f"{name}: {wrong or 'not found'}",
            value=(found[wrong] if wrong else orders - found["fail"]) / orders,
            most=most if wrong else None,
            note=", ".join(f"{kind} {found[kind] / orders:.1%}" for kind in ("pass", "fail", "inconclusive")),
        )


REGRESSION_GATES = {
    "13 tasks pooled": (13 * SAMPLES, PairedGate(drop=0.02, clear=0.01, least=LEAST_PANEL)),
    "one task": (SAMPLES, PairedGate(drop=0.05, clear=0.0, least=LEAST_CASE)),
}


def task_accuracies(rng: np.random.Generator, mean: float, tasks: int) -> Floats:
    if not 0 < mean < 1:
        return np.full(tasks, mean)
    spread = rng.normal(0, 1.2, tasks)
    low, high = -40.0, 40.0
    for _ in range(60):
        shift = (low + high) / 2
        accuracies: Floats = 1 / (1 + np.exp(-spread - shift))
        low, high = (shift, high) if accuracies.mean() < mean else (low, shift)
    return accuracies


def task_totals(accuracies: Floats, total: int) -> NDArray[np.int64]:
    """Whole samples per task that add up to the total: the largest remainders are rounded up."""
    exact = accuracies * SAMPLES
    totals = np.floor(exact).astype(np.int64)
    totals[np.argsort(totals - exact)[: total - int(totals.sum())]] += 1
    return totals


def task_scores(rng: np.random.Generator, total: int, parts: int) -> Floats:
    """Scores in steps of 1/parts with exactly this total."""
    got = rng.binomial(parts, total / SAMPLES, SAMPLES)
    while missing := total * parts - int(got.sum()):
        room = np.flatnonzero(got < parts if missing > 0 else got > 0)
        got[rng.choice(room, min(abs(missing), room.size), replace=False)] += 1 if missing > 0 else -1
    return got / parts


def panel(rng: np.random.Generator, total: int, parts: Sequence[int] = PARTS) -> Floats:
    """Scores of shape (tasks, samples) with exactly this total."""
    totals = task_totals(task_accuracies(rng, total / (len(parts) * SAMPLES), len(parts)), total)
    return np.stack([task_scores(rng, int(each), part) for each, part in zip(totals, parts, strict=True)])


def baseline_of(rng: np.random.Generator, scores: Floats) -> Floats:
    baseline = scores.copy()
    for task in baseline:
        dealt = rng.choice(task.size, task.size // 2, replace=False)
        task[dealt] = task[rng.permutation(dealt)]
    return baseline


def queue_verdict(
    rng: np.random.Generator, scores: Floats, *, alpha: float, zone: float = 0.0, baseline: Floats | None = None
) -> Decision:
    """The verdict on the scores in one random order; with the set complete there always is one."""
    order = rng.permutation(scores.size)
    decision = decide_level(
        scores.ravel()[order],
        THRESHOLD,
        alpha=alpha,
        population=scores.size,
        indifference_zone=zone,
        min_observations=LEAST_CASE if len(scores) == 1 else LEAST_PANEL,
        control_variate=None if baseline is None else baseline.ravel()[order],
    )
    assert decision is not None
    return decision


def level_gate(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    sets = {"one task, right or wrong": (1,), "one task, ten parts": (10,), "13 tasks pooled": PARTS}
    for name, parts in sets.items():
        for step, wrong in ((-1, "pass"), (1, "fail")):
            scores = panel(rng, round(THRESHOLD * len(parts) * SAMPLES) + step, parts)
            baselines = (None, baseline_of(rng, scores)) if len(parts) > 1 else (None,)
            for baseline in baselines:
                found = [queue_verdict(rng, scores, alpha=ALPHA, baseline=baseline) for _ in range(orders)]
                yield Figure(
                    name=f"{name}{', control' if baseline is not None else ''}: wrong {wrong}",
                    value=sum(decision.verdict == wrong for decision in found) / orders,
                    most=ALPHA,
                    note=f"median look {np.median([each.stopping_time for each in found]):.0f} of {scores.size}",
                )


def regression_gate(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    for name, (samples, gate) in REGRESSION_GATES.items():
        for change, wrong in ((0.0, "fail"), (gate.drop, "pass"), (2 * gate.drop, None)):
            draws = (flips(rng, samples, change) for _ in range(orders))
            yield gate.figure(f"{name}, {f'{100 * change:g} points worse' if change else 'unchanged'}", draws, wrong)


def shared_needles(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """Of the tasks that ask for four needles, of which two samples in a row share three; these flip together.

    That is the worst case. Of a panel such tasks are two; a case alone is shown for comparison.
    """
    for name, (samples, gate) in REGRESSION_GATES.items():
        shared = min(samples, 2 * SAMPLES)
        for change, wrong in ((0.0, "fail"), (gate.drop, "pass")):
            draws = (
                np.concatenate([flips(rng, samples - shared, change), pair_flips(rng, shared, change)])
                for _ in range(orders)
            )
            yield gate.figure(
                f"{name}, {f'{100 * change:g} points worse' if change else 'unchanged'}",
                map(rng.permutation, draws),
                wrong,
                most=ALPHA if shared < samples else None,
            )


def flips(rng: np.random.Generator, samples: int, change: float) -> Floats:
    """Differences of which one in ten is not 0, with a mean of -change."""
    shares = ((DISCORDANT + change) / 2, 1 - DISCORDANT, (DISCORDANT - change) / 2)
    return rng.choice((-1.0, 0.0, 1.0), samples, p=shares)


def pair_flips(rng: np.random.Generator, samples: int, change: float) -> Floats:
    """The same of samples whose first three of four parts are also those of the sample beside them."""
    return 0.75 * flips(rng, samples // 2, change).repeat(2) + 0.25 * flips(rng, samples, change)


def curves() -> list[Curve]:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return [
        Curve(
            model=row["model"],
            lengths=tuple(table["lengths"]),
            means=tuple(score / 100 for score in row["scores"]),
        )
        for row in table["rows"]
    ]


def costs(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    models = curves()
    lengths = np.array(models[0].lengths)
    size = len(PARTS) * SAMPLES
    panels = [[panel(rng, round(mean * size)) for mean in curve.means] for curve in models]
    above = np.array([[scores.sum() > THRESHOLD * size + 1e-6 for scores in row] for row in panels])
    baselines = [[baseline_of(rng, scores) for scores in row] for row in panels]
    settings = {
        "one gate": (ALPHA, 0.0, False),
        "six gates": (ALPHA / len(lengths), 0.0, False),
        "six gates, zone of 1 point": (ALPHA / len(lengths), 0.01, False),
        "six gates, control": (ALPHA / len(lengths), 0.0, True),
        "six gates, zone of 1 point, control": (ALPHA / len(lengths), 0.01, True),
    }
    for name, (alpha, zone, controlled) in settings.items():
        found = [
            [
                [
                    queue_verdict(rng, scores, alpha=alpha, zone=zone, baseline=baseline if controlled else None)
                    for _ in range(orders)
                ]
                for scores, baseline in zip(row, others, strict=True)
            ]
            for row, others in zip(panels, baselines, strict=True)
        ]
        passed = np.array([[[each.verdict == "pass" for each in cell] for cell in row] for row in found])
        looks = np.array([[[each.stopping_time for each in cell] for cell in row] for row in found])
        per_model = (looks.mean(axis=-1) @ lengths) / (size * lengths.sum())
        wrong = float((passed != above[..., np.newaxis]).mean())
        yield Figure(
            name=f"{name}: samples, median panel",
            value=float(np.median(looks)) / size,
            most=CHEAP,
            note=f"{np.median(looks):.0f} of {size}; mean {looks.mean():.0f}; not the full run's verdict {wrong:.2%}",
        )
        yield Figure(
            name=f"{name}: tokens, median model",
            value=float(np.median(per_model)),
            most=CHEAP,
            note=f"1/{1 / np.median(per_model):.1f}; all models together 1/{1 / per_model.mean():.1f}",
        )


def peeking(rng: np.random.Generator, orders: int) -> Iterator[Figure]:
    """A test made for one look, taken every 10 samples from 30 on."""
    z = 2.576
    for name, parts in {"one task": (1,), "13 tasks pooled": PARTS}.items():
        scores = panel(rng, round(THRESHOLD * len(parts) * SAMPLES) - 1, parts).ravel()
        looks = np.arange(30, scores.size, 10)
        wrong = 0
        for _ in range(orders):
            order = rng.permutation(scores)
            mean = order.cumsum()[looks - 1] / looks
            variance = np.maximum((order**2).cumsum()[looks - 1] / looks - mean**2, 1e-12)
            statistic = (mean - THRESHOLD) / np.sqrt(variance / looks)
            crossed = np.abs(statistic) > z
            wrong += bool(crossed.any()) and bool(statistic[crossed.argmax()] > z)
        yield Figure(name=f"{name}, z-test every 10 samples: wrong pass", value=wrong / orders)


def main() -> int:
    parser = argparse.ArgumentParser(description="How often the gates' verdicts are wrong, and what they cost.")
    parser.add_argument("--orders", type=int, default=2000, help="random orders per set (default: 2000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    if options.orders < 1:
        parser.error(f"--orders: {options.orders}; give at least 1")
    sections = {
        "Level gate, the set's mean one step from the threshold": (level_gate, options.orders),
        "Regression gate, 10 % of the samples differ": (regression_gate, options.orders),
        "Cost against 13 x 500 samples, score curves of RULER's Table 3": (costs, math.ceil(options.orders / 100)),
        "For contrast": (peeking, options.orders),
        "Regression gate, samples that share three of their four needles by twos": (shared_needles, options.orders),
    }
    figures: list[Figure] = []
    for number, (title, (section, orders)) in enumerate(sections.items()):
        sys.stdout.write(f"\n{title}, {orders} orders\n")
        # A seed for each section: the figures of one stay when another is changed.
        for figure in section(np.random.default_rng([SEED, number]), orders):
            sys.stdout.write(f"  {figure}\n")
            sys.stdout.flush()
            figures.append(figure)
    if options.json:
        rows = [asdict(figure) | {"ok": figure.ok} for figure in figures]
        options.json.write_text(json.dumps({"seed": SEED, "orders": options.orders, "figures": rows}, indent=1) + "\n")
    return 0 if all(figure.ok for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
