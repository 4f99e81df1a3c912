"""`longctx watch --screen`: likelihood decides how many answers are compared, and never a verdict."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from longctx.ci.watch import __main__ as watch
from longctx.ci.watch import measure
from tests.helpers.checkpoints import write_step
from tests.helpers.fake_suite import FakeSuite


def screened(folder: Path, suite: FakeSuite, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[int, dict[str, Any]]:
    """Watch four steps with a screen and return the lines of the history by step."""
    for step in (1, 2, 3, 4):
        write_step(folder / "run", step)
    monkeypatch.setattr(measure, "run_suite", suite)
    monkeypatch.setattr(watch, "check_suite_options", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    fixed = ["--every", "0.01s", "--once", "--out", str(folder / "out"), "--screen", "8"]
    watch.main([str(folder / "run"), *fixed, *more])
    lines = [json.loads(line) for line in (folder / "out" / "history.jsonl").read_text().splitlines()]
    return {line["step"]: line for line in lines if line["event"] == "measured"}


def test_a_checkpoint_is_measured_at_length_only_if_its_screen_sees_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The loss at step 3 is one of answers too, that at step 4 one of likelihood alone, as of a scaled last norm.
    suite = FakeSuite(rises={2: 0.01, 3: 0.3, 4: 0.3}, regressing={3: -8.0})
    lines = screened(tmp_path, suite, monkeypatch)
    assert {step: line["word"] for step, line in lines.items()} == {1: "pass", 2: "screened", 3: "fail", 4: "pass"}
    assert suite.screened == [2, 3, 4]
    assert suite.runs == [(1, None), (3, "1"), (4, "1")]
    assert [lines[step]["screen"] and lines[step]["screen"]["verdict"] for step in lines] == [
        None, "no loss", "loss", "loss"
    ]  # fmt: skip
    # Four runs of 9000 tokens in all but one, instead of one for each of three screened checkpoints.
    summary = (
        "screen: 1 of 3 checkpoints without a loss, a loss at 2, which answers confirmed at 1; "
        "21,000 tokens computed instead of about 27,000"
    )
    output, index = capsys.readouterr().out, (tmp_path / "out" / "index.html").read_text()
    for shown in (summary, "screen: ruler 8k: loss of the gold answers +0.300 ± 0.020 nats on 8 pairs"):
        assert shown in output
        assert shown in index


@pytest.mark.parametrize(
    ("rise", "loss_points", "verdict"),
    [
        (0.019, 0.0, "no loss"),
        (0.021, 0.0, "loss"),
        (-0.029, 0.0, "no loss"),
        # Gold answers that became likelier by more than noise are a change, as by scaled embeddings.
        (-0.031, 0.0, "change"),
        (-0.5, -60.0, "loss"),
        # Answers that are lost for sure count whatever the likelihood says.
        (0.0, -60.0, "loss"),
        # So do answers that these samples have lost, although that is not shown for the model.
        (0.0, -30.0, "loss"),
        (None, 0.0, "not possible"),
    ],
)
def test_a_screen_sees_a_loss_of_likelihood_and_of_answers(
    rise: float | None, loss_points: float, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = FakeSuite(rises={2: rise}, regressing={2: loss_points} if loss_points else {})
    assert screened(tmp_path, suite, monkeypatch)[2]["screen"]["verdict"] == verdict
    assert ((2, "1") in suite.runs) == (verdict != "no loss")


def test_a_screened_checkpoint_is_accepted_and_never_the_last_good_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = FakeSuite(rises={4: 0.3})
    lines = screened(tmp_path, suite, monkeypatch)
    assert [line["word"] for line in lines.values()] == ["pass", "screened", "screened", "pass"]
    assert suite.runs == [(1, None), (4, "1")]
    assert watch.main([str(tmp_path / "run"), "--every", "0.01s", "--once", "--out", str(tmp_path / "out")]) == 0


def test_a_checkpoint_whose_gold_answers_became_likelier_is_measured_at_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = FakeSuite(rises={3: -0.3})
    lines = screened(tmp_path, suite, monkeypatch)
    assert [line["word"] for line in lines.values()] == ["pass", "screened", "pass", "screened"]
    assert (
        "2 of 3 checkpoints without a loss, a loss at 0, which answers confirmed at 0, likelier gold answers at 1"
        in (capsys.readouterr().out)
    )


def test_a_screen_of_one_sample_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watch.main([str(tmp_path), "--screen", "1"]) == 4
    assert "--screen: 1; give a number of samples" in capsys.readouterr().err
