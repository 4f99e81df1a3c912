"""Tasks of the kinds that model cards report beside RULER and HELMET, one case per task and length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longctx.fixtures.records import Case

pytestmark = pytest.mark.frontier


def test_frontier(case: Case, measure: Callable[[Case], None]) -> None:
    """Measure one task at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
