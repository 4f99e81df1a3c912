"""Read results of any known format, told by their content, from a file, a folder or a glob."""

from __future__ import annotations

import csv
import glob
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from longctx.ci.gate.formats import FORMATS, Content, ResultsError, Sample, format_of
from longctx.fixtures.outside_files import MIB, errors_as, expanded, read_outside
from longctx.fixtures.shown_text import known_names, visible_line
from longctx.plugins.report.tables import counted

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".eval")
SEPARATORS = ",;\t"
LIMIT_BYTES = 4096 * MIB
MOST_NAMED, MOST_SHOWN = 3, 8
HEADER = "header.json"
ALL = "all"
"""The task of the samples of a single file that names none."""
# Metrics of which less is better.
LOWER_IS_BETTER = frozenset({
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "ppl", "loss", "nll", "wer", "cer", "ter",
    "brier_score", "mae", "mse", "rmse", "edit_distance",
})  # fmt: skip
WRITTEN = "give a file, a folder or a glob of results"
TRUTH = {"true": 1.0, "false": 0.0}

Place = tuple[str, int]
"""A task and a length in tokens."""
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
    notes: tuple[str, ...] = ()


def load(source: Source, reading: Reading, *, role: str) -> Results:
    """Read results; raise ResultsError. A sequence of rows is a table in memory; `role` names it in errors."""
    notes: list[str] = []
    if isinstance(source, str | Path):
        name = str(source)
        kind, files = _files(_paths(source, role), name, notes)
    else:
        name, kind = role.lower(), "table"
        rows = [(f", row {number}", row) for number, row in enumerate(source, 1)]
        path = Path(name)
        files = {path: list(FORMATS[kind].read(Content(path=path, value=None, values=rows)))}
    chosen = _newest(files, name, notes)
    metrics = _metrics(chosen, reading, name)
    lower: set[str] = set()
    samples: dict[Place, dict[str, Sample]] = {}
    for place, own in chosen.items():
        metric = metrics[place[0]]
        if reading.lower_is_better or metric.partition(",")[0].lower() in LOWER_IS_BETTER:
            lower.add(metric)
        known: dict[str, Sample] = {}
        attempts: dict[str, dict[int | str, float]] = {}
        for sample in own:
            if metric in sample.scores:
                identity = _identity(sample, known)
                try:
                    share = _share(sample.scores[metric], reading)
                except ValueError as error:
                    raise ResultsError(f"{name}: {metric} of sample {sample.id} of {place[0]} is {error}") from None
                sample.score = 1 - share if metric in lower else share
                first = known.setdefault(identity, sample)
                if first is not sample:
                    scores = attempts.setdefault(identity, {first.repeat: first.score})
                    if sample.repeat in scores:
                        raise ResultsError(f"{name}: sample {sample.id} of {place[0]} occurs twice; remove one of them")
                    scores[sample.repeat] = sample.score
                    first.score = math.fsum(scores.values()) / len(scores)
        if known:
            samples[place] = known
    if not samples:
        raise ResultsError(f"{name}: has no scored sample; {WRITTEN}")
    notes += [f"{name}: less is better of {metric}, so what is missing to the worst counts" for metric in sorted(lower)]
    return Results(name=name, kind=kind, samples=samples, notes=tuple(notes))


def _paths(source: str | Path, role: str) -> list[Path]:
    """Return the files that are meant."""
    path = expanded(source)
    if not str(source).strip():
        raise ResultsError(f"{role}: is empty; {WRITTEN}")
    if path.is_dir():
        paths = [file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file()]
    elif path.exists():
        return [path]
    else:
        paths = [Path(file) for file in sorted(glob.glob(str(path), recursive=True)) if Path(file).is_file()]
    if not paths:
        what = "holds no result file" if path.is_dir() else "does not exist"
        raise ResultsError(f"{role}: {source} {what}; {WRITTEN}")
    return paths


def _files(paths: Sequence[Path], name: str, notes: list[str]) -> tuple[str, dict[Path, list[Sample]]]:
    """Return the format of all files and what they hold. Files of a folder that are none of results are left out."""
    files: dict[str, dict[Path, list[Sample]]] = {}
    notes_of: dict[str, list[str]] = {}
    for path in paths:
        content = read_content(path)
        kind = format_of(content)
        if kind is not None:
            with errors_as(ResultsError, f"{path} as {kind}", "write it again"):
                files.setdefault(kind, {})[path] = list(FORMATS[kind].read(content))
            notes_of.setdefault(kind, []).extend(f"{path}: {note}" for note in content.notes)
    if "longctx report" in files:
        # A run writes both, and the report knows more of it.
        files.pop("longctx samples", None)
    if len(files) > 1:
        raise ResultsError(f"{name}: holds results of {' and '.join(sorted(files))}; name the files of one of them")
    if not files and paths[0].suffix in (".gz", ".zst", ".xz", ".bz2"):
        raise ResultsError(f"{name}: is compressed; unpack it first")
    if not files:
        keys = [*content.value][:MOST_SHOWN] if isinstance(content.value, dict) else []
        found = f" (found: {', '.join(map(visible_line, keys))})" if keys else ""
        raise ResultsError(
            f"{name}: has no results of a known format{found}; known are {', '.join(FORMATS)} (id, score); of "
            "lm-evaluation-harness give the samples of --log_samples"
        )
    ((kind, read),) = files.items()
    notes += notes_of[kind]
    return kind, read


def read_content(path: Path) -> Content:
    """Read a file as far as its format can be told; raise ResultsError for one that cannot be read."""
    try:
        data = read_outside(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror or error}); {WRITTEN}") from error
    text = data.lstrip()
    if not text:
        raise ResultsError(f"{path}: is empty; {WRITTEN}")
    if data.startswith(b"PK"):
        with errors_as(ResultsError, path, "write it again"):
            if (log := _unpacked(path, data)) is not None:
                return Content(path=path, value=log)
    if text[:1] not in (b"{", b"["):
        header = data.partition(b"\n")[0].decode("utf-8-sig", "replace")
        separator = max(SEPARATORS, key=header.count)
        columns = {name.strip(' "\r\t').lower(): None for name in header.split(separator)}
        return Content(path=path, value=columns, values=_csv_rows(path, data, separator))
    try:
        value = _json(text)
    except ValueError as error:
        lines = [line for line in text.split(b"\n") if line.strip()]
        try:
            first = _json(lines[0])
        except ValueError:
            raise ResultsError(f"{path}: is no JSON ({error}); write it again") from error
        notes: list[str] = []
        return Content(path=path, value=first, values=_json_rows(path, lines, text.endswith(b"\n"), notes), notes=notes)
    is_row = path.suffix == ".jsonl" or (isinstance(value, dict) and value.keys() >= {"id", "score"})
    rows = value if isinstance(value, list) else [value] if is_row else []
    return Content(path=path, value=rows[0] if rows else value, values=[("", row) for row in rows] or None)


def _json(text: bytes) -> Any:
    """Return the value of a JSON text; raise ValueError. Python writes NaN and Infinity, which JSON does not have."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _json_rows(path: Path, lines: Sequence[bytes], is_ended: bool, notes: list[str]) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(lines, 1):
        try:
            yield f", line {number}", _json(line)
        except ValueError as error:
            if number == len(lines) and not is_ended:
                notes.append("its last line is torn, as an interrupted program leaves it")
            else:
                raise ResultsError(f"{path}, line {number}: cannot be read ({error}); write it again") from error


def _csv_rows(path: Path, data: bytes, separator: str) -> Iterator[tuple[str, object]]:
    reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), delimiter=separator, strict=True)
    try:
        names = [name.strip().lower() for name in next(reader)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ResultsError(f"{path}: has several columns {twice[0]!r}; keep one of them")
        for values in filter(None, reader):
            if len(values) != len(names):
                where = f"{path}, line {reader.line_num}"
                raise ResultsError(f"{where}: {len(values)} columns, not {len(names)}; write a value for each")
            yield f", line {reader.line_num}", dict(zip(names, values, strict=True))
    except csv.Error as error:
        raise ResultsError(f"{path}, line {reader.line_num}: no CSV ({error}); write it again") from error


def _unpacked(path: Path, data: bytes) -> Any:
    """Return the log of inspect_ai in an archive; None if it is none.

    inspect_ai itself reads one that is packed by a method that Python does not know.
    """
    # Few results are archives.
    import zipfile

    if not zipfile.is_zipfile(io.BytesIO(data)):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if HEADER not in names:
                raise ResultsError(f"{path}: has no {HEADER}, as an interrupted log; run the task again")
            value = _json(archive.read(HEADER))
            value["samples"] = [_json(archive.read(name)) for name in sorted(names) if name.startswith("samples/")]
            return value
    except NotImplementedError:
        try:
            from inspect_ai.log import read_eval_log
        except ImportError:
            raise ResultsError(
                f"{path}: is packed in a way that needs inspect_ai; install it, or give `inspect log dump`"
            ) from None
        return _json(read_eval_log(str(path)).model_dump_json().encode())


def _newest(files: Mapping[Path, Sequence[Sample]], name: str, notes: list[str]) -> dict[Place, list[Sample]]:
    """Return the samples of the newest run of every task, and note the older ones.

    Files without a common sample are the parts of one run. Of several files, each names the task of its samples that
    have none.
    """
    parts: dict[Place, dict[Path, list[Sample]]] = {}
    for path, samples in files.items():
        named = path.name.partition(".")[0] if len(files) > 1 else ALL
        for sample in samples:
            task = named if sample.task in (None, "") else str(sample.task)
            parts.setdefault((task, int(sample.length or 0)), {}).setdefault(path, []).append(sample)
    chosen: dict[Place, list[Sample]] = {}
    left_out: set[str] = set()
    for place, of_file in parts.items():
        known: dict[tuple[str, str], Path] = {}
        for path, own in sorted(of_file.items(), key=lambda part: part[1][0].stamp, reverse=True):
            # A single file has no others to know.
            twins = own if len(of_file) > 1 else ()
            keys = {(sample.document or str(sample.id), str(sample.repeat)) for sample in twins}
            newer = next((known[key] for key in keys if key in known), None)
            if newer is None:
                chosen.setdefault(place, []).extend(own)
                known |= dict.fromkeys(keys, path)
            elif of_file[newer][0].stamp != own[0].stamp:
                left_out.add(str(path))
            else:
                raise ResultsError(f"{name}: {place[0]} is in {newer} and in {path}; name the files of one run")
    if left_out:
        notes.append(f"{name}: older runs are left out: {counted(sorted(left_out), MOST_NAMED)}")
    return chosen


def _identity(sample: Sample, known: Mapping[str, Sample]) -> str:
    """Return what identifies a sample: the hash of its document, else its id. Equal documents are numbered."""
    if not sample.document:
        return str(sample.id)
    identity, number = sample.document, 1
    while identity in known and known[identity].id != sample.id:
        number += 1
        identity = f"{sample.document} {number}"
    return identity


def _metrics(chosen: Mapping[Place, Sequence[Sample]], reading: Reading, name: str) -> dict[str, str]:
    """Return the metric of every task that is compared.

    A name without its filter, such as `exact_match`, is enough where a task has it with one filter only.
    """
    known: dict[str, dict[str, None]] = {}
    main = {}
    for (task, _), samples in chosen.items():
        main[task] = samples[0].main
        known.setdefault(task, {}).update(dict.fromkeys(chain.from_iterable(sample.scores for sample in samples)))
    compared = {}
    for task, metrics in known.items():
        named: list[str] = []
        for wanted in reading.metrics:
            named = named or [metric for metric in metrics if metric == wanted]
            named = named or [metric for metric in metrics if metric.partition(",")[0] == wanted]
        if reading.metrics and not named:
            wanted = reading.metrics[0]
            raise ResultsError(f"--metric: {name} has no {wanted!r} of {task}; {known_names(wanted, metrics)}")
        possible = named or [metric for metric in metrics if metric == main[task]] or list(metrics)
        if len(possible) > 1:
            raise ResultsError(f"{name}: {task} has {', '.join(possible)}; choose one with --metric")
        # Without a score, the task is left out.
        compared[task] = possible[0] if possible else ""
    return compared


def _share(score: Any, reading: Reading) -> float:
    """Return a score from 0 to 1; raise ValueError for one that is none."""
    try:
        number = float(score)
    except (TypeError, ValueError):
        number = TRUTH.get(str(score).strip().lower(), math.nan)
    scale = 1.0 if reading.scale is None else reading.scale
    if not math.isfinite(number):
        raise ValueError(f"{str(score)[:40]}; write a number")
    if not 0 <= number <= scale:
        advice = "give --scale with the best score, such as --scale 100" if reading.scale is None else "see --scale"
        raise ValueError(f"{str(score)[:40]}, not from 0 to {scale:g}; {advice}")
    return number / scale
