"""A loss on the planned samples is the model's only if it exceeds what flips on shared haystacks explain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ci.watch.shown_for_model import is_shown_for_model, tail_probability


def report_of(differences: list[list[float]]) -> dict[str, Any]:
    """Return the report of one case on haystacks of equal size, given the differences on each."""
    values = np.array(differences)
    entry = {
        "pairs": values.size, "difference": 100 * values.mean(), "worse": int((values < 0).sum()),
        "better": int((values > 0).sum()),
    }  # fmt: skip
    between, within = values.shape[1] * values.mean(1).var(ddof=1), values.var(1, ddof=1).mean()
    correlation = (between - within) / (between + (values.shape[1] - 1) * within) if between + within else 0.0
    gate = {
        "name": "regression at 4k", "kind": "regression", "measured": entry["difference"],
        "haystack_correlation": [correlation, 0.05],
    }  # fmt: skip
    case = {"id": "c", "suite": "ruler", "category": "qa", "length": 4096, "haystacks": len(values)}
    return {"cases": [case], "gates": [gate], "regression": {"cases": {"c": entry}}}


def is_shown(differences: list[list[float]], alpha: float = 1e-4) -> bool:
    report = report_of(differences)
    return is_shown_for_model(report, report["gates"][0], alpha)


def test_a_loss_beyond_the_noise_is_shown_and_an_equal_number_of_flips_is_not() -> None:
    rng = np.random.default_rng(0)
    loss = np.where(rng.random((60, 8)) < 0.1, -1.0, 0.0)
    assert is_shown(loss.tolist())
    flips = rng.choice([-1.0, 0.0, 1.0], size=(60, 8), p=[0.06, 0.9, 0.04])
    assert flips.mean() < 0
    assert not is_shown(flips.tolist())


def test_the_same_loss_on_few_whole_haystacks_is_not_shown() -> None:
    """Ten points lost on one of ten haystacks are one observation, not sixteen."""
    concentrated = [[-1.0] * 16] + [[0.0] * 16] * 9
    spread = [[-1.0] + [0.0] * 9] * 16
    assert not is_shown(concentrated, alpha=1e-3)
    assert is_shown(spread, alpha=1e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_flips_of_an_unchanged_model_are_rarely_a_loss(correlation: float) -> None:
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(2000):
        own = rng.choice([-1.0, 0.0, 1.0], size=(40, 8), p=[0.05, 0.9, 0.05])
        shared = rng.choice([-1.0, 0.0, 1.0], size=(40, 1), p=[0.05, 0.9, 0.05])
        wrong += is_shown(np.where(rng.random((40, 8)) < math.sqrt(correlation), shared, own).tolist(), alpha=0.01)
    assert wrong / 2000 < 0.02


@pytest.mark.parametrize(
    ("t", "freedom", "probability"), [(2.228, 10, 0.025), (4.587, 10, 5e-4), (6.314, 1, 0.05), (0.0, 5, 0.5)]
)
def test_the_tail_of_students_t_agrees_with_tables(t: float, freedom: int, probability: float) -> None:
    assert tail_probability(t, freedom) == pytest.approx(probability, rel=0.01)
