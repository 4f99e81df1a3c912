"""The comparison with a baseline in a report: how the answers of both were computed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

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


def test_a_loss_names_the_command_that_looks_for_its_cause(tmp_path: Path) -> None:
    """It has both checkpoints, this report and, of the cases with gold answers, the one with most worse samples."""
    run, good, bad = run_summary(samples=2, suite="ruler", lengths=(4096,), paired=True), tmp_path / "g", tmp_path / "b"
    assert run.run.baseline is not None
    assert run.run.baseline.checkpoint is not None
    baseline = replace(run.run.baseline, checkpoint=replace(run.run.baseline.checkpoint, path=str(good)))
    evaluation, worse = run.evaluation, {"qa_1": 9, "vt": 3}
    results = {
        case_id: replace(found, case=replace(found.case, has_gold=found.case.task != "qa_1"))
        for case_id, found in evaluation.measured.results.items()
    }
    diagnoses = {
        case_id: replace(found, dropped=True, flips=(worse.get(results[case_id].case.task, 1), 0))
        for case_id, found in evaluation.diagnoses.items()
    }
    run = replace(
        run,
        run=replace(run.run, checkpoint=replace(run.run.checkpoint, path=str(bad)), baseline=baseline),
        evaluation=replace(
            evaluation, diagnoses=diagnoses, measured=replace(evaluation.measured, results=results)
        ),
        json_file=tmp_path / "report.json",
    )  # fmt: skip
    assert (document(run).regression or pytest.fail("no comparison")).cause is None
    good.mkdir()
    bad.mkdir()
    report = document(run)
    command = shlex.join(
        ["longctx", "diagnose", str(good), str(bad), "--report", str(run.json_file), "--case", "test_ruler[vt-4096]"]
    )
    assert (report.regression or pytest.fail("no comparison")).cause == command
    assert command.replace("'", "&#39;") in page_of(run)
