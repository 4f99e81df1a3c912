"""Summaries of long documents (Yen et al. 2025, §2.1), each data set at every length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures.records import Case

pytestmark = pytest.mark.helmet


def test_summ(case: Case, measure: Callable[[Case], None]) -> None:
    """One data set at one length; fails where it cannot be measured. What must be reached, the gates say."""
    measure(case)
