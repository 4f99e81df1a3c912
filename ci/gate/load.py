"""Read results of any known format, told by their content, from a file, a folder or a glob."""

from __future__ import annotations

import glob
import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import structs

from longctx.ci.gate import formats
from longctx.ci.gate.records import Content, ResultFile, ResultsError, ScoredSample
from longctx.fixtures.outside_files import MIB, expanded, read_outside
from longctx.fixtures.records.report import RESULT_FILES
from longctx.fixtures.shown_text import known_names
from longctx.plugins.report.tables import counted


class Format(NamedTuple):
    """A family of result files, told by the keys of its JSON object or first line."""

    kinds: str
    keys: str
    read: Callable[[Content], ResultFile]

    def matches(self, content: Content) -> bool:
        """Return True for a file of this family. Archives are known of one program only, and have no keys."""
        is_known = content.kind == "archive" or content.keys >= set(self.keys.split())
        return content.kind in self.kinds.split() and is_known


FORMATS = {
    "longctx samples": Format("lines", "case index score suite fingerprint", formats.read_samples),
    "longctx report": Format("object", "schema model cases", formats.read_report),
    "lm-evaluation-harness": Format("lines", "doc_id doc filtered_resps", formats.read_lm_eval),
    "inspect_ai": Format("object archive", "eval status", formats.read_inspect),
    "NeMo Evaluator": Format("lines", "problem_idx reward", formats.read_nemo),
    "RULER": Format("lines", "index input outputs pred", formats.read_ruler),
    "HELMET": Format("object", "args data metrics averaged_metrics", formats.read_helmet),
    "table": Format("lines table", "id score", formats.read_table),
}
"""The formats by name, in the order in which they are tried."""
TABLE_KEYS = {"id", "score"}
SUFFIXES = (".jsonl", ".json", ".csv", ".eval")
LIMIT_BYTES = 4096 * MIB
MOST_NAMED = 3
ALL = "all"
"""The task of the samples of a single file that names none."""
# Metrics of which less is better.
LOWER_IS_BETTER = frozenset({
    "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "ppl", "loss", "nll", "wer", "cer", "ter",
    "brier_score", "mae", "mse", "rmse", "edit_distance",
})  # fmt: skip
WRITTEN = "give a file, a folder or a glob of results"


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
    path: str
    kind: str
    """The name of the format."""
    samples: Mapping[tuple[str, int], Mapping[str, ScoredSample]]
    """By task and length, the samples by identity."""
    notes: tuple[str, ...] = ()


def load(source: str | Path | Sequence[Mapping[str, object]], reading: Reading, *, role: str) -> Results:
    """Read results; raise ResultsError. A sequence of rows is a table in memory; `role` names it in errors."""
    if isinstance(source, str | Path):
        name = str(source)
        kind, files = _files(_paths(source, role), name)
    else:
        name, kind = role.lower(), "table"
        files = [_table(source, name)]
    chosen, notes = _newest(_with_tasks(files), name)
    metrics = _metrics(chosen, reading, name)
    lower = {metric for metric in metrics.values() if _is_lower_better(metric, reading)}
    attempts: dict[tuple[str, int], dict[str, list[ScoredSample]]] = {}
    for sample in chosen:
        metric = metrics[sample.task]
        if metric not in sample.scores:
            continue
        by_id = attempts.setdefault((sample.task, sample.length), {})
        own = by_id.setdefault(_identity(sample, by_id), [])
        if any(other.repeat == sample.repeat for other in own):
            raise ResultsError(f"{name}: sample {sample.id} of {sample.task} occurs twice; remove one of them")
        own.append(structs.replace(sample, score=_share(sample, metric, metric in lower, reading, name)))
    if not attempts:
        raise ResultsError(f"{name}: has no scored sample; {WRITTEN}")
    notes += [f"{name}: less is better of {metric}, so what is missing to the worst counts" for metric in sorted(lower)]
    samples = {}
    for place, by_id in attempts.items():
        samples[place] = {identity: _mean(own) for identity, own in by_id.items()}
    return Results(name=name, path=str(source)[:200], kind=kind, samples=samples, notes=tuple(notes))


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


def _files(paths: Sequence[Path], name: str) -> tuple[str, list[ResultFile]]:
    """Return the format of all files and what they hold. Files of a folder that are none of results are left out."""
    files: dict[str, list[ResultFile]] = {}
    for path in paths:
        content = read_content(path)
        kind = next((kind for kind, known in FORMATS.items() if known.matches(content)), None)
        if kind is None or _is_about_files(content):
            continue
        try:
            files.setdefault(kind, []).append(FORMATS[kind].read(content))
        except ResultsError:
            raise
        except (ValueError, LookupError, RecursionError, EOFError, zipfile.BadZipFile) as error:
            raise ResultsError(f"{path}: cannot be read as {kind} ({error}); write it again") from error
    if "longctx report" in files:
        # A run writes both, and the report knows more of it.
        files.pop("longctx samples", None)
    if len(files) > 1:
        raise ResultsError(f"{name}: holds results of {' and '.join(sorted(files))}; name the files of one of them")
    if not files and paths[0].suffix in (".gz", ".zst", ".xz", ".bz2"):
        raise ResultsError(f"{name}: is compressed; unpack it first")
    if not files:
        raise ResultsError(f"{name}: has no results of a known format; known are {', '.join(FORMATS)} (id, score)")
    ((kind, read),) = files.items()
    return kind, read


def _is_about_files(content: Content) -> bool:
    """Return True for a report of this command, which has no samples of its own."""
    model = content.value.get("model") if content.kind == "object" else None
    return isinstance(model, dict) and model.get("engine") == RESULT_FILES


def _with_tasks(files: Sequence[ResultFile]) -> list[ResultFile]:
    """Return the files with a task for every sample: one that has none is named by its file, if there are several."""
    named = []
    for file in files:
        task = file.path.name.partition(".")[0] if len(files) > 1 else ALL
        samples = [sample if sample.task else structs.replace(sample, task=task) for sample in file.samples]
        named.append(replace(file, samples=tuple(samples)))
    return named


def _table(rows: Sequence[Mapping[str, object]], name: str) -> ResultFile:
    path = Path(name)
    try:
        known = msgspec.convert(list(rows), list[formats.TableRow], strict=False)
    except msgspec.ValidationError as error:
        raise ResultsError(f"{name}: cannot be read ({error}); each row needs id and score") from error
    return ResultFile(path=path, samples=tuple(formats.table_samples(known, path)))


def read_content(path: Path) -> Content:
    """Read a file as far as its format can be told; raise ResultsError for one that cannot be read."""
    try:
        data = read_outside(path, limit_bytes=LIMIT_BYTES)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror or error}); {WRITTEN}") from error
    text = data.lstrip()
    if not text:
        raise ResultsError(f"{path}: is empty; {WRITTEN}")
    if data.startswith(b"PK") and zipfile.is_zipfile(io.BytesIO(data)):
        return Content(path=path, kind="archive", data=data)
    if text[:1] not in (b"{", b"["):
        header = data.partition(b"\n")[0].decode("utf-8-sig", "replace")
        columns = {name.strip(' "\r\t'): None for name in header.split(",")}
        return Content(path=path, kind="table", data=data, value=columns)
    first, _, rest = text.partition(b"\n")
    value = _json(first)
    is_row = path.suffix == ".jsonl" or (isinstance(value, dict) and value.keys() >= TABLE_KEYS)
    is_whole = not (rest.strip() or is_row)
    if value is None:
        # Most likely a value over several lines.
        is_whole = True
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ResultsError(f"{path}: is no JSON ({error}); write it again") from error
    if is_whole and isinstance(value, list) and value:
        return Content(path=path, kind="lines", data=data, lines=tuple(map(msgspec.json.encode, value)), value=value[0])
    if is_whole:
        return Content(path=path, kind="object", data=data, value=value)
    lines = [line for line in text.split(b"\n") if line.strip()]
    notes = []
    if not data.endswith(b"\n") and _json(lines[-1]) is None:
        lines.pop()
        notes.append("its last line is torn, as an interrupted program leaves it")
    return Content(path=path, kind="lines", data=data, lines=tuple(lines), value=value, notes=tuple(notes))


def _json(line: bytes) -> object:
    """Return the value of a line; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _newest(files: Sequence[ResultFile], name: str) -> tuple[list[ScoredSample], list[str]]:
    """Return the samples of the newest run of every task, and notes that name the older ones."""
    by_place: dict[tuple[str, int], list[tuple[ResultFile, list[ScoredSample]]]] = {}
    for file in files:
        of_file: dict[tuple[str, int], list[ScoredSample]] = {}
        for sample in file.samples:
            of_file.setdefault((sample.task, sample.length), []).append(sample)
        for place, samples in of_file.items():
            by_place.setdefault(place, []).append((file, samples))
    chosen: list[ScoredSample] = []
    left_out: set[str] = set()
    for (task, _), runs in by_place.items():
        known: set[tuple[str, str]] = set()
        newest: ResultFile | None = None
        for file, samples in sorted(runs, key=lambda run: run[0].stamp, reverse=True):
            own = {(sample.document or sample.id, sample.repeat) for sample in samples}
            # Files without a common sample are the parts of one run.
            if known.isdisjoint(own):
                known |= own
                chosen += samples
                newest = newest or file
            elif newest is not None and file.stamp == newest.stamp:
                raise ResultsError(f"{name}: {task} is in {newest.path} and in {file.path}; name the files of one run")
            else:
                left_out.add(str(file.path))
    notes = [f"{file.path}: {note}" for file in files for note in file.notes]
    if left_out:
        notes.append(f"{name}: older runs are left out: {counted(sorted(left_out), MOST_NAMED)}")
    return chosen, notes


def _identity(sample: ScoredSample, known: Mapping[str, Sequence[ScoredSample]]) -> str:
    """Return what identifies a sample: the hash of its document, else its id. Equal documents are numbered."""
    if not sample.document:
        return sample.id
    identity, number = sample.document, 1
    while identity in known and known[identity][0].id != sample.id:
        number += 1
        identity = f"{sample.document} {number}"
    return identity


def _metrics(samples: Sequence[ScoredSample], reading: Reading, name: str) -> dict[str, str]:
    """Return the metric of every task that is compared.

    A name without its filter, such as `exact_match`, is enough where a task has it with one filter only.
    """
    known: dict[str, dict[str, None]] = {}
    main = {sample.task: sample.main for sample in samples}
    for sample in samples:
        known.setdefault(sample.task, {}).update(dict.fromkeys(sample.scores))
    chosen = {}
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
        chosen[task] = possible[0]
    return chosen


def _mean(attempts: Sequence[ScoredSample]) -> ScoredSample:
    """Return the first attempt at a sample with the mean score of all."""
    mean = math.fsum(attempt.score for attempt in attempts) / len(attempts)
    return structs.replace(attempts[0], score=mean)


def _is_lower_better(metric: str, reading: Reading) -> bool:
    return reading.lower_is_better or metric.partition(",")[0].lower() in LOWER_IS_BETTER


def _share(sample: ScoredSample, metric: str, is_lower_better: bool, reading: Reading, name: str) -> float:
    """Return a score from 0 to 1, of which more is better; raise ResultsError for one that is none."""
    score = sample.scores[metric]
    if isinstance(score, str):
        score = {"true": 1, "false": 0}.get(score.strip().lower(), score)
    try:
        number = float(score)  # type: ignore[arg-type]  # whatever is no number is refused
    except (TypeError, ValueError):
        number = math.nan
    scale = 1.0 if reading.scale is None else reading.scale
    # NaN is in no range.
    if not 0 <= number <= scale:
        place = f"{name}: {metric} of sample {sample.id} of {sample.task} is {str(score)[:40]}"
        if not math.isfinite(number):
            raise ResultsError(f"{place}; write a number")
        advice = "give --scale with the best score, such as --scale 100" if reading.scale is None else "see --scale"
        raise ResultsError(f"{place}, not from 0 to {scale:g}; {advice}")
    share = number / scale
    return 1 - share if is_lower_better else share
