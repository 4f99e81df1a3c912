"""The comparison with a baseline in a report: how the answers of both were computed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longctx.plugins.report.document import document
from longctx.plugins.report.markdown import markdown
from longctx.plugins.report.terminal import terminal_summary
from tests.helpers.pages import page_of
from tests.helpers.reports import run_summary

OTHERWISE = "the baseline's answers were computed otherwise: dtype float32, not bfloat16; version unset, not 2"


@pytest.mark.parametrize(("baseline", "line"), [
    ({"engine": "hf", "dtype": "float32"}, OTHERWISE), ({"engine": "hf", "dtype": "bfloat16", "version": "2"}, ""),
    (None, ""),
])  # fmt: skip
def test_settings_of_the_baseline_are_shown_only_where_they_differ(baseline: dict[str, str] | None, line: str) -> None:
    run = run_summary(samples=2, suite="ruler", lengths=(4096,), paired=True)
    model = {"engine": "hf", "dtype": "bfloat16", "version": "2"}
    run = replace(run, execution=model, baseline_execution=baseline)
    report = document(run)
    assert report.regression is not None
    assert report.regression.baseline.execution == baseline
    texts = (" ".join(text for text, _ in terminal_summary(report)), markdown(report, holds=True), page_of(run))
    for text in texts:
        plain = " ".join(text.replace("&#39;", "'").split())
        assert (line or "computed otherwise") in plain if line else "computed otherwise" not in plain
