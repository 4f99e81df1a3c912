"""Phase sweeps that gates on the worst phase ask for, one case per task and length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longctx.fixtures.records import Case

pytestmark = pytest.mark.phases


def test_phases(case: Case, measure: Callable[[Case], None]) -> None:
    """Measure one sweep at one length; fail if that is impossible. The phases are the gate's business."""
    measure(case)
