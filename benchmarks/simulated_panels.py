"""Simulated scores for benchmarks/false_verdicts.py: panels with a given mean.

RULER's tables give only means. A panel with a given mean is drawn in three steps: 13 task accuracies spread around it
on the logit scale (standard deviation 1.2, shifted until their average is the mean); these are rounded to whole samples
with the right total; and 500 scores for every task with exactly that total, in steps of the parts that RULER's task
asks for. The baseline of a panel has the same scores in every task, half of them in another order.

`unequal_panel` has the profile of RULER's reference model instead, its scores by aspect, shifted on the logit scale
with a standard deviation of 0.5 per task, and tasks of different sizes. Their samples share haystacks as those of a
case do, with an intra-cluster correlation of 0.3.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from longctx.fixtures.records import HAYSTACKS, haystack_and_turn

SAMPLES = 500
# Parts of a sample's answer: eight needle tasks, tracing, two aggregation tasks, two QA tasks.
PARTS = (1, 1, 1, 1, 1, 1, 4, 4, 5, 10, 3, 1, 1)
# Accuracies of Llama2-7B-chat at 4K by task: eight needle tasks, tracing, two aggregation tasks, two QA tasks.
PROFILE = (*[0.969] * 8, 0.897, *[0.848] * 2, *[0.497] * 2)
# Sizes of 13 tasks that differ by a factor of eight.
SIZES = (160, 160, 128, 128, 96, 96, 80, 64, 48, 48, 32, 32, 20)
CORRELATION = 0.3
TABLE = Path(__file__).parents[1] / "tests" / "tables" / "ruler_table03.json"
# Share of the samples on which a model and its baseline differ.
DISCORDANT = 0.1

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table; the field names are keys of the JSON file."""

    name: str
    value: float
    most: float | None = None
    """Limit of the value; None if there is none."""
    note: str = ""

    @property
    def ok(self) -> bool:
        """True if the value keeps its limit."""
        return self.most is None or self.value <= self.most

    def __str__(self) -> str:
        required = "" if self.most is None else f"<= {self.most:.2%}"
        result = "" if self.most is None else "ok" if self.ok else "NOT ok"
        return f"{self.name:<58} {self.value:>8.2%}  {required:<9} {result:<7} {self.note}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A row of RULER's Table 3 (Hsieh et al. 2024): a model's mean scores, 0 to 1, by length in tokens."""

    model: str
    lengths: tuple[int, ...]
    means: tuple[float, ...]


def task_accuracies(rng: np.random.Generator, mean: float, tasks: int) -> Floats:
    """Return accuracies, 0 to 1, with this mean."""
    if not 0 < mean < 1:
        return np.full(tasks, mean)
    spread = rng.normal(0, 1.2, tasks)
    low, high = -40.0, 40.0
    for _ in range(60):
        shift = (low + high) / 2
        accuracies: Floats = 1 / (1 + np.exp(-spread - shift))
        low, high = (shift, high) if accuracies.mean() < mean else (low, shift)
    return accuracies


def profile_accuracies(rng: np.random.Generator, mean: float, noise: float = 0.5) -> Floats:
    """Return accuracies, 0 to 1, with this mean and the reference model's profile."""
    profile = np.log(np.array(PROFILE) / (1 - np.array(PROFILE))) + rng.normal(0, noise, len(PROFILE))
    low, high = -40.0, 40.0
    for _ in range(60):
        shift = (low + high) / 2
        accuracies: Floats = 1 / (1 + np.exp(-profile - shift))
        low, high = (shift, high) if accuracies.mean() < mean else (low, shift)
    return accuracies


def unequal_panel(rng: np.random.Generator, mean: float) -> list[Floats]:
    """Return the scores of 13 tasks of different sizes, whose mean of means is the given one to within rounding.

    Scores are shares of a task's parts. The accuracy on a haystack is drawn from a beta distribution, which correlates
    its samples.
    """
    scores: list[Floats] = []
    for accuracy, size, parts in zip(profile_accuracies(rng, mean), SIZES, PARTS, strict=True):
        spread = (1 - CORRELATION) / CORRELATION
        on_haystacks = rng.beta(accuracy * spread, (1 - accuracy) * spread, HAYSTACKS)
        own = [haystack_and_turn(index)[0] for index in range(size)]
        scores.append(rng.binomial(parts, on_haystacks[own]) / parts)
    return scores


def task_totals(accuracies: Floats, total: int) -> NDArray[np.int64]:
    """Return whole samples for every task that add up to the total; the largest remainders are rounded up."""
    exact = accuracies * SAMPLES
    totals = np.floor(exact).astype(np.int64)
    totals[np.argsort(totals - exact)[: total - int(totals.sum())]] += 1
    return totals


def task_scores(rng: np.random.Generator, total: int, parts: int) -> Floats:
    """Return scores in steps of 1/parts with exactly this total."""
    right_parts = rng.binomial(parts, total / SAMPLES, SAMPLES)
    while missing := total * parts - int(right_parts.sum()):
        candidates = np.flatnonzero(right_parts < parts if missing > 0 else right_parts > 0)
        right_parts[rng.choice(candidates, min(abs(missing), candidates.size), replace=False)] += (
            1 if missing > 0 else -1
        )
    return right_parts / parts


def panel(rng: np.random.Generator, total: int, parts: Sequence[int] = PARTS) -> Floats:
    """Return scores of shape (tasks, samples) with exactly this total."""
    totals = task_totals(task_accuracies(rng, total / (len(parts) * SAMPLES), len(parts)), total)
    return np.stack([task_scores(rng, int(task_total), part) for task_total, part in zip(totals, parts, strict=True)])


def baseline_of(rng: np.random.Generator, scores: Floats) -> Floats:
    """Return the scores of a baseline: those of the panel, half of every task's in another order."""
    baseline = scores.copy()
    for task in baseline:
        reordered = rng.choice(task.size, task.size // 2, replace=False)
        task[reordered] = task[rng.permutation(reordered)]
    return baseline


def curves() -> list[Curve]:
    """Return all rows of the table."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    return [
        Curve(
            model=row["model"],
            lengths=tuple(table["lengths"]),
            means=tuple(score / 100 for score in row["scores"]),
        )
        for row in table["rows"]
    ]
