"""The formats of results, each seen at the version that stands beside it: a file in, its scored samples out."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from longctx.ci.gate.records import SCORE, Content, ResultFile, ResultsError, ScoredSample, text_hash, texts_of
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import Case
from longctx.fixtures.records.report import REPORT_SCHEMA, JsonReport, ReportCase, parse_report
from longctx.fixtures.records.samples import Source
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.lines import Subject, sample_key
from longctx.plugins.journal.reading import SubjectReader
from longctx.plugins.report.tables import plural

# The metric of a data set in HELMET's tables (scripts/collect_results.py), by the first part that its name has.
HELMET_METRICS = {
    "ruler_qa": "substring_exact_match", "ruler": "ruler_recall", "msmarco": "NDCG@10", "icl": "exact_match",
    "infbench_choice": "exact_match", "infbench_qa": "rougeL_f1", "infbench_sum": "gpt-4-f1",
    "multi_lexsum": "gpt-4-f1", "narrativeqa": "gpt-4-score", "json_kv": "substring_exact_match",
    "kilt": "substring_exact_match",
}  # fmt: skip
HELMET_LENGTH = re.compile(r"_in(\d+)_")
HELMET_COUNTS = ("input_len", "output_len")
# A second file of the same samples, with the scores of a judge, the highest of which is the second number.
JUDGED, MOST_CORRECT = "-gpt4eval_o", 3
# inspect_ai.scorer.value_to_float
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
HEADER, SAMPLES = "header.json", "samples/"
LM_EVAL_NAME = re.compile(r"samples_(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[.\d]*)\.jsonl")
# A text of a document that is at least so long is one that several samples may be about.
LEAST_TEXT = 100
WRITE_SAMPLES = "give the file of --samples-jsonl"


class _HelmetArguments(msgspec.Struct, kw_only=True):
    datasets: str
    input_max_length: int | str = 0


class _Helmet(msgspec.Struct, kw_only=True):
    args: _HelmetArguments
    data: tuple[dict[str, Any], ...]
    metrics: dict[str, tuple[object, ...]]


def read_helmet(content: Content) -> ResultFile:
    """Read a result file of HELMET's eval.py, one data set at one length. Seen at commit 4526dfb."""
    results = msgspec.convert(content.value, _Helmet, strict=False)
    metrics = {name: values for name, values in results.metrics.items() if name not in HELMET_COUNTS}
    for name, values in metrics.items():
        if len(values) != len(results.data):
            raise ResultsError(
                f"{content.path}: metric {name} has {len(values)} values for {len(results.data)} samples; run it again"
            )
    named = HELMET_LENGTH.search(content.path.name)
    given = str(results.args.input_max_length)
    length = int(named[1]) if named else int(given) if given.isdecimal() else 0
    task = results.args.datasets
    main = next((metric for part, metric in HELMET_METRICS.items() if part in task), "")
    samples = [
        ScoredSample(
            task=task,
            id=str(number),
            scores={**{name: values[number] for name, values in metrics.items()}, **_judged(entry.get("gpt-4-scores"))},
            main=main,
            length=length,
            # A sample that the server did not answer is left out, which moves the numbers of those after it.
            document=text_hash([entry.get("question"), entry.get("answer")]),
            answer=str(entry.get("output", "")),
            expected=texts_of(entry.get("answer")),
        )
        for number, entry in enumerate(results.data)
    ]
    return content.result(samples, stamp=JUDGED if JUDGED in content.path.name else "")


def _judged(scores: object) -> dict[str, float]:
    """Return the scores of HELMET's judge, 0 to 1, of a summary or an answer."""
    if not isinstance(scores, dict):
        return {}
    if "f1" in scores:
        return {"gpt-4-f1": scores["f1"]}
    return {"gpt-4-score": scores["fluency"] * scores["correctness"] / MOST_CORRECT}


class _InspectScore(msgspec.Struct, kw_only=True):
    value: Any = None
    """A number, a letter, or several of them by name."""


class _InspectOutput(msgspec.Struct, kw_only=True):
    choices: tuple[dict[str, Any], ...] = ()


class _InspectSample(msgspec.Struct, kw_only=True):
    id: int | str
    epoch: int = 1
    input: Any = None
    target: Any = None
    output: _InspectOutput | None = None
    scores: dict[str, _InspectScore] | None = None
    error: Any = None


class _InspectEval(msgspec.Struct, kw_only=True):
    task: str
    created: str = ""


class _InspectLog(msgspec.Struct, kw_only=True):
    status: str = "success"
    eval: _InspectEval
    samples: tuple[_InspectSample, ...] | None = None


def read_inspect(content: Content) -> ResultFile:
    """Read a log of inspect_ai, an archive or JSON, of version 2 of its format. Seen in 0.3.285.

    Samples without a score are counted and left out.
    """
    value = content.value if content.kind == "object" else _unpacked(content)
    log = msgspec.convert(value, _InspectLog, strict=False)
    if log.samples is None:
        raise ResultsError(f"{content.path}: has no samples; write the log with them")
    samples = []
    for sample in log.samples:
        scores = dict(_inspect_scores(sample))
        if sample.error is None and scores:
            samples.append(ScoredSample(
                task=log.eval.task, id=str(sample.id), scores=scores, prompt=text_hash(_said(sample.input)),
                answer=_inspect_answer(sample.output), expected=texts_of(sample.target), repeat=str(sample.epoch),
            ))  # fmt: skip
    notes = [] if log.status == "success" else [f"its status is {log.status}"]
    if missing := len(log.samples) - len(samples):
        notes.append(f"{plural(missing, 'sample has', 'samples have')} no score")
    return content.result(samples, stamp=log.eval.created, notes=notes)


def _unpacked(content: Content) -> Any:
    """Return the log in an archive. inspect_ai reads it where it is packed by a method that Python does not know."""
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            names = archive.namelist()
            if HEADER not in names:
                raise ResultsError(f"{content.path}: has no {HEADER}, as an interrupted log; run the task again")
            value = json.loads(archive.read(HEADER))
            value["samples"] = [json.loads(archive.read(name)) for name in sorted(names) if name.startswith(SAMPLES)]
            return value
    except NotImplementedError:
        try:
            from inspect_ai.log import read_eval_log
        except ImportError:
            raise ResultsError(
                f"{content.path}: is packed in a way that needs inspect_ai; install it, or give `inspect log dump`"
            ) from None
        return json.loads(read_eval_log(str(content.path)).model_dump_json())


def _inspect_scores(sample: _InspectSample) -> Iterator[tuple[str, float]]:
    """Yield the scores by scorer; those of a scorer with several values as SCORER/NAME."""
    for scorer, score in (sample.scores or {}).items():
        values = score.value.items() if isinstance(score.value, dict) else [("", score.value)]
        for name, value in values:
            number = LETTERS.get(value) if isinstance(value, str) else value
            if isinstance(number, int | float) and not math.isnan(number):
                yield f"{scorer}/{name}" if name else scorer, float(number)


def _said(messages: Any) -> Any:
    """Return the input without the ids that every run gives its messages anew."""
    if not isinstance(messages, list):
        return messages
    return [(message.get("role"), message.get("content")) for message in messages if isinstance(message, dict)]


def _inspect_answer(output: _InspectOutput | None) -> str | None:
    """Return the text of the first answer."""
    message = output.choices[0].get("message", {}) if output is not None and output.choices else {}
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None


class _LmEvalLine(msgspec.Struct, kw_only=True):
    doc_id: int | str
    doc: Any = None
    target: object = None
    filtered_resps: object = None
    filter: str = "none"
    metrics: tuple[str, ...] = ()
    doc_hash: str = ""
    prompt_hash: str = ""


def read_lm_eval(content: Content) -> ResultFile:
    """Read a file of lm-evaluation-harness (--log_samples), `samples_TASK_TIME.jsonl`. Seen in 0.4.13.

    A task with several filters has a line for each.
    """
    name = LM_EVAL_NAME.match(content.path.name)
    task = name[1] if name else content.path.name.partition(".")[0].removeprefix("samples_")
    rows = list(content.rows(dict))
    lines = [msgspec.convert(row, _LmEvalLine, strict=False) for row in rows]
    samples: list[ScoredSample] = []
    for line, row, unit in zip(lines, rows, _units(lines), strict=True):
        samples += [
            ScoredSample(
                task=task,
                id=str(line.doc_id),
                scores=scores,
                length=length,
                document=line.doc_hash,
                prompt=line.prompt_hash,
                unit=unit,
                answer=_lm_eval_answer(line.filtered_resps),
                expected=texts_of(line.target),
            )
            for length, scores in _lm_eval_scores(line, row)
        ]
    return content.result(samples, stamp=name[2] if name else "")


def _lm_eval_scores(line: _LmEvalLine, row: Mapping[str, object]) -> list[tuple[int, dict[str, object]]]:
    """Return the scores by length. RULER's metrics are lengths: -1 stands for a sample of another length."""
    scores: dict[str, object] = {}
    by_length: list[tuple[int, dict[str, object]]] = []
    for metric in line.metrics:
        score = row.get(metric, -1)
        if metric.isdecimal() and score != -1:
            by_length.append((int(metric), {SCORE: score}))
        elif metric in row:
            # As lm-eval's own tables name them.
            scores[f"{metric},{line.filter}"] = score
    has_lengths = any(metric.isdecimal() and metric in row for metric in line.metrics)
    return by_length if has_lengths else [(0, scores)]


def _lm_eval_answer(responses: object) -> str:
    """Return the answers as text; of a choice by likelihood its number, which is what the target has."""
    choices = responses if isinstance(responses, list) else []
    if choices and all(isinstance(choice, list) and len(choice) == 2 for choice in choices):
        likelihoods = [float(likelihood) for likelihood, _ in choices]
        return str(likelihoods.index(max(likelihoods)))
    return "\n".join(texts_of(responses))


def _units(lines: list[_LmEvalLine]) -> list[str]:
    """Return the text that every sample is about: a long text that several documents have, else the document."""
    texts = []
    for line in lines:
        values = line.doc.values() if isinstance(line.doc, dict) else ()
        longest = max((value for value in values if isinstance(value, str)), key=len, default="")
        texts.append(text_hash(longest) if len(longest) >= LEAST_TEXT else "")
    # One text in all documents is an instruction.
    if len(set(texts)) == 1 or "" in texts:
        return [line.doc_hash or text_hash(line.doc) for line in lines]
    return texts


class _NemoLine(msgspec.Struct, kw_only=True):
    problem_idx: int
    reward: object
    repeat: int = 0
    prompt: object = None
    model_response: str | None = None
    expected_answer: object = None


class _NemoBenchmark(msgspec.Struct, kw_only=True):
    name: str


class _NemoBundle(msgspec.Struct, kw_only=True):
    benchmark: _NemoBenchmark
    timestamp: str = ""


def read_nemo(content: Content) -> ResultFile:
    """Read `results.jsonl` of NVIDIA's NeMo Evaluator, all attempts. Seen at commit ac66aff5 (0.4.0).

    The newest `eval-*.json` beside it names the benchmark.
    """
    bundles = []
    for path in sorted(content.path.parent.glob("eval-*.json")):
        with contextlib.suppress(OSError, ValueError):
            bundles.append(msgspec.json.decode(read_outside(path), type=_NemoBundle))
    bundle = max(bundles, key=lambda bundle: bundle.timestamp, default=None)
    samples = [
        ScoredSample(
            task=content.path.parent.name if bundle is None else bundle.benchmark.name,
            id=str(line.problem_idx),
            scores={"reward": line.reward},
            prompt=text_hash(line.prompt) if line.prompt else "",
            answer=line.model_response,
            expected=texts_of(line.expected_answer),
            repeat=str(line.repeat),
        )
        for line in content.rows(_NemoLine)
    ]
    return content.result(samples, stamp="" if bundle is None else bundle.timestamp)


class _RulerLine(msgspec.Struct, kw_only=True):
    index: int
    input: str
    outputs: tuple[str, ...]
    pred: str


def read_ruler(content: Content) -> ResultFile:
    """Read predictions of RULER's scripts, LENGTH/pred/TASK.jsonl, and score them as RULER does.

    One of the references of a question is enough, other tasks need all. Seen at commit c3f5e3b.
    """
    # Its table of characters takes longer to make than most comparisons.
    from longctx.fixtures.scoring.match import string_match_all, string_match_any

    # Several processes write TASK-0.jsonl, TASK-1.jsonl and so on.
    task = re.sub(r"-\d+$", "", content.path.name.partition(".")[0])
    match = string_match_any if task.startswith("qa") else string_match_all
    lengths = [int(part) for part in content.path.parts if part.isdecimal() and int(part) >= 256]
    return content.result(
        ScoredSample(
            task=task,
            id=str(line.index),
            scores={SCORE: match(line.pred, line.outputs)},
            length=lengths[-1] if lengths else 0,
            prompt=text_hash(line.input),
            answer=line.pred,
            expected=line.outputs,
        )
        for line in content.rows(_RulerLine)
    )


class TableRow(msgspec.Struct, kw_only=True):
    """A row of a table; further columns are ignored."""

    id: str | int
    score: object
    task: str | int | None = None
    length: int | str | None = None
    """In tokens."""
    cluster: str | int | None = None
    """The text that several samples are about."""
    prompt: str | None = None
    expected: object = None
    answer: str | int | float | bool | None = None


def read_table(content: Content) -> ResultFile:
    """Read CSV, or lines of JSON, with the columns `id` and `score` and those of `TableRow` that are known."""
    rows = content.rows(TableRow) if content.kind == "lines" else _csv_rows(content)
    return content.result(table_samples(rows, content.path))


def _csv_rows(content: Content) -> Iterator[TableRow]:
    reader = csv.reader(io.StringIO(content.data.decode("utf-8-sig"), newline=""), strict=True)
    try:
        names = [name.strip() for name in next(reader)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ResultsError(f"{content.path}: has several columns {twice[0]!r}; keep one of them")
        for values in filter(None, reader):
            if len(values) != len(names):
                where = f"{content.path}, line {reader.line_num}"
                raise ResultsError(f"{where}: {len(values)} columns, not {len(names)}; write a value for each")
            yield msgspec.convert(dict(zip(names, values, strict=True)), TableRow, strict=False)
    except csv.Error as error:
        raise ResultsError(f"{content.path}, line {reader.line_num}: no CSV ({error}); write it again") from error


def table_samples(rows: Iterable[TableRow], path: Path) -> Iterator[ScoredSample]:
    """Yield the samples of rows; the task of those without one is empty."""
    for row in rows:
        length = str(row.length or 0)
        if not length.isascii() or not length.isdecimal():
            raise ResultsError(f"{path}: length is {row.length!r}; write a number of tokens")
        yield ScoredSample(
            task="" if row.task is None else str(row.task),
            id=str(row.id),
            scores={SCORE: row.score},
            length=int(length),
            prompt=text_hash(row.prompt) if row.prompt else "",
            unit=f"cluster {row.cluster}" if row.cluster not in (None, "") else "",
            answer=None if row.answer is None else str(row.answer),
            expected=texts_of(row.expected),
        )


class SampleLine(msgspec.Struct, kw_only=True):
    """A line of --samples-jsonl, as `plugins.report.sample_files` writes it."""

    case: str
    suite: str
    category: str
    task: str
    length: int
    index: int
    score: float
    source: Source
    version: str = ""
    seed: int = 0
    answer: str = ""
    references: tuple[str, ...] = ()
    excerpt: Mapping[str, Any] | None = None
    group: int = 1
    planned: int = 0
    """0 in files of earlier versions, which do not tell."""
    haystack: int | None = None
    shared_text: bool = False


def read_samples(content: Content) -> ResultFile:
    """Read all lines of --samples-jsonl."""
    by_case: dict[str, list[SampleLine]] = {}
    for line in content.rows(SampleLine):
        by_case.setdefault(line.case, []).append(line)
    samples = []
    for lines in by_case.values():
        case = _case_of(lines)
        for line in lines:
            prompt = [line.version, line.seed, line.references]
            samples.append(_sample(case, line.index, line.score / 100, line.seed, prompt, line.answer, line.references))
    return content.result(samples)


def _case_of(lines: list[SampleLine]) -> Case:
    first = lines[0]
    most = max(first.planned, 1 + max(line.index for line in lines))
    haystacks = {line.index: line.haystack for line in lines if line.haystack is not None}
    shares = any(haystack != index // first.group for index, haystack in haystacks.items())
    # Indices without a line have no text; none is read.
    texts = tuple(haystacks.get(index, 0) for index in range(most)) if first.shared_text else ()
    return Case(
        id=first.case, suite=first.suite, category=first.category, task=first.task, length=first.length, samples=most,
        source=first.source, generation_tokens=1, group=first.group, shares_haystacks=shares and not texts,
        version=first.version, only=() if first.planned else tuple(sorted(line.index for line in lines)), texts=texts,
    )  # fmt: skip


def read_report(content: Content) -> ResultFile:
    """Read the samples of all cases of a report from its journal."""
    try:
        report = parse_report(content.data)
    except ValueError as error:
        raise ResultsError(f"{content.path}: is not a {REPORT_SCHEMA} ({error}); {WRITE_SAMPLES}") from error
    model, folder = report.model, Path(report.run.journal)
    subject = Subject(model=model.name, fingerprint=model.fingerprint, execution=model.execution or {})
    reader = SubjectReader(folder / subject.key)
    try:
        reader.refresh()
    except JournalError as error:
        raise ResultsError(f"{content.path}: its journal cannot be read ({error}); {WRITE_SAMPLES}") from error
    samples = [sample for case in report.cases for sample in _journal_samples(report, case, reader)]
    if not samples:
        raise ResultsError(f"{content.path}: its journal {folder} has none of its samples; {WRITE_SAMPLES}")
    return content.result(samples, notes=reader.damage)


def _journal_samples(report: JsonReport, case: ReportCase, reader: SubjectReader) -> list[ScoredSample]:
    """Return the samples of one case that its journal has, of the same version and seed."""
    seed = report.run.seed
    identity = report.run.samples, case.version, seed, case.task, case.length
    own = [entry for entry in reader.entries.values() if entry.case == case.id]
    known = {entry.index: entry for entry in own if entry.key == sample_key(*identity, entry.index)}
    is_shared = isinstance(case.haystacks, int) and case.haystacks < case.samples // case.group
    described = Case(
        id=case.id, suite=case.suite, category=case.category, task=case.task, length=case.length,
        samples=max(case.planned, 1 + max(known, default=0)), source=case.source, generation_tokens=1,
        group=case.group, shares_haystacks=is_shared, version=case.version,
    )  # fmt: skip
    samples = []
    for index, entry in sorted(known.items()):
        references, text = entry.outcome.references, entry.outcome.generation.text
        prompt = [case.version, seed, references]
        samples.append(_sample(described, index, entry.score, seed, prompt, text, references))
    return samples


def _sample(
    case: Case, index: int, score: float, seed: int, prompt: object, answer: str, references: tuple[str, ...]
) -> ScoredSample:
    return ScoredSample(
        task=case.task, id=str(index), scores={SCORE: score}, length=case.length, prompt=text_hash(prompt),
        unit="known", answer=answer, expected=references, case=case, seed=seed,
    )  # fmt: skip
