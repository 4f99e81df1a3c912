"""Many reports as one history: which step each is of, and what is drawn."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fixtures.checkpoints.steps import step_of
from plugins.report.__main__ import main
from plugins.report.document import document
from plugins.report.history import HistoryError, history, read_reports
from plugins.report.scalars import ScalarsError, check_extra, scalars, write_tensorboard
from plugins.reports import write_json
from tests.helpers.reports import run_summary
from tests.helpers.runs import SCHEMA


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/models/run/step_1000", 1000), ("runs/checkpoint-500", 500), ("global_step2000/hf", 2000),
        ("iter_0001000", 1000), ("ckpt.300", 300), ("a/step_5/b/step_70/model", 70), ("Step-12", 12),
        ("steps_3.json", 3), ("llama-3.1-8b", None), ("/models/footstep_9", None), ("v2/model", None),
        ("stepping-2", None), ("", None),
    ],
)  # fmt: skip
def test_a_path_says_its_step(path: str, step: int | None) -> None:
    assert step_of(path) == step


def report(**changed: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"samples": 6, "lengths": (4096, 32768)}
    return document(run_summary(**settings | changed))


def test_the_step_is_that_of_the_option_and_else_of_the_path() -> None:
    assert report(suite="ruler")["run"]["step"] == 1000
    named = report(suite="ruler", step=7)
    assert (named["run"]["step"], named["run"]["options"]["step"]) == (7, 7)
    assert report(suite="ruler", model_path="/m/llama")["run"]["step"] is None
    Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(named)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three steps, one of them twice, a report without a step, and files that are no reports."""
    for at, step in enumerate((3000, 1000, 2000)):
        written = report(step=step)
        write_json(tmp_path / f"{at}.json", written)
        written["run"]["started"] = "2020-01-01T00:00:00+00:00"
        written["ruler"]["effective_length"] = 4
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


def test_reports_stand_in_the_order_of_their_steps(folder: Path) -> None:
    reports, skipped = read_reports(folder)
    assert [each.step for each in reports] == [1000, 2000, 3000, 4000]
    assert all(each.path.name != "older.json" for each in reports)
    assert sorted(line.split(":")[0] for line in skipped) == ["none.json", "older.json"]
    drawn = history(reports, skipped)
    label = {None: 0 if reports[0].document["ruler"]["effective_length_label"] else None}
    assert drawn.effective == tuple(
        label.get(each.document["ruler"]["effective_length"], each.document["ruler"]["effective_length"])
        for each in reports
    )
    means = {track.name: track.values for track in drawn.means}
    assert means["RULER mean at 4096"] == tuple(each.document["ruler"]["scores"]["4096"] for each in reports)
    recall = [each.document["helmet"] and each.document["helmet"]["categories"]["recall"] for each in reports]
    assert means["recall"][:3] == pytest.approx([sum(each.values()) / 2 for each in recall[:3] if each])
    assert means["recall"][3] is None
    assert drawn.gates["effective length"] == tuple(
        next(gate["verdict"] for gate in each.document["gates"] if gate["name"] == "effective length")
        for each in reports
    )


class Text(HTMLParser):
    """All words of a page that are not style."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def test_the_command_draws_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(folder)]) == 0
    told = capsys.readouterr()
    assert told.out == f"4 steps, 1000 to 4000: {folder / 'history.html'}\n"
    assert "left out none.json: no step in the report nor in its path; run it with --step" in told.err
    text = (folder / "history.html").read_text(encoding="utf-8")
    assert "script-src 'none'" in text.replace("&#39;", "'")
    assert "<script" not in text
    reader = Text()
    reader.feed(text)
    assert {"1,000", "2,000", "3,000", "4,000", "effective", "recall"} <= set(reader.words)
    # A second time it does not take its own page for a report.
    assert main(["history", str(folder), "--out", str(folder / "again.html")]) == 0


@pytest.mark.parametrize("kind", ["missing", "empty", "stepless"])
def test_a_directory_without_reports_is_one_line(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "missing" if kind == "missing" else tmp_path
    if kind == "stepless":
        write_json(tmp_path / "r.json", report(suite="ruler", model_path="/m/llama"))
    with pytest.raises(HistoryError, match=r"^history: [^\n]+$"):
        read_reports(target)
    assert main(["history", str(target)]) == 4
    assert capsys.readouterr().err.startswith("error: history: ")


def test_scalars_have_every_score_and_gate_that_was_measured() -> None:
    found = report(paired=True)
    said = scalars(found)
    for case in found["cases"]:
        assert said[f"task/{case['task']}/{'4k' if case['length'] == 4096 else '32k'}"] == case["score"]
    assert said["ruler/mean/4k"] == found["ruler"]["scores"]["4096"]
    assert said["helmet/rag/32k"] == found["helmet"]["categories"]["rag"]["32768"]
    gates = {gate["name"]: gate["verdict"] for gate in found["gates"]}
    assert {name for name in said if name.startswith("gate/")} == {
        f"gate/{name}" for name, word in gates.items() if word in ("pass", "fail")
    }
    assert said["gate/effective length"] == float(gates["effective length"] == "pass")


def test_an_effective_length_below_all_is_zero_and_an_open_one_is_none() -> None:
    found = report(suite="ruler")
    found["ruler"] |= {"effective_length": None, "effective_length_label": "<4096"}
    assert scalars(found)["ruler/effective_length"] == 0
    found["ruler"]["effective_length_label"] = None
    assert "ruler/effective_length" not in scalars(found)


def test_tensorboard_reads_back_what_was_written(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for step in (10, 20):
        write_tensorboard(tmp_path, report(suite="ruler", step=step))
    events = accumulator.EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    said = scalars(report(suite="ruler", step=20))
    tensors = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}
    assert tensors.keys() == said.keys()
    for tag, found in tensors.items():
        assert [each.step for each in found] == [10, 20]
        assert found[-1].tensor_proto.float_val[0] == pytest.approx(said[tag])


def test_a_dashboard_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("tensorboard", "wandb"):
        with pytest.raises(ScalarsError, match=rf"^--{name}: .* pip install 'longctx-gates\[{name}\]'$"):
            check_extra(name)


def test_wandb_keeps_a_run_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    from plugins.report.scalars import write_wandb

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    write_wandb("longctx", report(suite="ruler", step=30))
    assert len(list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))) == 1


def test_reports_before_steps_were_told_are_read(tmp_path: Path) -> None:
    written = report(suite="ruler")
    del written["run"]["step"]
    (tmp_path / "step_5.json").write_text(json.dumps(written))
    reports, _ = read_reports(tmp_path)
    assert [each.step for each in reports] == [5]
