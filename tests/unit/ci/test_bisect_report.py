"""The final lines of a bisection."""

from __future__ import annotations

import pytest

from longctx.ci.bisect.report import _percent


@pytest.mark.parametrize(
    ("probability", "text"), [(0.98999, "98.9 %"), (0.99, "99 %"), (0.9999, "99.9 %"), (1.0, "99.9 %")]
)
def test_a_probability_is_rounded_down_and_never_certain(probability: float, text: str) -> None:
    assert _percent(probability) == text
