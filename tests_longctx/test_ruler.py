"""RULER: 13 synthetic tasks (Hsieh et al. 2024), each at every length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures.records import Case

pytestmark = pytest.mark.ruler


def test_ruler(case: Case, measure: Callable[[Case], None]) -> None:
    """One task at one length; fails where it cannot be measured. What must be reached, the gates say."""
    measure(case)
