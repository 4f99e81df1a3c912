"""A run is resolved from plain values: options, checkpoint and cases, with errors that name the option."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures.lengths import LengthError
from fixtures.records import Options
from fixtures.tasks import TASKS
from plugins.config.invocation import ConfigError, Invocation
from plugins.config.resolve import complete_options, default_lengths, parse_lengths, read_options, resolve
from plugins.gates.thresholds import SHIPPED
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.workers import run_of

DEFAULTS: dict[str, Any] = {
    "model": None, "suite": "ruler", "lengths": None, "samples": 500, "seed": 0, "engine": "auto", "device": "auto",
    "dtype": "auto", "attention": "auto", "batch_size": 0, "prefill_chunk": "auto", "chat": "auto",
    "length_tokenizer": None, "data_dir": None, "prompts": None, "thresholds": None, "trust_remote_code": False,
    "preflight": False, "journal": None, "full": False, "budget": None, "baseline": None, "gpus_per_worker": 1,
    "scoring": "strict", "judge_model": None, "judge_url": None, "nli_model": None, "step": None, "base_url": None,
    "serve": None, "api": "completions", "served_model": None, "thinking_budget": 0, "request_timeout": 1800,
    "plan": False, "collectonly": False, "confidence": None, "signal": "answers", "yardstick": "auto", "tasks": None,
    "convert": None, "base_model": None,
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
    options = read_options(
        invocation(tmp_path, samples="7", seed="3", budget="2.5", step="9", lengths="8k,4096", data_dir="texts")
    )
    assert (options.samples, options.seed, options.budget_minutes, options.step) == (7, 3, 2.5, 9)
    assert options.lengths == (4096, 8192)
    assert options.data_dir == str(tmp_path / "work" / "texts")
    assert options.journal == str(tmp_path / ".longctx" / "journal")
    assert options.thresholds == str(tmp_path / "thresholds.toml")


def test_every_option_of_the_record_is_read(tmp_path: Path) -> None:
    options = read_options(invocation(tmp_path, lengths="4k"))
    assert isinstance(options, Options)
    assert (options.budget_minutes, options.step, options.request_timeout) == (None, None, 1800.0)


def test_lengths_default_to_those_that_the_checkpoint_claims(tmp_path: Path) -> None:
    options = read_options(invocation(tmp_path, model="m"))
    checkpoint = replace(run_of(calibration_checkpoint("512")).checkpoint, claimed_length=8192)
    completed = complete_options(options, checkpoint)
    assert completed.lengths == tuple(length for length in default_lengths(None) if length <= 8192)
    assert completed.model_path == checkpoint.path
    given = complete_options(replace(options, lengths=(1024,)), checkpoint)
    assert given.lengths == (1024,)


def test_a_model_that_only_a_server_knows_has_no_second_tokenizer(tmp_path: Path) -> None:
    options = read_options(invocation(tmp_path, length_tokenizer="/tokenizer", lengths="4k"))
    checkpoint = run_of(calibration_checkpoint("512")).checkpoint
    assert complete_options(options, checkpoint).length_tokenizer == "/tokenizer"
    assert complete_options(options, replace(checkpoint, weight_bytes=0)).length_tokenizer is None


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


def test_a_missing_model_is_an_error_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--model: give a checkpoint directory, e\.g\. --model path/to/ckpt; "):
        resolve(invocation(tmp_path))


def test_lengths_are_distinct_and_sorted() -> None:
    assert parse_lengths("8k,1024,1k") == (1024, 8192)
    with pytest.raises(LengthError, match=r"^--lengths: unknown '8kb'; write 8k, 8192 or 1m$"):
        parse_lengths("8kb")


def test_a_claim_below_all_lengths_leaves_the_shortest() -> None:
    assert default_lengths(1) == default_lengths(None)[:1]
