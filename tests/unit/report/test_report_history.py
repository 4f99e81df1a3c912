"""History over training steps: reports in order, means, gates, likelihoods, dashboards."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from longctx.ci.history_command import main
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.document import document
from longctx.plugins.report.history import (
    by_step,
    gate_tracks,
    mean_tracks,
    read_documents,
)
from longctx.plugins.report.scalars import ScalarsError, check_extra, scalars, write_tensorboard
from tests.helpers.pages import tables_of
from tests.helpers.report_records import report_data
from tests.helpers.reports import run_summary
from tests.helpers.runs import SCHEMA


def report(**changed: Any) -> JsonReport:
    settings: dict[str, Any] = {"samples": 6, "lengths": (4096, 32768)}
    return document(run_summary(**settings | changed))


def test_the_step_comes_from_the_option_or_else_from_the_path() -> None:
    assert report(suite="ruler").run.step == 1000
    named = report(suite="ruler", step=7)
    assert (named.run.step, named.run.options["step"]) == (7, 7)
    assert report(suite="ruler", model_path="/m/llama").run.step is None
    Draft202012Validator(SCHEMA).validate(report_data(named))


def write_json(path: Path, written: JsonReport) -> None:
    path.write_text(json.dumps(report_data(written)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three steps, one of them twice, a report without a step, and files that are no reports."""
    for number, step in enumerate((3000, 1000, 2000)):
        written = report(step=step)
        write_json(tmp_path / f"{number}.json", written)
        run = replace(written.run, started="2020-01-01T00:00:00+00:00")
        written = replace(written, run=run, ruler=replace(written.ruler, effective_length=4))
        if step == 2000:
            write_json(tmp_path / "older.json", written)
    (tmp_path / "below").mkdir()
    unnamed = report(suite="ruler", model_path="/m/llama")
    write_json(tmp_path / "below" / "checkpoint-4000.json", unnamed)
    write_json(tmp_path / "none.json", unnamed)
    (tmp_path / "other.json").write_text('{"schema": "else"}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "torn.json").write_text('{"schema": "longctx-rep')
    return tmp_path


def test_reports_are_in_the_order_of_their_steps(folder: Path) -> None:
    reports, skipped = by_step(read_documents(folder)[0], folder)
    assert [report.step for report in reports] == [1000, 2000, 3000, 4000]
    assert all(report.path.name != "older.json" for report in reports)
    assert sorted(line.split(":")[0] for line in skipped) == ["none.json", "older.json"]
    means = {track.name: track.values for track in mean_tracks(reports)}
    assert means["RULER mean at 4K"] == tuple(report.document.ruler.scores["4096"] for report in reports)
    recall = [report.document.helmet and report.document.helmet.categories["recall"] for report in reports]
    assert means["helmet recall"][:3] == pytest.approx(
        [sum(score or 0 for score in scores.values()) / 2 for scores in recall[:3] if scores]
    )
    assert means["helmet recall"][3] is None


def test_the_command_draws_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"4 steps, 1000 to 4000: {folder / 'history.html'}\n"
    assert "left out none.json: no step in the report nor in its path; run it with --step" in printed.err
    text = (folder / "history.html").read_text(encoding="utf-8")
    assert "script-src 'none'" in text.replace("&#39;", "'")
    assert "<script" not in text
    assert [row[0] for row in tables_of(text)["reports"]] == ["step", "1,000", "2,000", "3,000", "4,000"]
    assert ">helmet recall</b>" in text
    # The page from the first call is not taken for a report.
    assert main([str(folder), "--out", str(folder / "again.html")]) == 0


def test_the_page_takes_the_place_of_no_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = next(folder.glob("**/*.json"))
    content = report.read_bytes()
    assert main([str(folder), "--out", str(report)]) == 4
    assert f"history: --out: {report} is the file of a report in {folder}; give another" in capsys.readouterr().err
    assert report.read_bytes() == content


def test_a_report_that_is_torn_newer_or_faulty_is_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = report_data(report(step=1000))
    write_json(tmp_path / "whole.json", report(step=1000))
    (tmp_path / "torn.json").write_text(json.dumps(whole)[:-99])
    (tmp_path / "newer.json").write_text(json.dumps({**whole, "schema": "longctx-report/2"}))
    (tmp_path / "faulty.json").write_text(json.dumps({**whole, "cases": 3}))
    (tmp_path / "else.json").write_text('{"schema": "else"}')
    (tmp_path / "empty.json").touch()
    for name in ("bisect.json", "bisect.toml"):
        (tmp_path / name[-4:]).mkdir()
        (tmp_path / name[-4:] / name).write_text("{}")
        write_json(tmp_path / name[-4:] / "of_a_search.json", report(step=1000))
    assert main([str(tmp_path)]) == 0
    lines = sorted(capsys.readouterr().err.splitlines())
    reasons = [
        "Expecting value",
        "Expected `array`, got `int`",
        "its schema is 'longctx-report/2', not longctx-report/1",
        "Unter",
    ]
    for line, name, reason in zip(lines, ("empty", "faulty", "newer", "torn"), reasons, strict=True):
        assert line.startswith(f"left out {name}.json: is no whole report ({reason}")


def test_scalars_contain_every_measured_score_and_decided_gate() -> None:
    written = report(paired=True)
    values = scalars(written)
    for case in written.cases:
        assert values[f"task/{case.task}/{'4k' if case.length == 4096 else '32k'}"] == case.score
    assert values["ruler/mean/4k"] == written.ruler.scores["4096"]
    assert written.helmet is not None
    assert values["helmet/rag/32k"] == written.helmet.categories["rag"]["32768"]
    gates = {gate.name: gate.verdict for gate in written.gates}
    assert {name for name in values if name.startswith("gate/")} == {
        f"gate/{name}" for name, word in gates.items() if word in ("pass", "fail")
    }
    assert values["gate/effective length"] == float(gates["effective length"] == "pass")


def test_tensorboard_reads_back_all_scalars(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for step in (10, 20):
        write_tensorboard(tmp_path, report(suite="ruler", step=step))
    events = accumulator.EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    values = scalars(report(suite="ruler", step=20))
    tensors = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}
    assert tensors.keys() == values.keys()
    for tag, events_of_tag in tensors.items():
        assert [event.step for event in events_of_tag] == [10, 20]
        assert events_of_tag[-1].tensor_proto.float_val[0] == pytest.approx(values[tag])


def test_a_dashboard_that_is_not_installed_is_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("tensorboard", "wandb"):
        with pytest.raises(ScalarsError, match=rf"^--{name}: {name} is not installed; .* -m pip install {name}$"):
            check_extra(name)


def test_the_history_links_to_the_pages_of_reports(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    for step in (1000, 2000):
        write_json(tmp_path / "runs" / f"step-{step}.json", report(step=step))
    (tmp_path / "runs" / "step-1000.html").touch()
    assert main([str(tmp_path / "runs"), "--out", str(tmp_path / "index.html")]) == 0
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'href="runs/step-1000.html"' in text
    assert "step-2000.html" not in text


def test_the_history_draws_the_values_of_gates_with_what_they_require(tmp_path: Path) -> None:
    for step in (1, 2):
        write_json(tmp_path / f"{step}.json", document(run_summary(samples=6, suite="ruler", step=step, paired=True)))
    reports, _ = by_step(read_documents(tmp_path)[0], tmp_path)
    tracks = {track.name: track for track in gate_tracks(reports)}
    assert tracks
    for name, track in tracks.items():
        gates = [gate for each in reports for gate in each.document.gates if gate.name == name]
        assert list(track.values) == [gate.measured for gate in gates]
        assert track.threshold == gates[0].required
