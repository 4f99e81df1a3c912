"""A report as baseline gets its checkpoint back only while that is what was measured; otherwise the reason is named."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config import models as extension
from longctx.plugins.config.models import extend_baseline
from longctx.plugins.config.run import Run
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.thresholds.records import RegressionSettings
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.tiny_tokenizers import Pieces
from tests.helpers.workers import run_of
from tests.unit.config.test_resolve import invocation

FORMATTER = PromptFormatter(Pieces())
EXECUTION = {"engine": "hf", "device": "cpu"}


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run that is compared with the report of a checkpoint that still exists as it was measured."""
    monkeypatch.setattr(extension, "execution_settings", lambda *_, **__: dict(EXECUTION))
    path = calibration_checkpoint("512")
    run = run_of(calibration_checkpoint("full"), journal=str(tmp_path))
    fingerprint = read_checkpoint(str(path)).fingerprint
    baseline = Baseline(
        name="step_1", fingerprint=fingerprint, journal=str(tmp_path), execution=EXECUTION, path=str(path)
    )
    return replace(run, baseline=baseline)


def limit_of(run: Run, root: Path) -> str:
    baseline = extend_baseline(run, invocation(root), FORMATTER).baseline
    assert baseline is not None
    assert (baseline.checkpoint is None) == bool(baseline.limit)
    return baseline.limit


def test_an_unchanged_checkpoint_takes_part(compared: Run, tmp_path: Path) -> None:
    assert limit_of(compared, tmp_path) == ""


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({"path": "/nonexistent/step_1"}, "its checkpoint /nonexistent/step_1 is gone"),
        ({"fingerprint": "0" * 32}, "its checkpoint .* has changed"),
        ({"journal": "/elsewhere"}, "its results are in another journal; give --journal /elsewhere"),
        ({"execution": {"engine": "hf", "device": "cuda"}}, "it was measured with other engine settings or .*"),
        ({"execution": {"engine": "openai"}}, "a server answered for it"),
    ],
)
def test_a_checkpoint_that_cannot_answer_as_before_is_left_out_with_the_reason(
    changed: dict[str, str], limit: str, compared: Run, tmp_path: Path
) -> None:
    assert compared.baseline is not None
    run = replace(compared, baseline=replace(compared.baseline, **changed))  # type: ignore[arg-type]  # by name
    assert re.fullmatch(limit, limit_of(run, tmp_path))


@pytest.mark.parametrize(("signal", "takes_part"), [("answers", False), ("both", True), ("likelihood", True)])
def test_a_checkpoint_with_all_answers_takes_part_if_likelihoods_are_missing(
    signal: str, takes_part: bool, compared: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(compared, options=replace(compared.options, signal=signal))
    answered = {run.key(case, index) for case in run.measurable for index in case.planned}
    journal = SimpleNamespace(refresh=lambda: 0, entries=answered, likelihoods={})
    monkeypatch.setattr(extension, "finished_journal", lambda _: journal)
    baseline = extend_baseline(run, invocation(tmp_path), FORMATTER).baseline
    assert baseline is not None
    assert any(case.has_gold for case in run.measurable)
    assert (baseline.checkpoint is not None) == takes_part


def test_the_thresholds_can_forbid_the_extension(compared: Run, tmp_path: Path) -> None:
    run = replace(compared, thresholds=replace(compared.thresholds, regression=RegressionSettings(extend=False)))
    assert extend_baseline(run, invocation(tmp_path), FORMATTER) == run
