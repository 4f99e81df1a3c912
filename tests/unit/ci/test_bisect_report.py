"""The final lines of a bisection."""

from __future__ import annotations

import pytest

from ci.bisect.confirm import Confirmation
from ci.bisect.journal_stats import Cost
from ci.bisect.report import cost_lines
from ci.bisect.search import StepVerdict


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
        edge=StepVerdict(verdict="skipped"), other_drops=(), flips=(), cost=cost, linear_scan=linear, survey_cost=None
    )
    assert cost_lines(confirmation) == [line]
