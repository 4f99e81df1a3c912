"""The question sets of --tasks, one case per set and length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from longctx.fixtures.records import Case

pytestmark = pytest.mark.questions


def test_questions(case: Case, measure: Callable[[Case], None]) -> None:
    """Measure one set of questions at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
