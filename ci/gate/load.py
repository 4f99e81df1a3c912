"""Read results of any known format, recognized by their content, from a file, a folder or a glob."""

import csv
import glob
import io
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from longctx.ci.gate.formats import FORMATS, Content, Place, ResultsError, Sample, read_table
from longctx.fixtures.outside_files import MIB, errors_as, expanded, read_outside
from longctx.fixtures.shown_text import known_names, visible_line
from longctx.plugins.report.tables import counted

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".eval")
SEPARATORS = ",;\t"
LIMIT_BYTES = 4096 * MIB
MOST_NAMED, MOST_SHOWN, MOST_CHARACTERS = 3, 8, 90
HEADER = "header.json"
# Metrics of which less is better.
LOWER_IS_BETTER = frozenset({
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "ppl", "loss", "nll", "wer", "cer", "ter",
    "brier_score", "mae", "mse", "rmse", "edit_distance",
})  # fmt: skip
WRITTEN = "give a file, a folder or a glob of results"
TRUTH = {"true": 1.0, "false": 0.0}

Source = str | Path | Sequence[Mapping[str, object]]
"""A file, a folder or a glob of results, or the rows of a table: id, score and more, as a CSV file has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The choices by which scores are read."""

    metrics: tuple[str, ...] = ()
    """The metrics to compare: of each task the first one that it has. Empty if every task has only one."""
    scale: float | None = None
    """The best score; None for 1."""
    lower_is_better: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of one model."""

    name: str
    """As the user wrote it."""
    kind: str
    """The name of the format."""
    samples: Mapping[Place, Mapping[str, Sample]]
    """By task and length, the samples by identity."""
    notes: Sequence[str]


def load(source: Source, reading: Reading, *, role: str) -> Results:
    """Read results; raise ResultsError. A sequence of rows is a table in memory; `role` names it in errors."""
    notes: list[str] = []
    if isinstance(source, str | Path):
        name = str(source)
        kind, files = _files(_paths(source, role), name, notes)
    else:
        name, kind = role.lower(), "table"
        rows = [(f", row {number}", row) for number, row in enumerate(source, 1)]
        table = list(read_table(Content(path=Path(name), first=None, rows=rows, notes=notes)))
        files = {Path(name): table} if table else {}
    samples: dict[Place, dict[str, Sample]] = {}
    lower = set()
    for place, own in _newest(files, name, notes).items():
        metric = _metric(place[0], own, reading, name)
        scored = [sample for sample in own if metric in sample.scores]
        is_lower = reading.lower_is_better or metric.partition(",")[0].lower() in LOWER_IS_BETTER
        for sample in scored:
            share = _share(sample, metric, reading, name)
            sample.score = 1 - share if is_lower else share
        if scored:
            samples[place] = _by_identity(scored, name)
            lower |= {metric} if is_lower else set()
    if not samples:
        raise ResultsError(f"{name}: has no scored sample; {WRITTEN}")
    notes += [f"{name}: less is better of {metric}, so what is missing to the worst counts" for metric in sorted(lower)]
    return Results(name=name, kind=kind, samples=samples, notes=notes)


def _by_identity(samples: Sequence[Sample], name: str) -> dict[str, Sample]:
    """Return the samples of a task by identity, each with the mean of its attempts; raise ResultsError for a twin."""
    attempts: dict[str, dict[int | str, Sample]] = defaultdict(dict)
    numbers: dict[str, dict[int | str, int]] = defaultdict(dict)
    for sample in samples:
        identity = sample.key
        if sample.document:
            # Equal documents are numbered.
            own = numbers[identity]
            identity = f"{identity} {own.setdefault(sample.id, len(own))}"
        if attempts[identity].setdefault(sample.repeat, sample) is not sample:
            raise ResultsError(f"{name}: sample {sample.id} of {sample.task} occurs twice; remove one of them")
    known = {}
    for identity, repeats in attempts.items():
        first, *_ = repeats.values()
        first.score = fmean(sample.score for sample in repeats.values())
        known[identity] = first
    return known


def _paths(source: str | Path, role: str) -> list[Path]:
    """Return the files that are meant."""
    path = expanded(source)
    if not str(source).strip():
        raise ResultsError(f"{role}: is empty; {WRITTEN}")
    if os.path.isdir(path):
        candidates = [file for file in path.rglob("*") if file.suffix in SUFFIXES]
    else:
        candidates = [path] if os.path.exists(path) else [Path(name) for name in glob.glob(str(path), recursive=True)]
    paths = [file for file in sorted(candidates) if not file.is_dir()]
    if not paths:
        raise ResultsError(f"{role}: {source} has no result file; {WRITTEN}")
    return paths


def _files(paths: Sequence[Path], name: str, notes: list[str]) -> tuple[str, dict[Path, list[Sample]]]:
    """Return the format of all files and their samples. Files of a folder that are none of results are left out."""
    files: dict[str, dict[Path, list[Sample]]] = defaultdict(dict)
    for path in paths:
        with errors_as(ResultsError, path, "write it again"):
            rows = _rows(path)
            place, first = next(rows, ("", None))
            keys = (first if isinstance(first, dict) else {}).keys()
            kind = next((name for name, (needed, _) in FORMATS.items() if keys >= {*needed.split()}), None)
            if kind is not None:
                _, read = FORMATS[kind]
                content = Content(path=path, first=first, rows=chain([(place, first)], rows), notes=notes)
                if samples := list(read(content)):
                    files[kind][path] = samples
    if "longctx report" in files:
        # A run writes both, and the report knows more of it.
        files.pop("longctx samples", None)
    if len(files) > 1:
        raise ResultsError(f"{name}: holds results of {' and '.join(sorted(files))}; name the files of one of them")
    if not files and kind is not None:
        raise ResultsError(f"{name}: has no scored sample; {WRITTEN}")
    if not files:
        found = f" (found: {', '.join(map(visible_line, [*keys][:MOST_SHOWN]))})" if keys else ""
        raise ResultsError(
            f"{name}: has no results of a known format{found}; known are {', '.join(FORMATS)} (id, score); of "
            "lm-evaluation-harness give the samples of --log_samples"
        )
    return next(iter(files.items()))


def _rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file, each after its place; raise ResultsError for a file that cannot be read."""
    try:
        data = read_outside(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror or error}); {WRITTEN}") from error
    text = data.lstrip()
    if not text:
        raise ResultsError(f"{path}: is empty; {WRITTEN}")
    if path.suffix in (".gz", ".zst", ".xz", ".bz2"):
        raise ResultsError(f"{path}: is compressed; unpack it first")
    if data.startswith(b"PK\x03\x04"):
        yield "", _unpacked(path)
    elif text[:1] in (b"{", b"["):
        yield from _json_rows(path, text)
    else:
        yield from _csv_rows(path, data.decode("utf-8-sig"))


def _json_rows(path: Path, text: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a list, the only value of a file, or the value of each of its lines. Python writes NaN too."""
    try:
        value = json.loads(text)
    except ValueError:
        for number, line in enumerate(text.split(b"\n"), 1):
            try:
                if line.strip():
                    yield f", line {number}", json.loads(line)
            except ValueError as error:
                raise ResultsError(f"{path}, line {number}: cannot be read ({error}); write it again") from error
    else:
        yield from [("", row) for row in (value if isinstance(value, list) else [value])]


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, object]]:
    # A long prompt is one field.
    csv.field_size_limit(LIMIT_BYTES)
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        names = reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ResultsError(f"{path}: has several columns {twice[0]!r}; keep one of them")
        for row in reader:
            where = f", line {reader.line_num}"
            # A value without a column has no name, and a column without a value None.
            if len(row) != len(names) or None in row.values():
                raise ResultsError(f"{path}{where}: not one value for each of {len(names)} columns; write them all")
            yield where, row
    except csv.Error as error:
        raise ResultsError(f"{path}, line {reader.reader.line_num}: no CSV ({error}); write it again") from error


def _unpacked(path: Path) -> Any:
    """Return the log of inspect_ai in an archive; inspect_ai itself reads one that is packed in its own way."""
    # Few results are archives.
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if HEADER not in names:
                raise ResultsError(f"{path}: has no {HEADER}, as an interrupted log; run the task again")
            samples = [json.loads(archive.read(name)) for name in sorted(names) if name.startswith("samples/")]
            return json.loads(archive.read(HEADER)) | {"samples": samples}
    except NotImplementedError:
        with errors_as(ResultsError, path, "install inspect_ai, or give `inspect log dump`"):
            from inspect_ai.log import read_eval_log

            return json.loads(read_eval_log(str(path)).model_dump_json())


def _newest(files: Mapping[Path, Sequence[Sample]], name: str, notes: list[str]) -> dict[Place, list[Sample]]:
    """Return the samples of the newest runs by task, and note the files of older ones.

    Files without a common sample are the parts of one run. Of several files, each names the task of its samples that
    have none.
    """
    chosen: dict[Place, list[Sample]] = defaultdict(list)
    known: dict[tuple[Place, str, str], Path] = {}
    older = set()
    for path in sorted(files, key=lambda path: files[path][0].stamp, reverse=True):
        samples = files[path]
        unnamed = path.name.partition(".")[0] if len(files) > 1 else "all"
        for sample in samples:
            sample.task = shown_task(unnamed if sample.task in (None, "") else str(sample.task))
        keys = {(sample.place, sample.key, str(sample.repeat)) for sample in samples}
        twin = next((key for key in keys if key in known), None)
        if twin is None:
            known |= dict.fromkeys(keys, path)
        elif files[known[twin]][0].stamp != samples[0].stamp:
            older.add(str(path))
        else:
            raise ResultsError(f"{name}: {twin[0][0]} is in {known[twin]} and in {path}; name the files of one run")
    for path, samples in files.items():
        for sample in () if str(path) in older else samples:
            chosen[sample.place].append(sample)
    if older:
        notes.append(f"{name}: older runs are left out: {counted(sorted(older), MOST_NAMED)}")
    return chosen


def shown_task(name: str) -> str:
    """Return the name of a task as reports may have it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:MOST_CHARACTERS] or "-"


def _metric(task: str, samples: Sequence[Sample], reading: Reading, name: str) -> str:
    """Return the metric of a task that is compared; empty if its samples have none.

    A name without its filter, such as `exact_match`, is enough where a task has it with one filter only.
    """
    metrics = list(dict.fromkeys(chain.from_iterable(sample.scores for sample in samples)))
    named: list[str] = []
    for wanted in reading.metrics:
        named = named or [metric for metric in metrics if wanted in (metric, metric.partition(",")[0])]
    if reading.metrics and not named:
        wanted = reading.metrics[0]
        raise ResultsError(f"--metric: {name} has no {wanted!r} of {task}; {known_names(wanted, metrics)}")
    possible = named or [metric for metric in metrics if metric == samples[0].main] or metrics
    if len(possible) > 1:
        raise ResultsError(f"{name}: {task} has {', '.join(possible)}; choose one with --metric")
    return possible[0] if possible else ""


def _share(sample: Sample, metric: str, reading: Reading, name: str) -> float:
    """Return a score of a sample from 0 to 1; raise ResultsError for one that is none."""
    score, scale = sample.scores[metric], 1.0 if reading.scale is None else reading.scale
    try:
        number = float(score)
    except (TypeError, ValueError, OverflowError):
        number = TRUTH.get(str(score).strip().lower(), math.nan)
    if 0 <= number <= scale:
        return number / scale
    fault = "; write a number"
    if math.isfinite(number):
        advice = "give --scale with the best score, such as --scale 100" if reading.scale is None else "see --scale"
        fault = f", not from 0 to {scale:g}; {advice}"
    shown = str(score)[:40] or "empty"
    raise ResultsError(f"{name}: {metric} of sample {sample.id} of {sample.task} is {shown}{fault}")
