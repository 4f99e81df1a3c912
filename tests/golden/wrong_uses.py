"""All wrong uses: commands that end with one line and an exit code, without a model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from longctx import cli
from longctx.plugins.config import options
from tests.golden.wrong_files import (
    BASELINES,
    BISECT_TABLES,
    DATASET,
    GATE,
    GATES,
    QUESTION_SETS,
    ROOMS,
    ROW_FILES,
    RUN_FILES,
    TASKS_FILES,
    THRESHOLDS,
    WATCH_TABLES,
)
from tests.golden.wrong_words import BAD_VALUES, BISECTIONS, CONTRADICTIONS, OTHER_COMMANDS, RUN, WATCHES

# What stands in the directory of every wrong use.
EVERYWHERE = {
    "empty/": "", "runs/": "", "occupied": "a file, where a directory is wanted\n",
    "broken/config.json": '{"model_type": "llama", ', "broken/model.safetensors": "no weights",
}  # fmt: skip
MEASURES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no-such-folder", {}),
    ("calibration:x", {}),
    *(
        ("calibration:512", options)
        for options in (
            {"lengths": "x"},
            {"lengths": "4k", "samples": 0},
            {"lengts": "4k"},
            {"baseline": "x"},
            {"engine": "openai"},
            {"base_url": "http://127.0.0.1:1/v1"},
            {"serve": "x"},
            {"served_model": "x"},
            {"api": "chat"},
            {"request_timeout": 3},
            {"workers": 2},
            {"select": "vt"},
            {"markers": "ruler"},
            {"invariance": True},
            {"judge_model": "m"},
            {"judge_url": "m"},
            {"nli_model": "m"},
            {"tensorboard": "x"},
            {"wandb": "x"},
            {"gpus_per_worker": 2},
            {"report_json": "x"},
            {"plan": True},
            {"preflight": True},
            {"config": "x"},
            {"full": "yes"},
            {"suite": "nope"},
            {"suite": "ruler", "lengths": "512", "task_names": ["none"]},
            {"tokenizer": "x"},
            {"thresholds": "none.toml"},
            {"tasks": "none.toml"},
            {"seed": True},
            {"confidence": 2},
            {"signal": "loud"},
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a user, and what stands in its current directory."""

    words: tuple[str, ...]

    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by path; a path that ends with a slash is an empty directory."""

    shown: str = ""
    """The file that the record shows, because the mistake is in it."""


def command(text: str) -> Command:
    """Return a command that is written as for a shell."""
    return Command(words=tuple(shlex.split(text)))


def wrong_uses() -> dict[str, tuple[Command, ...]]:
    """Return all wrong uses by group."""
    gates = f"{RUN} --lengths 4k --signal both --thresholds t.toml"
    return {
        "values of options": tuple(_bad_values()),
        "contradictions": tuple(map(command, CONTRADICTIONS)),
        "other commands": tuple(map(command, OTHER_COMMANDS)),
        "gone": (
            *(command(f"longctx {name} x") for name in cli.REMOVED),
            *(command(f"{RUN} {flag} x") for flag in options.REMOVED if flag.startswith("--")),
        ),
        "run files": tuple(
            _with_file("longctx run --model no-such-folder", "longctx.toml", text + "\n") for text in RUN_FILES
        ),
        "watch": (
            *(command(f"longctx watch {text}") for text in WATCHES),
            *(_with_file("longctx watch runs --once", "longctx.toml", text + "\n") for text in WATCH_TABLES),
        ),
        "bisect": (
            *(command(f"longctx bisect {text}") for text in BISECTIONS),
            *(_with_file("longctx bisect --good a --bad b", "longctx.toml", text + "\n") for text in BISECT_TABLES),
        ),
        "gates": tuple(_with_file(gates, "t.toml", "[[gate]]\n" + _toml(GATE, changes)) for changes in GATES),
        "thresholds": tuple(_with_file(f"{RUN} --thresholds t.toml", "t.toml", text + "\n") for text in THRESHOLDS),
        "question sets": tuple(_question_sets()),
        "measure": tuple(Command(words=("measure", model, json.dumps(options))) for model, options in MEASURES),
        "baselines": tuple(
            _with_file(f"{RUN} --lengths 4k --baseline report.json", "report.json", text) for text in BASELINES
        ),
    }


def _bad_values() -> Iterator[Command]:
    for option, values in BAD_VALUES.items():
        for value in values:
            first = "longctx run --suite ruler" if option == "model" else "longctx run --model calibration:512"
            if option not in ("model", "suite", "tasks"):
                first = RUN
            length = "" if option in ("model", "lengths") else " --lengths 4k"
            yield command(f"{first}{length} {shlex.quote(f'--{option}={value}')}")


def _question_sets() -> Iterator[Command]:
    text = "longctx run --model calibration:512 --tasks own.toml"
    for changes in QUESTION_SETS:
        yield _with_file(text, "own.toml", "[[dataset]]\n" + _toml(DATASET, changes), {"rooms.jsonl": ROOMS})
    for content in TASKS_FILES:
        yield _with_file(text, "own.toml", content + "\n", {"rooms.jsonl": ROOMS})
    right = "[[dataset]]\n" + _toml(DATASET, {})
    for content in ROW_FILES:
        yield _with_file(text, "rooms.jsonl", content, {"own.toml": right})
    for more in ("--suite ruler", "--suite other", "--signal loud"):
        yield _with_file(f"{text} {more}", "own.toml", right, {"rooms.jsonl": ROOMS})


def _with_file(text: str, name: str, content: str, others: Mapping[str, str] | None = None) -> Command:
    return Command(words=tuple(shlex.split(text)), files={**(others or {}), name: content}, shown=name)


def _toml(table: Mapping[str, str], changes: Mapping[str, str | None]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in {**table, **changes}.items() if value is not None)
