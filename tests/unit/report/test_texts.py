"""Every sample in a file, as lines of JSON (--samples-jsonl)."""

import json
from statistics import fmean
from typing import Any

import pytest

from longctx.plugins.report.texts import sample_lines
from tests.helpers.reports import run_summary


@pytest.mark.parametrize("paired", [False, True])
def test_the_lines_are_all_samples_of_the_report(paired: bool) -> None:
    summary = run_summary(paired=paired, suite="ruler", lengths=(4096,), samples=5)
    records: list[dict[str, Any]] = [json.loads(line) for line in sample_lines(summary)]
    results = summary.evaluation.measured.results
    assert len(records) == sum(len(result.outcomes) for result in results.values()) > 0
    for case, result in results.items():
        ours = [record for record in records if record["case"] == case]
        assert [record["index"] for record in ours] == sorted(outcome.index for outcome in result.outcomes)
        assert {record["answer"] for record in ours} == {outcome.generation.text for outcome in result.outcomes}
        if result.score is not None:
            assert fmean(record["score"] for record in ours) == pytest.approx(100 * result.score)
    assert any(record["baseline_score"] is not None for record in records) == paired
