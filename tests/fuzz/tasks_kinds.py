"""Malformed tasks files and question files of `--tasks-file`, and malformed files that describe a run."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutations import ODD_VALUES, mutate_bytes, mutate_json, mutate_structure
from tests.fuzz.programs import SMALL, Command, Program, Sound, suite

ROWS: list[dict[str, Any]] = [
    {"doc": f"Room {n} is painted red.", "q": f"Which color has room {n}?", "a": ["red", "dark red"],
     "o": ["red", "blue"], "n": n, "id": str(n)}
    for n in range(4)
]  # fmt: skip
DATASET: Mapping[str, Any] = {
    "name": "rooms", "version": 1, "category": "lookup", "budget": 8, "above": 50, "lengths": ["512"],
    "source": {"file": "rooms.jsonl"},
    "fields": {"context": "doc", "question": "q", "references": "a"},
    "metric": {"name": "f1"},
    "prompt": {"text": "{context}\n{question}", "lead_in": " Color:", "system": "Be brief."},
}  # fmt: skip
# Keys that not every set has; each input has some of them.
FURTHER: tuple[Mapping[str, Any], ...] = (
    {"source": {"file": "rooms.jsonl", "where": {"n": [1, 2]}, "sample": {"n": 2, "seed": 0}}},
    {"source": {"file": ["rooms.jsonl"], "merge_by": "id", "rows": 4, "format": "jsonl"}},
    {"source": {"file": "rooms.jsonl", "explode": ["a", "o"]}},
    {"fields": {"context": "doc", "question": "q", "references": "n", "options": "o"}, "metric": {"name": "option"}},
    {"turns": [{"role": "user", "text": "{doc} {o[1]}"}]},
    {"prompt": {"file": "prompt.txt", "style": "dollar"}}, {"prompt": {"field": "doc"}},
    {"length": {"rule": "fill"}}, {"length": {"rule": "middle", "of": "context"}}, {"length": {"rule": "skip"}},
    {"length": {"rule": "head", "of": "prompt", "keep_from": "n", "separator": "id"}, "prompt": {"field": "doc"}},
    {"shots": {"n": 1, "text": "{question} {reference}", "seed": 0}}, {"stop": ["\n"]},
    {"derive": [{"slot": "year", "from": "doc", "regex": "([0-9])", "op": "words", "drop": [1, 0]}]},
    {"answer": {"first_line": True, "after": ["Answer:"], "regex": "(.)", "delete": "*"}},
    {"metric": {"name": "label_set", "labels": ["red", "blue"]}}, {"note": "x", "language": "en", "size": 4},
)  # fmt: skip
RUN_FILE: Mapping[str, Any] = {
    "suite": "ruler", "lengths": ["512"], "samples": 2, "select": "niah_single_1", "full": True, "seed": 0,
    "dtype": "auto", "thresholds": "gates.toml", "reports": {"json": "r.json", "junit": "r.xml"},
    "watch": {"every": "10s", "once": True}, "bisect": {"good": "a", "checkpoints": ["a-*", "b-*"]},
}  # fmt: skip
ENCODINGS = ("utf-8-sig", "utf-16", "latin-1", "utf-7")


def tasks_files(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a tasks file beside sound questions."""
    (folder / "rooms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "prompt.txt").write_text("$doc$ $q$")
    dataset: Any = {**DATASET, **random.choice(FURTHER), **random.choice(FURTHER)}
    content = {"suite": "own", "title": "Rooms", "dataset": [dataset, {**DATASET, "name": "other"}]}
    return _plan(sound, _toml_path(random, folder, content))


def question_files(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the questions of a sound tasks file."""
    name = random.choice(("rooms.jsonl", "rooms.jsonl", "rooms.json", "rooms.parquet"))
    dataset = {**DATASET, **random.choice(FURTHER)}
    dataset["source"] = {**dataset["source"], "file": name}
    (folder / "prompt.txt").write_text("$doc$ $q$")
    (folder / name).write_bytes(_rows(random, name))
    path = folder / "own.toml"
    path.write_text(toml_text({"dataset": [dataset]}))
    return _plan(sound, path)


def run_files(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform a file that describes a run, and plan its run as `longctx plan` does, in this process."""
    (folder / "gates.toml").write_text("")
    path = _toml_path(random, folder, {"model": str(sound.checkpoint), **RUN_FILE})

    def plan() -> int:
        from longctx.ci.run_file import RunFileError, command_options, read_run_file, run_options
        from longctx.fixtures.cli import report_wrong_use

        try:
            file = read_run_file(path)
            for command in ("watch", "bisect"):
                command_options(file, command)
            options = run_options(file, "plan")
        except RunFileError as error:
            return report_wrong_use(str(error))
        return suite("--plan", *options, "-p", "no:xdist")()

    return plan


def _plan(sound: Sound, path: Path) -> Command:
    return suite(f"--model={sound.checkpoint}", f"--tasks-file={path}", *SMALL[1:3], "-p", "no:xdist", "--plan")


def _rows(random: Random, name: str) -> bytes:
    if name.endswith(".parquet"):
        return _table(random)
    rows = mutate_structure(random, copy.deepcopy(ROWS))
    if name.endswith(".json"):
        data = mutate_json(random, ROWS)
    else:
        listed = rows if isinstance(rows, list) else [rows]
        data = "".join(json.dumps(row) + "\n" for row in listed).encode()
    if random.random() < 0.2:
        data = data.decode(errors="replace").encode(random.choice(ENCODINGS), errors="replace")
    if random.random() < 0.2:
        data = mutate_bytes(random, data)
    return data


def _table(random: Random) -> bytes:
    """Return a parquet file with a column of another type: nested, binary, dates, decimals or all null."""
    import datetime
    import decimal
    import io

    import pyarrow
    import pyarrow.parquet

    odd: list[Any] = [
        {"text": "red"}, b"\xff\xfe", datetime.date(2026, 1, 1), decimal.Decimal("1.5"), None, [["red"]], float("nan"),
        datetime.timedelta(days=1), [], [{"text": "red"}], True, 2**62, "red",
    ]  # fmt: skip
    column, value = random.choice(sorted(ROWS[0])), random.choice(odd)
    rows = [{**row, column: value} for row in ROWS]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[: random.choice((0, 1, 4))] or rows), file)
    return mutate_bytes(random, file.getvalue()) if random.random() < 0.3 else file.getvalue()


def _toml_path(random: Random, folder: Path, content: Any) -> Path:
    content = copy.deepcopy(content)
    for _ in range(random.choice((0, 1, 1, 1, 2))):
        content = mutate_structure(random, content)
    text = toml_text(content) if isinstance(content, dict) else json.dumps(random.choice(ODD_VALUES))
    data = text.encode("utf-8", "replace")
    if random.random() < 0.1:
        data = text.encode(random.choice(ENCODINGS), errors="replace")
    path = folder / "own.toml"
    path.write_bytes(mutate_bytes(random, data) if random.random() < 0.1 else data)
    return path


def toml_text(content: Mapping[str, Any]) -> str:
    """Return a document in TOML: arrays of tables as such, everything else inline. Keys without a value stay out."""
    plain = {key: value for key, value in content.items() if not _is_tables(value)}
    lines = [f"{json.dumps(str(key))} = {_inline(value)}" for key, value in plain.items() if value is not None]
    for key, tables in content.items():
        for table in tables if _is_tables(tables) else ():
            lines.append(f"[[{key}]]")
            lines += [f"{_key(name)} = {_inline(value)}" for name, value in table.items() if value is not None]
    return "\n".join(lines) + "\n"


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _key(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_inline(entry)}" for name, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return '""' if value is None else json.dumps(value, ensure_ascii=False)
