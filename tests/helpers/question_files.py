"""Question files and tasks files for tests, and a tokenizer with one token per byte."""

import csv
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from longctx.fixtures.corpora import Corpora
from longctx.fixtures.records import Sample, Score
from longctx.fixtures.tasks.questions.compose import question_task
from longctx.fixtures.tasks.questions.read_tasks import read_tasks
from longctx.fixtures.tasks.task import Task
from longctx.fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.tiny_tokenizers import wrapped

ROWS = [{"doc": f"Room {n} is painted {color}.", "q": f"Which color has room {n}?", "a": color}
        for n, color in enumerate(("red", "green", "blue", "white"))]  # fmt: skip
DATASET: Mapping[str, Any] = {
    "name": "rooms",
    "version": 1,
    "category": "lookup",
    "source": {"file": "rooms.jsonl"},
    "fields": {"context": "doc", "question": "q", "references": "a"},
    "prompt": {"text": "{context}\n{question}", "lead_in": " Color:"},
    "budget": 10,
    "metric": {"name": "f1"},
}


@cache
def byte_formatter() -> PromptFormatter:
    """Return a formatter that counts bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={mark: at for at, mark in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PromptFormatter(wrapped(tokenizer, lead=()))


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines, a JSON list, CSV, TSV or parquet, as the name tells."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    elif path.suffix in (".csv", ".tsv"):
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]), delimiter="," if path.suffix == ".csv" else "\t")
            table.writeheader()
            table.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(list(rows)))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_tasks(folder: Path, **changes: Any) -> Path:
    """Write a tasks file with the set `rooms`, with changed keys; None removes a key."""
    dataset = {key: value for key, value in {**DATASET, **changes}.items() if value is not None}
    lines = "".join(f"{key} = {toml(value)}\n" for key, value in dataset.items())
    path = folder / "own.toml"
    path.write_text(f"[[dataset]]\n{lines}")
    return path


def toml(value: Any) -> str:
    """Return a value as TOML writes it inline."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def rooms(folder: Path, rows: Sequence[Mapping[str, Any]] = ROWS, **changes: Any) -> Task:
    """Return the task of `write_tasks` on these rows."""
    write_rows(folder / "rooms.jsonl", rows)
    (task,) = load_tasks_file(write_tasks(folder, **changes))
    return task


def load_tasks_file(path: Path, data_dir: Path | None = None) -> list[Task]:
    """Return the tasks of a file, whose questions are all checked."""
    return [question_task(definition, data_dir, check=True) for definition in read_tasks(path)]


def sample_of(task: Task, length: int = 1024, index: int = 0, *, seed: int = 0) -> Sample:
    """Return a sample with one token per byte."""
    return task.sample(length, index, seed=seed, tokenizer=byte_formatter(), corpora=Corpora())


def samples_by_question(task: Task, count: int, length: int = 1024) -> dict[str, Sample]:
    """Return all samples of a case by their question."""
    samples = [sample_of(task, length, index) for index in range(count)]
    return {sample.question: sample for sample in samples}


def published_score(task: Task, sample: Sample, text: str) -> Score:
    """Return the score of `--scoring paper`."""
    return task.paper_variant.score(sample, text)
