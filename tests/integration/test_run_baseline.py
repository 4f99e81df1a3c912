"""A run that is compared with a baseline: another checkpoint, the report of an earlier run, and unusable ones."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from safetensors.torch import load_file, save_file

from longctx.plugins.config.run import BaselineError, read_baseline
from longctx.plugins.report.sections.gates import PLAIN
from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, completed_run
from tests.helpers.servers import served_needles
from tests.helpers.workers import options_of

TASK = "niah_single_1"
SELECTED = ("--lengths", "512,1k", "--samples", "20", "-k", TASK)
PAIRED = f"""
[[gate]]
name = "high"
kind = "level"
tasks = ["{TASK}"]
lengths = ["1k"]
above = 99
blocking = false

[regression]
drop = 30
"""


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[str, ...]]:
    """The options for a model with a window of 512 tokens on a server, so that no run has weights to load."""
    with served_needles(512, calibration_checkpoint("512")) as server:
        yield "--model", "calibration:512", server


@pytest.fixture(scope="module")
def full(model: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run that measured all samples of one task."""
    return completed_run(tmp_path_factory, *model, *SELECTED, "--full", thresholds=PAIRED, own_journal=True)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A better and a worse checkpoint in directories of the same name; the worse one got a token and spare rows."""
    folder = tmp_path_factory.mktemp("checkpoints")
    better = Path(shutil.copytree(calibration_checkpoint("full"), folder / "a" / "step_1"))
    return better, with_token(calibration_checkpoint("512"), folder / "b" / "step_1", "<|tool|>")


def with_token(source: Path, out: Path, token: str) -> Path:
    """Write a checkpoint with one more token and embeddings that are padded by 64 rows."""
    shutil.copytree(source, out)
    config, tokenizer = (json.loads((out / name).read_text()) for name in ("config.json", "tokenizer.json"))
    rows = config["vocab_size"]
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer["added_tokens"].append({"id": rows, "content": token} | added)
    weights = load_file(out / "model.safetensors")
    for name, tensor in weights.items():
        if len(tensor) == rows:
            weights[name] = torch.cat([tensor, torch.zeros(64, *tensor.shape[1:], dtype=tensor.dtype)])
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config | {"vocab_size": rows + 64}))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    return out


@pytest.fixture(scope="module")
def worse(checkpoints: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run that compares two checkpoints of the same name, with one journal."""
    better, candidate = checkpoints
    size = ("--lengths", "1k", "--samples", "20", "-k", TASK)
    return completed_run(
        tmp_path_factory, "--model", str(candidate), "--baseline", str(better), *size,
        thresholds=PAIRED.replace("30", "2"), own_journal=True,
    )  # fmt: skip


def test_a_worse_checkpoint_fails_and_the_reason_counts_its_worse_samples(worse: CompletedRun) -> None:
    assert worse.exit_code == 1
    gate, case = worse.gates["regression at 1k"], worse.report["regression"]["cases"][f"test_ruler[{TASK}-1k]"]
    assert (gate["verdict"], gate["kind"], gate["length"], gate["required"]) == ("fail", "regression", 1024, -2)
    assert gate["measured"] < gate["required"]
    assert case["worse"] > 0
    assert f"{case['worse']} worse, {case['better']} better of {gate['samples']} pairs" in gate["reason"]
    assert gate["reason"] in worse.output.replace("\n           ", " ")
    assert worse.junit_outcomes("gate[regression at 1k]") == ["failure"]
    Draft202012Validator(SCHEMA).validate(worse.report)


def test_checkpoints_of_the_same_name_share_no_results(worse: CompletedRun) -> None:
    assert len(list((worse.folder / "journal").glob("*/subject.json"))) == 2


def test_a_prompt_with_a_token_that_only_one_side_knows_is_not_compared(
    checkpoints: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = with_token(checkpoints[0], tmp_path_factory.mktemp("token") / "step_1", "special magic")
    run = completed_run(
        tmp_path_factory, "--model", str(other), "--baseline", str(checkpoints[0]),
        "--lengths", "512", "--samples", "2", "-k", TASK, thresholds=PAIRED, own_journal=True,
    )  # fmt: skip
    assert run.exit_code == 1
    error = run.report["cases"][0]["error"]
    assert error.startswith(f"--baseline: its tokenizer makes other token ids of test_ruler[{TASK}-512] sample")


def test_a_report_of_the_same_answers_leaves_none_to_compute_and_no_loss(
    model: tuple[str, ...], full: CompletedRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A server may answer otherwise from run to run, so its answers are compared."""
    known = ("--baseline", f"{full.folder}/report.json", "--journal", f"{full.folder}/journal")
    run = completed_run(tmp_path_factory, *model, *SELECTED, *known, thresholds=PAIRED, own_journal=True)
    assert (run.exit_code, run.report["run"]["computed_samples"]) == (0, 0)
    pairs = [run.gates[f"regression at {length}"] for length in ("512", "1k")]
    assert {(gate["verdict"], gate["measured"]) for gate in pairs} == {("pass", 0.0)}
    cases = run.report["regression"]["cases"].values()
    assert {(case["difference"], case["worse"], case["better"], case["dropped"]) for case in cases} == {
        (0.0, 0, 0, False)
    }
    assert run.report["regression"]["baseline"]["fingerprint"] == run.report["model"]["fingerprint"]


def test_a_checkpoint_that_is_its_own_baseline_is_measured_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    copy = shutil.copytree(calibration_checkpoint("512"), tmp_path_factory.mktemp("twin") / "step_9")
    compared = ("--model", "calibration:512", "--baseline", str(copy))
    run = completed_run(tmp_path_factory, *compared, *SELECTED, thresholds=PAIRED, own_journal=True)
    assert run.report["run"]["computed_samples"] == sum(case["samples"] for case in run.report["cases"])
    pairs = [run.gates[f"regression at {length}"] for length in ("512", "1k")]
    assert {(gate["verdict"], gate["measured"], gate["samples"]) for gate in pairs} == {("pass", None, 0)}
    assert {gate["reason"] for gate in pairs} == {PLAIN["same checkpoint"]}
    assert (run.exit_code, PLAIN["same checkpoint"] in run.output.replace("\n           ", " ")) == (0, True)


def changed(section: str, **values: Any) -> Callable[[Path], None]:
    """Return a function that overwrites values in a section of a report, or at its top level."""

    def change(path: Path) -> None:
        report = json.loads(path.read_text())
        (report[section] if section else report).update(values)
        path.write_text(json.dumps(report))

    return change


UNUSABLE_BASELINES: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (
        Path.unlink,
        r"cannot read .*/report.json \(No such file or directory\); give a JSON report or a checkpoint",
    ),
    "another schema": (
        changed("", schema="longctx-report/0"),
        r".* \(its schema is 'longctx-report/0', not \S+; another version.*",
    ),
    "nothing measured": (
        changed("model", execution=None),
        r"\S+ is not a longctx-report/1 of a run that measured something; .*",
    ),
    "another seed": (changed("run", seed=1), r"\S+ was measured on other samples \(seed 1, .*\); .*"),
    "other samples": (changed("run", samples="0"), r"\S+ was measured on other samples \(seed 0, .*\); .*"),
    "no journal": (
        changed("model", fingerprint="0"),
        r"the journal of \S+ is neither in \S+ nor in /nonexistent/journal; .*",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE_BASELINES)
def test_an_unusable_baseline_is_refused_in_one_line(name: str, full: CompletedRun, tmp_path: Path) -> None:
    change, line = UNUSABLE_BASELINES[name]
    report = Path(shutil.copy(full.folder / "report.json", tmp_path))
    samples = full.report["run"]["samples"]
    options = options_of("/m")
    found = read_baseline(report, options, samples)
    assert found.name == "calibration:512"
    change(report)
    with pytest.raises(BaselineError, match=f"^--baseline: {line}$"):
        read_baseline(report, options, samples)
