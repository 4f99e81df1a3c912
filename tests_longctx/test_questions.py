"""The question sets of --tasks, one case per set and length."""

import pytest

from longctx.fixtures.records import Case, Measure

pytestmark = pytest.mark.questions


def test_questions(case: Case, measure: Measure) -> None:
    """Measure one set of questions at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
