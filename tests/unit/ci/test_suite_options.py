"""The options of a watch, checked by pytest before anything is measured."""

from __future__ import annotations

import pytest

from longctx.ci import suite_options


def test_a_listing_that_does_not_end_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_options, "CHECK_SECONDS", 0.05)
    with pytest.raises(ValueError, match=r"not listed the cases of these options in 0.05 s; try them with"):
        suite_options.list_cases(["--model=calibration:512"])
