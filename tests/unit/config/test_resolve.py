"""A run is resolved from plain values: options, checkpoint and cases, with errors that name the option."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from longctx.fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.lengths import LengthError
from longctx.fixtures.records import Options
from longctx.fixtures.tasks import RULER_PAPER_PROMPTS, TASKS
from longctx.plugins.config import models
from longctx.plugins.config.cases import default_lengths, parse_lengths
from longctx.plugins.config.invocation import Invocation
from longctx.plugins.config.models import resolve_model
from longctx.plugins.config.options import SUITE_OPTIONS
from longctx.plugins.config.resolve import _read_options, check_values, describe_run, resolve
from longctx.plugins.thresholds.records import SHIPPED
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.workers import run_of

DEFAULTS: dict[str, Any] = {
    **{option.attribute: False if option.kind == "flag" else option.default for option in SUITE_OPTIONS},
    "suite": "ruler", "collectonly": False,
}  # fmt: skip


def invocation(root: Path, **arguments: Any) -> Invocation:
    """Return a command line with these options, typed in the folder `work` of the root directory."""
    return Invocation(
        arguments=Namespace(**DEFAULTS | arguments),
        root=root,
        directory=root / "work",
        local_workers=1,
        is_narrowed=False,
        add_cleanup=lambda _: None,
    )


def test_options_are_numbers_and_absolute_paths(tmp_path: Path) -> None:
    options = _read_options(
        invocation(tmp_path, samples="7", seed="3", budget="2.5", step="9", lengths="8k,4096", data_dir="texts")
    )
    assert (options.samples, options.seed, options.budget_minutes, options.step) == (7, 3, 2.5, 9)
    assert options.lengths == (4096, 8192)
    assert options.data_dir == str(tmp_path / "work" / "texts")
    assert options.journal == str(tmp_path / ".longctx" / "journal")
    assert options.thresholds == str(tmp_path / "thresholds.toml")


def test_every_option_of_the_record_is_read(tmp_path: Path) -> None:
    options = _read_options(invocation(tmp_path, lengths="4k"))
    assert isinstance(options, Options)
    assert (options.budget_minutes, options.step, options.request_timeout) == (None, None, 1800.0)


def described(root: Path, model: Checkpoint, **arguments: Any) -> Options:
    """Return the options of a run of a checkpoint."""
    return describe_run(invocation(root, thresholds=str(SHIPPED), **arguments), model)[0].options


def test_lengths_default_to_those_that_the_checkpoint_claims(tmp_path: Path) -> None:
    checkpoint = replace(run_of(calibration_checkpoint("512")).checkpoint, claimed_length=8192)
    options = described(tmp_path, checkpoint)
    assert options.lengths == tuple(length for length in default_lengths(None) if length <= 8192)
    assert options.model_path == checkpoint.path
    assert described(tmp_path, checkpoint, lengths="1k").lengths == (1024,)


def test_a_model_that_only_a_server_knows_has_no_second_tokenizer(tmp_path: Path) -> None:
    checkpoint = run_of(calibration_checkpoint("512")).checkpoint
    given = {"length_tokenizer": "/tokenizer", "lengths": "4k"}
    assert described(tmp_path, checkpoint, **given).length_tokenizer == "/tokenizer"
    assert described(tmp_path, replace(checkpoint, weight_bytes=0), **given).length_tokenizer is None


def test_listing_cases_needs_no_tokenizer(tmp_path: Path) -> None:
    run = resolve(
        invocation(
            tmp_path, model=str(calibration_checkpoint("512")), lengths="4k", collectonly=True, thresholds=str(SHIPPED)
        )
    )
    assert {case.task for case in run.cases} == {name for name, task in TASKS.items() if task.suite == "ruler"}
    assert (run.id, run.samples, run.misfits, run.endpoint) == ("", "", {}, None)


@pytest.mark.parametrize(("suite", "suites"), [("all", {"ruler", "helmet"}), ("frontier", {"frontier"})])
def test_frontier_tasks_run_only_if_their_suite_is_named(tmp_path: Path, suite: str, suites: set[str]) -> None:
    model = str(calibration_checkpoint("512"))
    run = resolve(
        invocation(tmp_path, model=model, suite=suite, lengths="8k", collectonly=True, thresholds=str(SHIPPED))
    )
    assert {case.task for case in run.cases} == {name for name, task in TASKS.items() if task.suite in suites}


def test_large_weights_are_announced_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, lines = calibration_checkpoint("512"), list[str]()
    given = replace(invocation(tmp_path, model=str(checkpoint)), announce=lines.append)
    resolve_model(given)
    assert lines == []
    monkeypatch.setattr(models, "ANNOUNCED_BYTES", 1)
    monkeypatch.setattr(models, "read_checkpoint", Mock(side_effect=CheckpointError("read")))
    with pytest.raises(CheckpointError, match="read"):
        resolve_model(given)
    assert lines == [f"reading {checkpoint}, 0.0 GB"]


def test_lengths_are_distinct_and_sorted() -> None:
    assert parse_lengths("8k,1024,1k") == (1024, 8192)
    with pytest.raises(LengthError, match=r"^--lengths: unknown '8kb'; write 8k, 8192 or 1m, and several as 4k,8k$"):
        parse_lengths("8kb")


def test_a_claim_below_all_lengths_leaves_the_shortest() -> None:
    assert default_lengths(1) == default_lengths(None)[:1]


def test_a_model_of_the_hub_is_read_from_the_local_cache_at_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has the commits of a model as directories, and its branches and tags as files that name a commit."""
    folder, checkpoint = tmp_path / "models--lab--small", calibration_checkpoint("512")
    commits = {"main": "a" * 40, "step-3000": "b" * 40}
    for name, commit in commits.items():
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / name).write_text(commit)
        (folder / "snapshots").mkdir(exist_ok=True)
        (folder / "snapshots" / commit).symlink_to(checkpoint)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    read = list[str]()

    def record(path: str, **arguments: Any) -> Checkpoint:
        read.append(Path(path).name)
        return read_checkpoint(path, **arguments)

    monkeypatch.setattr(models, "read_checkpoint", record)
    for model in ("lab/small", "lab/small@step-3000", f"lab/small@{'a' * 40}"):
        resolve_model(invocation(tmp_path, model=model))
    assert read == [commits["main"], commits["step-3000"], commits["main"]]
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"^--model: no such directory '.*/lab/small@step-4000'; models of"):
        resolve_model(invocation(tmp_path, model="lab/small@step-4000"))


def test_the_defaults_are_accepted() -> None:
    check_values(Namespace(**DEFAULTS))
    check_values(Namespace(**DEFAULTS | {"prefill_chunk": "512", "budget": "2.5", "step": "0"}))


def test_options_that_took_over_others_keep_their_meaning(tmp_path: Path) -> None:
    (tmp_path / "work" / "data" / "nli").mkdir(parents=True)
    url = "http://node:8000/v1"
    options = _read_options(invocation(tmp_path, base_url=f"{url}/models/prod/llama", chat="server", data_dir="data"))
    assert (options.base_url, options.served_model, options.api, options.chat) == (url, "prod/llama", "chat", "auto")
    assert options.nli_model == str(tmp_path / "work" / "data" / "nli")
    options = _read_options(
        invocation(tmp_path, base_url=url, prompts="ruler-paper", tasks_file="data", thinking_budget=6000)
    )
    assert (options.base_url, options.served_model, options.api) == (url, None, "completions")
    assert (options.prompts, options.qa_fill) == (str(RULER_PAPER_PROMPTS), "random")
    assert (options.samples_from, options.tasks, options.suite) == (str(tmp_path / "work" / "data"), (), "ruler")
    assert options.request_timeout == 2400
