"""The kinds of malformed input: a file in the folder of a user, and the command that reads it."""

import importlib
import json
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.seeding import stable_hash
from longctx.plugins.config.options import RUN_OPTIONS
from tests.fuzz.mutations import ODD_VALUES, mutate_bytes, mutate_json, mutated
from tests.fuzz.sandbox import Outcome, run_forked
from tests.helpers.paths import REPOSITORY
from tests.helpers.question_files import DATASET, ROWS, toml

SMALL = ("--lengths=512", "--samples=2", "-k", "niah_single_1", "-p", "no:xdist")
RUN = ("pytest", "--model={here}/checkpoint", "--suite=ruler", *SMALL)
PLAN, PREFLIGHT = (*RUN, "--plan"), (*RUN, "--preflight")
MEASURE = (*RUN, "--journal={here}/journal", "--report-json={here}/again.json")
TASKS = (
    "pytest",
    "--model={here}/checkpoint",
    "--tasks-file={here}/own.toml",
    "--lengths=512",
    "-p",
    "no:xdist",
    "--plan",
)
WATCH = ("longctx.ci.watch.__main__", "{here}/runs", "--once", "--every=0.01s", "--out={here}/out", "--on-failure=true")
SHOW = ("longctx.cli", "checkpoint", "{here}/checkpoint")
REPORT = "reports/1.json"
CHAT = "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"
SETS: list[dict[str, Any]] = [
    {**DATASET, "above": 50, "lengths": ["512"], "stop": ["\n"], "note": "x", "language": "en",
     "source": {"file": "rooms.jsonl", "rows": 4, "where": {"n": [0, 1, 2]}, "sample": {"n": 2, "seed": 0}}},
    {**DATASET, "name": "chosen", "metric": {"name": "option"},
     "fields": {"context": "doc", "question": "q", "references": "a", "options": "o"}},
    {**DATASET, "name": "filled", "length": {"rule": "fill"}, "answer": {"first_line": True, "after": ["Answer:"]},
     "derive": [{"slot": "year", "from": "doc", "regex": "([0-9])", "op": "words", "drop": [1, 0]}]},
]  # fmt: skip
QUESTIONS = [{**row, "o": [other["a"] for other in ROWS], "n": number} for number, row in enumerate(ROWS)]
RUN_FILE = {
    "model": "checkpoint", "suite": "ruler", "lengths": ["512"], "samples": 2, "select": "niah_single_1", "full": True,
    "seed": 0, "dtype": "auto", "thresholds": "gates.toml", "reports": {"json": "r.json", "junit": "r.xml"},
    "watch": {"every": "10s", "once": True}, "bisect": {"good": "a", "checkpoints": ["a-*", "b-*"]},
}  # fmt: skip
MEASURED = {
    "event": "measured", "step": 1, "checkpoint": "runs/step-1", "fingerprint": "f", "word": "fail",
    "failed": ["a gate"], "report": "r.json", "gpu_seconds": 1.0, "ended": "2026-01-01T00:00:00+00:00",
}  # fmt: skip
GONE = MEASURED | {"lost": "deleted"}
ANSWERED = {"id": "1", "question": "When?", "answers": [{"text": "1801"}]}
SQUAD = {"data": [{"title": "T", "paragraphs": [{"context": "Ann saw the sea in 1801.", "qas": [ANSWERED]}]}]}
PASSAGES = [{"id": str(number), "title": "A", "text": "Ann went."} for number in range(3)]
KILT = [{"question": "Who?", "answers": ["Ann"], "ctxs": PASSAGES, "depth": depth / 5} for depth in range(6)]


@dataclass(frozen=True, slots=True)
class Kind:
    """A file that is malformed, as a pattern below the folder, and the words of the command that reads it."""

    file: str
    command: tuple[str, ...]
    content: Any = None
    """What the file holds before, where the folder has none."""


def _toml_of(path: str) -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / path).read_text(encoding="utf-8"))


# The shipped ones need more cases than the runs have.
NEEDLE = {"name": "needle", "kind": "level", "tasks": ["niah_single_1"], "lengths": ["512"], "above": 50}
GATES = {**(shipped := _toml_of("thresholds.toml")), "gate": [NEEDLE, *shipped["gate"]]}


def _data(file: str, case: str, content: Any) -> Kind:
    options = (f"--suite={'helmet' if case == 'nq' else 'ruler'}", "--lengths=2k", "--samples=1", "-k", case)
    command = (
        "pytest",
        "--model={here}/checkpoint",
        "--data-dir={here}/data",
        *options,
        "-p",
        "no:xdist",
        "--preflight",
    )
    return Kind(f"data/{file}", command, content)


# What decides an answer, also read by `longctx checkpoint`.
DECISIVE = ("config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json")
# By name: the command that reads the file, and what the file holds where the sound checkpoint has none.
FILES_OF_A_CHECKPOINT: Mapping[str, tuple[tuple[str, ...], Any]] = {
    "config.json": (PLAN, None),
    "tokenizer.json": (PREFLIGHT, None),
    "tokenizer_config.json": (PREFLIGHT, None),
    "special_tokens_map.json": (PREFLIGHT, {"bos_token": {"content": "<s>", "lstrip": False}, "x": ["<|end|>"]}),
    "added_tokens.json": (PREFLIGHT, {"<x>": 8192, "<y>": 8193}),
    "generation_config.json": (MEASURE, None),
    "calibration.json": (MEASURE, None),
    "adapter_config.json": (PLAN, {"peft_type": "LORA", "base_model_name_or_path": "base", "r": 8}),
    "processor_config.json": (PREFLIGHT, {"chat_template": CHAT}),
    "chat_template.jinja": (PREFLIGHT, CHAT),
    "model.safetensors": (PLAN, None),
    "model.safetensors.index.json": (PLAN, {"weight_map": {"model.norm.weight": "model.safetensors"}}),
}
KINDS: Mapping[str, Kind] = {
    **{name: Kind(f"checkpoint/{name}", *rest) for name, rest in FILES_OF_A_CHECKPOINT.items()},
    **{f"shown {name}": Kind(f"checkpoint/{name}", SHOW, FILES_OF_A_CHECKPOINT[name][1]) for name in DECISIVE},
    "thresholds.toml": Kind("gates.toml", (*PLAN, "--thresholds={here}/gates.toml"), GATES),
    "prompts.toml": Kind("p.toml", (*PLAN, "--prompts={here}/p.toml"), _toml_of("fixtures/tasks/ruler/prompts.toml")),
    "tasks files": Kind("own.toml", TASKS, {"suite": "own", "title": "Rooms", "dataset": SETS}),
    "question files": Kind("rooms.jsonl", TASKS, QUESTIONS),
    "longctx.toml": Kind("longctx.toml", ("longctx.cli", "plan", "--config={here}/longctx.toml"), RUN_FILE),
    "baseline report": Kind(REPORT, (*MEASURE, f"--baseline={{here}}/{REPORT}", "--plan")),
    "history reports": Kind(REPORT, ("longctx.ci.history_command", "{here}/reports", "--out={here}/history.html")),
    "accepted reports": Kind(
        REPORT, ("longctx.ci.propose_thresholds", f"{{here}}/{REPORT}", *(f"{{here}}/reports/{n}.json" for n in (2, 3)))
    ),
    "journal": Kind("journal/*/*.jsonl", ("longctx.plugins.journal.__main__", "{here}/journal", "--prune", "0d")),
    "stored answers": Kind("journal/*/*.jsonl", MEASURE),
    "journal header": Kind("journal/*/*.json", ("longctx.plugins.journal.__main__", "{here}/journal")),
    "watch history": Kind("out/history.jsonl", WATCH, [MEASURED, MEASURED, GONE]),
    "squad": _data("qa/squad-dev-v2.0.json", "qa_1", SQUAD),
    "essays": _data("essays/PaulGrahamEssays.json", "niah_single_2", {"text": "One sentence. Another one! " * 500}),
    "passages": _data("kilt/nq-dev-multikilt_1000_k61_dep6.jsonl", "nq", KILT),
    "option values": Kind("", PLAN),
}
SHAPES: Mapping[str, Callable[[Path], object]] = {
    "directory": Path.mkdir, "pipe": os.mkfifo, "device": partial(Path.symlink_to, target="/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name), "unreadable": partial(Path.touch, mode=0),
}  # fmt: skip


def sound_folder(folder: Path) -> Path:
    """Write a checkpoint with a chat template, its journal, three reports of it and the files of a user; return it."""
    build(parse_spec("512-chat"), folder / "checkpoint")
    for name in ("reports", "runs"):
        (folder / name).mkdir()
    _called((*RUN, "--journal={here}/journal", "--report-json={here}/reports/1.json"), folder)
    report = json.loads((folder / REPORT).read_text())
    for number in (1, 2, 3):
        report["run"]["step"] = 1000 * number
        (folder / f"reports/{number}.json").write_text(json.dumps(report))
    for kind in KINDS.values():
        if kind.content is not None and "/" not in kind.file:
            (folder / kind.file).write_bytes(_encoded(kind.file, kind.content))
    return folder


def findings(name: str, sound: Path, *, seed: int = 0, changes: Mapping[str, Any] | None = None) -> Outcome:
    """Return how the command of a kind ends on its file with the mutations of a seed, or with changed values."""
    kind, random = KINDS[name], Random(stable_hash("fuzz", name, seed))
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(shutil.copytree(sound, Path(directory, "user"), copy_function=os.link))
        words = kind.command
        if kind.file:
            _malform(random, folder, kind, changes)
        else:
            odd = [str(value).encode("utf-8", "replace").decode() for value in ODD_VALUES if "\x00" not in str(value)]
            words = (*words, f"{random.choice([*RUN_OPTIONS])}={random.choice(odd)}")
        return run_forked(partial(_called, words, folder))


def _malform(random: Random, folder: Path, kind: Kind, changes: Mapping[str, Any] | None) -> None:
    path = random.choice(sorted(folder.glob(kind.file)) or [folder / kind.file])
    content = kind.content
    if content is None:
        content = json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    # It is a link to the sound one.
    path.unlink(missing_ok=True)
    if changes is not None:
        path.write_bytes(_encoded(path.name, content | changes))
    elif random.random() < 0.05:
        SHAPES[random.choice(sorted(SHAPES))](path)
    elif path.suffix == ".safetensors" and random.random() < 0.5:
        end = 8 + int.from_bytes(content[:8], "little")
        header = mutate_json(random, json.loads(content[8:end]))
        path.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])
    elif isinstance(content, bytes | str):
        data = _encoded(path.name, content)
        path.write_bytes(mutate_bytes(random, data[:5000]) + data[5000:])
    else:
        data = _encoded(path.name, mutated(random, content))
        path.write_bytes(mutate_bytes(random, data) if random.random() < 0.2 else data)


def _encoded(name: str, content: Any) -> bytes:
    """Return what a file of this name holds."""
    if isinstance(content, bytes | str):
        return content if isinstance(content, bytes) else content.encode()
    if name.endswith(".jsonl") and isinstance(content, list):
        return "".join(json.dumps(line) + "\n" for line in content).encode()
    if name.endswith(".toml") and isinstance(content, dict):
        return "".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in content.items()).encode()
    return json.dumps(content).encode()


def _called(words: Sequence[str], folder: Path) -> int:
    """Run a command on the files of a folder, in this process, and return its exit code."""
    name, *arguments = (word.replace("{here}", str(folder)) for word in words)
    if name == "pytest":
        return int(pytest.main([f"--rootdir={REPOSITORY}", f"-c={REPOSITORY}/pyproject.toml", *arguments]))
    # `longctx plan` becomes pytest, which this process has loaded already.
    os.execv = lambda _, words: sys.exit(pytest.main([str(word) for word in words[4:]]))
    code: int = importlib.import_module(name).main(arguments)
    return code
