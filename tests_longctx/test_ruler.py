"""RULER: 13 synthetic tasks (Hsieh et al. 2024), one case per task and length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longctx.fixtures.records import Case

pytestmark = pytest.mark.ruler


def test_ruler(case: Case, measure: Callable[[Case], None]) -> None:
    """Measure one task at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
