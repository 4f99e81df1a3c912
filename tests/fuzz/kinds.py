"""The kinds of malformed input: each writes one, and returns the program that reads it as a user would."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

from longctx.fixtures.seeding import stable_hash
from tests.fuzz import checkpoint_kinds, option_kinds, report_kinds, tasks_kinds
from tests.fuzz.checkpoint_kinds import ADAPTER, PROCESSOR, SPECIAL_TOKENS, checkpoint_file, loaded
from tests.fuzz.option_kinds import toml_file
from tests.fuzz.programs import Command, Kind, Sound
from tests.fuzz.report_kinds import journal_files
from tests.fuzz.sandbox import Outcome, run_forked

KINDS: Mapping[str, Kind] = {
    "config.json": checkpoint_file("config.json", "--plan"),
    "config values": loaded(checkpoint_kinds.config_values),
    "tokenizer.json": checkpoint_file("tokenizer.json", "--preflight"),
    "tokenizer structure": checkpoint_kinds.vocabulary,
    "tokenizer_config.json": checkpoint_file("tokenizer_config.json", "--preflight"),
    "special tokens": checkpoint_file("special_tokens_map.json", "--preflight", like=SPECIAL_TOKENS),
    "added tokens": checkpoint_file("added_tokens.json", "--preflight", like={"<x>": 8192, "<y>": 8193}),
    "generation config": loaded(checkpoint_file("generation_config.json")),
    "calibration.json": loaded(checkpoint_file("calibration.json")),
    "adapter config": checkpoint_file("adapter_config.json", "--plan", like=ADAPTER),
    "processor config": checkpoint_file("processor_config.json", "--preflight", like=PROCESSOR),
    "chat template": checkpoint_kinds.template,
    "safetensors header": checkpoint_kinds.weights,
    "shard index": checkpoint_kinds.shard_index,
    "file shapes": checkpoint_kinds.file_shapes,
    "thresholds.toml": toml_file("--thresholds", "thresholds.toml"),
    "prompts.toml": toml_file("--prompts", "fixtures/tasks/ruler/prompts.toml"),
    "tasks files": tasks_kinds.tasks_files,
    "question files": tasks_kinds.question_files,
    "longctx.toml": tasks_kinds.run_files,
    "baseline report": report_kinds.baseline,
    "history reports": report_kinds.history,
    "accepted reports": report_kinds.accepted_reports,
    "bisect reports": report_kinds.bisect_reports,
    "journal": journal_files("*.jsonl"),
    "journal header": journal_files("*.json"),
    "watch history": report_kinds.watch_history,
    "published data": report_kinds.data_files,
    "option values": option_kinds.option_values,
    "options of commands": option_kinds.watch_options,
    "environment": option_kinds.environment,
}


def findings(kind: str, seed: int, sound: Sound) -> Outcome:
    """Return how the program of a kind ends on the input that a seed makes, in a forked copy of this process."""
    with tempfile.TemporaryDirectory() as folder:
        program = KINDS[kind](Random(stable_hash("fuzz", kind, seed)), sound, Path(folder))
        return run_forked(program, program.exit_codes if isinstance(program, Command) else (0, 1, 4))
