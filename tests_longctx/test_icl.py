"""Many-shot in-context learning (Yen et al. 2025, §2.1), one case per data set and length."""

import pytest

from longctx.fixtures.records import Case, Measure

pytestmark = pytest.mark.helmet


def test_icl(case: Case, measure: Measure) -> None:
    """Measure one data set at one length; fail if that is impossible. The score is the gates' business."""
    measure(case)
