"""The final lines of a bisection."""

from __future__ import annotations

import pytest

from longctx.ci.bisect.compare import Comparison
from longctx.ci.bisect.journal_stats import Cost
from longctx.ci.bisect.measurements import Confirmation
from longctx.ci.bisect.report import _cost_lines, _percent


@pytest.mark.parametrize(
    ("cost", "linear", "line"),
    [
        (Cost(samples=50, tokens=2000), Cost(samples=125, tokens=5000),
         "cost: 50 samples, 2,000 tokens; a linear scan takes 125 samples, 5,000 tokens (1/2.5)"),
        (Cost(samples=50), Cost(samples=125), "cost: 50 samples; a linear scan takes 125 samples (1/2.5)"),
        (Cost(), Cost(samples=125), "cost: 0 samples; a linear scan takes 125 samples"),
    ],
    ids=["known tokens", "unknown tokens", "no samples"],
)  # fmt: skip
def test_the_cost_of_a_search_is_a_share_of_a_linear_scan(cost: Cost, linear: Cost, line: str) -> None:
    confirmation = Confirmation(
        edge=Comparison(verdict="skipped"), other_losses=(), flips=(), cost=cost, linear_scan=linear, survey_cost=None
    )
    assert _cost_lines(confirmation) == [line]


@pytest.mark.parametrize(
    ("probability", "text"), [(0.98999, "98.9 %"), (0.99, "99 %"), (0.9999, "99.9 %"), (1.0, "99.9 %")]
)
def test_a_probability_is_rounded_down_and_never_certain(probability: float, text: str) -> None:
    assert _percent(probability) == text
