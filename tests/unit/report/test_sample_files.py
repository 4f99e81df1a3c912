"""Every sample in a file: lines of JSON (--samples-jsonl), and logs that inspect_ai reads (--inspect-log)."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

import pytest

from longctx.fixtures.shown_text import visible
from longctx.plugins.report.sample_files import inspect_logs, sample_lines
from tests.helpers.reports import NASTY, run_summary


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


# Short texts that could break a report.
TEXTS = NASTY[:9]
SUMMARY = run_summary(suite="ruler", lengths=(4096,), samples=9, texts=TEXTS)
RESULTS = {case: result for case, result in SUMMARY.evaluation.measured.results.items() if result.outcomes}

LOGS = dict(inspect_logs(SUMMARY))


def read(case: str) -> dict[str, Any]:
    """Return the log of a case."""
    (log,) = [log for log in map(json.loads, LOGS.values()) if log["eval"]["metadata"]["case"] == case]
    return dict(log)


def test_every_case_has_a_log_with_all_its_samples() -> None:
    assert len(LOGS) == len(SUMMARY.evaluation.measured.results)
    for name, text in LOGS.items():
        log = json.loads(text)
        stamp, task, task_id = name.removesuffix(".json").split("_")
        assert (task, task_id) == (log["eval"]["task"].replace("_", "-"), log["eval"]["task_id"])
        assert stamp.replace("-", ":") == log["eval"]["created"].replace("-", ":")
    for case, result in RESULTS.items():
        samples = {sample["id"]: sample for sample in read(case)["samples"]}
        assert samples.keys() == {outcome.index for outcome in result.outcomes}
        for outcome in result.outcomes:
            sample = samples[outcome.index]
            assert sample["target"] == list(outcome.references)
            assert sample["scores"]["score"]["value"] == outcome.score.value
            assert sample["output"]["choices"][0]["message"]["content"] == visible(outcome.generation.text)
