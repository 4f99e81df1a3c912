"""RULER: 13 synthetic tasks (Hsieh et al. 2024), one case per task and length."""

import pytest

from longctx.fixtures.records import Case, Measure

pytestmark = pytest.mark.ruler


def test_ruler(case: Case, measure: Measure) -> None:
    """Measure one task at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
