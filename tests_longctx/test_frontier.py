"""Tasks of the kinds that model cards report beside RULER and HELMET, one case per task and length."""

import pytest

from longctx.fixtures.records import Case, Measure

pytestmark = pytest.mark.frontier


def test_frontier(case: Case, measure: Measure) -> None:
    """Measure one task at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
