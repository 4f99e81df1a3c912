"""The formats of results, each seen at the version that stands beside it: a file in, its scored samples out.

A format of lines is a table of our columns by its own keys, and a function for what no column says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import Case
from longctx.fixtures.records.report import REPORT_SCHEMA, RESULT_FILES, JsonReport, parse_report
from longctx.fixtures.records.samples import Source, haystack_and_turn
from longctx.plugins.evidence.points import from_points, to_points
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.lines import Subject, sample_key
from longctx.plugins.journal.reading import SubjectReader
from longctx.plugins.report.tables import plural

SCORE = "score"
"""The name of the metric in files that have one only."""
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
LM_EVAL_NAME = re.compile(r"samples_(.+)_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[.\d]*)\.jsonl")
# A text of a document that is at least so long is one that several samples may be about.
LEAST_TEXT = 100
WRITE_SAMPLES = "give the file of --samples-jsonl"


class ResultsError(ValueError):
    """Results that cannot be read or compared; one line with the file, the value, what is accepted and what to do."""


class Row(msgspec.Struct, kw_only=True):
    """A scored answer, by the names of a table's columns."""

    id: str | int
    score: object = None
    task: str | int | None = None
    length: int | str | None = None
    """In tokens."""
    cluster: str | int | None = None
    """The text that several samples are about."""
    document: str = ""
    prompt: object = None
    expected: object = None
    answer: object = None
    repeat: int | str = ""


AnyRow = TypeVar("AnyRow", bound=msgspec.Struct)
TABLE = {name: name for name in ("id", "score", "task", "length", "cluster", "prompt", "expected", "answer")}


class ScoredSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer of a model with its scores, as a file has them."""

    task: str
    id: str
    scores: Mapping[str, object]
    """The scores by metric. Values that are no numbers are refused once their metric is chosen."""
    main: str = ""
    """The metric that counts if none is chosen; empty if the format has no such metric."""
    length: int = 0
    """The length in tokens; 0 for a task that has none."""
    document: str = ""
    """The hash of what is asked, which identifies a sample better than its id; empty if the file has none."""
    prompt: str = ""
    """The hash of the input. Samples with other prompts are not compared; empty if the file has none."""
    unit: str = ""
    """The text that samples share, the same in all tasks; empty if the file does not tell."""
    answer: str | None = None
    expected: tuple[str, ...] = ()
    repeat: str = ""
    """The number of the attempt; the attempts at one sample are averaged."""
    score: float = 0.0
    """The score of the metric that is compared, 0 to 1, once it is chosen; the mean of all attempts."""
    case: Case | None = None
    """The case of a sample of this suite, whose index is the id; None for other programs' samples."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """The samples of one file, or of a report's journal."""

    path: Path
    samples: tuple[ScoredSample, ...]
    stamp: str = ""
    """The time of the run in a form that sorts; empty if the file does not tell. The newest run of a task counts."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Content:
    """A file before its format is known."""

    path: Path
    value: Any
    """The JSON value of the whole file, or that of its first row; of CSV, an object with its columns as keys."""
    values: Iterable[tuple[str, object]] | None = None
    """Where a row stands, and its value, for all rows of the file; None for a file of one value."""
    notes: tuple[str, ...] = ()

    def records(self, kind: type[AnyRow]) -> Iterator[AnyRow]:
        """Yield all rows as records of a kind; raise ResultsError for the first that is none."""
        for place, value in self.values or ():
            yield self.converted(value, kind, place)

    def rows(self, columns: Mapping[str, str] = TABLE) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Yield all rows, read by the keys of these columns, and with all that the file has of them."""
        for place, value in self.values or ():
            if not isinstance(value, dict):
                raise ResultsError(f"{self.path}{place}: is no object with the keys of a sample; write it again")
            values = {column: value[key] for column, key in columns.items() if key in value}
            yield self.converted(values, Row, place), value

    def converted(self, value: object, kind: type[Any], place: str = "") -> Any:
        try:
            return msgspec.convert(value, kind, strict=False)
        except ValueError as error:
            raise ResultsError(f"{self.path}{place}: cannot be read ({error}); write it again") from error

    def result(self, samples: Iterable[ScoredSample], *, stamp: str = "", notes: Iterable[str] = ()) -> ResultFile:
        """Return what a format has read of this file."""
        return ResultFile(path=self.path, samples=tuple(samples), stamp=stamp, notes=(*self.notes, *notes))


def text_hash(value: object) -> str:
    """Return a short hash of a text or of JSON data."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def texts_of(value: object) -> tuple[str, ...]:
    """Return the expected answers of a file, one text or a list of them, as texts."""
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(one if isinstance(one, str) else json.dumps(one, default=str) for one in values)


def scored(row: Row, **facts: Any) -> ScoredSample:
    """Return the sample of a row; `facts` are those that the format says otherwise than by a column."""
    values = {
        "task": "" if row.task is None else str(row.task),
        "id": str(row.id),
        "scores": {SCORE: row.score},
        "document": row.document,
        "prompt": text_hash(row.prompt) if row.prompt else "",
        "answer": None if row.answer is None else "\n".join(texts_of(row.answer)),
        "expected": texts_of(row.expected),
        "repeat": str(row.repeat),
    }
    return ScoredSample(**values | facts)


def read_table(content: Content) -> ResultFile:
    """Read CSV, or lines of JSON, with the columns `id` and `score` and those of `TABLE` that are known."""
    return content.result(_table_samples(content))


def _table_samples(content: Content) -> Iterator[ScoredSample]:
    for row, _ in content.rows():
        length = str(row.length or 0)
        if not length.isascii() or not length.isdecimal():
            raise ResultsError(f"{content.path}: length is {row.length!r}; write a number of tokens")
        unit = f"cluster {row.cluster}" if row.cluster not in (None, "") else ""
        yield scored(row, length=int(length), unit=unit)


class _HelmetArguments(msgspec.Struct, kw_only=True):
    datasets: str
    input_max_length: int | str = 0


class _Helmet(msgspec.Struct, kw_only=True):
    args: _HelmetArguments
    data: tuple[dict[str, Any], ...]
    metrics: dict[str, tuple[object, ...]]


def read_helmet(content: Content) -> ResultFile:
    """Read a result file of HELMET's eval.py, one data set at one length. Seen at commit 4526dfb."""
    results = content.converted(content.value, _Helmet)
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
    samples = []
    for number, entry in enumerate(results.data):
        row = Row(id=number, expected=entry.get("answer"), answer=entry.get("output", ""))
        scores = {name: values[number] for name, values in metrics.items()} | _judged(entry.get("gpt-4-scores"))
        # A sample that the server did not answer is left out, which moves the numbers of those after it.
        document = text_hash([entry.get("question"), entry.get("answer")])
        samples.append(scored(row, task=task, scores=scores, main=main, length=length, document=document))
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


class _InspectSample(msgspec.Struct, kw_only=True):
    id: int | str
    epoch: int = 1
    input: Any = None
    target: Any = None
    output: dict[str, Any] | None = None
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
    log = content.converted(content.value, _InspectLog)
    if log.samples is None:
        raise ResultsError(f"{content.path}: has no samples; write the log with them")
    samples = []
    for sample in log.samples:
        scores = dict(_inspect_scores(sample))
        if sample.error is None and scores:
            row = Row(
                id=sample.id, repeat=sample.epoch, prompt=_said(sample.input), expected=sample.target,
                answer=_inspect_answer(sample.output or {}),
            )  # fmt: skip
            samples.append(scored(row, task=log.eval.task, scores=scores))
    notes = [] if log.status == "success" else [f"its status is {log.status}"]
    if missing := len(log.samples) - len(samples):
        notes.append(f"{plural(missing, 'sample has', 'samples have')} no score")
    return content.result(samples, stamp=log.eval.created, notes=notes)


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


def _inspect_answer(output: Mapping[str, Any]) -> object:
    """Return the text of the first answer."""
    choices = output.get("choices") or [{}]
    content = (choices[0].get("message") or {}).get("content")
    return "".join(part.get("text", "") for part in content) if isinstance(content, list) else content


LM_EVAL = {
    "id": "doc_id", "expected": "target", "answer": "filtered_resps", "document": "doc_hash", "prompt": "prompt_hash",
}  # fmt: skip


def read_lm_eval(content: Content) -> ResultFile:
    """Read a file of lm-evaluation-harness (--log_samples), `samples_TASK_TIME.jsonl`. Seen in 0.4.13.

    A task with several filters has a line for each.
    """
    name = LM_EVAL_NAME.match(content.path.name)
    task = name[1] if name else content.path.name.partition(".")[0].removeprefix("samples_")
    rows = list(content.rows(LM_EVAL))
    samples: list[ScoredSample] = []
    for (row, line), unit in zip(rows, _units([line for _, line in rows]), strict=True):
        row.answer = _lm_eval_answer(row.answer)
        for length, scores in _lm_eval_scores(line):
            samples.append(scored(row, task=task, scores=scores, length=length, unit=unit))
    return content.result(samples, stamp=name[2] if name else "")


def _lm_eval_scores(line: Mapping[str, Any]) -> list[tuple[int, dict[str, object]]]:
    """Return the scores by length. RULER's metrics are lengths: -1 stands for a sample of another length."""
    metrics = [metric for metric in line.get("metrics", ()) if metric in line]
    lengths = [metric for metric in metrics if metric.isdecimal()]
    if lengths:
        return [(int(length), {SCORE: line[length]}) for length in lengths if line[length] != -1]
    # As lm-eval's own tables name them.
    applied = line.get("filter", "none")
    return [(0, {f"{metric},{applied}": line[metric] for metric in metrics})]


def _lm_eval_answer(responses: Any) -> object:
    """Return the answers; of a choice by likelihood its number, which is what the target has."""
    choices = responses if isinstance(responses, list) else []
    if choices and all(isinstance(choice, list) and len(choice) == 2 for choice in choices):
        likelihoods = [float(likelihood) for likelihood, _ in choices]
        return likelihoods.index(max(likelihoods))
    return responses


def _units(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the text that every sample is about: a long text that several documents have, else the document."""
    texts = []
    for line in lines:
        document = line.get("doc")
        values = document.values() if isinstance(document, dict) else ()
        longest = max([value for value in values if isinstance(value, str)], key=len, default="")
        texts.append(text_hash(longest) if len(longest) >= LEAST_TEXT else "")
    # One text in all documents is an instruction.
    if len(set(texts)) == 1 or "" in texts:
        return [line.get("doc_hash") or text_hash(line.get("doc")) for line in lines]
    return texts


class _NemoBenchmark(msgspec.Struct, kw_only=True):
    name: str


class _NemoBundle(msgspec.Struct, kw_only=True):
    benchmark: _NemoBenchmark
    timestamp: str = ""


NEMO = {
    "id": "problem_idx", "score": "reward", "repeat": "repeat", "prompt": "prompt", "expected": "expected_answer",
    "answer": "model_response",
}  # fmt: skip


def read_nemo(content: Content) -> ResultFile:
    """Read `results.jsonl` of NVIDIA's NeMo Evaluator, all attempts. Seen at commit ac66aff5 (0.4.0).

    The newest `eval-*.json` beside it names the benchmark.
    """
    bundles = []
    for path in sorted(content.path.parent.glob("eval-*.json")):
        with contextlib.suppress(OSError, ValueError):
            bundles.append(msgspec.json.decode(read_outside(path), type=_NemoBundle))
    named = _NemoBundle(benchmark=_NemoBenchmark(name=content.path.parent.name))
    bundle = max(bundles, key=lambda bundle: bundle.timestamp, default=named)
    samples = [scored(row, task=bundle.benchmark.name, scores={"reward": row.score}) for row, _ in content.rows(NEMO)]
    return content.result(samples, stamp=bundle.timestamp)


RULER = {"id": "index", "prompt": "input", "expected": "outputs", "answer": "pred"}


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
    samples = []
    for row, line in content.rows(RULER):
        scores = {SCORE: match(line["pred"], line["outputs"])}
        samples.append(scored(row, task=task, scores=scores, length=lengths[-1] if lengths else 0))
    return content.result(samples)


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
    group: int = 1
    planned: int = 0
    """0 in files of earlier versions, which do not tell."""
    haystack: int | None = None
    shared_text: bool = False


def read_samples(content: Content) -> ResultFile:
    """Read all lines of --samples-jsonl."""
    return content.result(_own_samples(content.records(SampleLine)))


def _own_samples(lines: Iterable[SampleLine]) -> Iterator[ScoredSample]:
    by_case: dict[str, list[SampleLine]] = {}
    for line in lines:
        by_case.setdefault(line.case, []).append(line)
    for own in by_case.values():
        case = _case_of(own)
        for line in own:
            row = Row(
                id=line.index, task=line.task, score=from_points(line.score), answer=line.answer,
                expected=line.references, prompt=[line.version, line.seed, line.references],
            )  # fmt: skip
            yield scored(row, length=line.length, unit="known", case=case, seed=line.seed)


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
        report = parse_report(read_outside(content.path))
    except ValueError as error:
        raise ResultsError(f"{content.path}: is not a {REPORT_SCHEMA} ({error}); {WRITE_SAMPLES}") from error
    model, folder = report.model, Path(report.run.journal)
    subject = Subject(model=model.name, fingerprint=model.fingerprint, execution=model.execution or {})
    reader = SubjectReader(folder / subject.key)
    try:
        reader.refresh()
    except JournalError as error:
        raise ResultsError(f"{content.path}: its journal cannot be read ({error}); {WRITE_SAMPLES}") from error
    samples = tuple(_own_samples(_journal_lines(report, reader)))
    if not samples:
        raise ResultsError(f"{content.path}: its journal {folder} has none of its samples; {WRITE_SAMPLES}")
    return content.result(samples, notes=reader.damage)


def _journal_lines(report: JsonReport, reader: SubjectReader) -> Iterator[SampleLine]:
    """Yield the samples that the journal has of a report's cases, of the same version and seed."""
    seed = report.run.seed
    for case in report.cases:
        identity = report.run.samples, case.version, seed, case.task, case.length
        is_shared = isinstance(case.haystacks, int) and case.haystacks < case.samples // case.group
        own = [entry for entry in reader.entries.values() if entry.case == case.id]
        for entry in sorted(own, key=lambda entry: entry.index):
            if entry.key == sample_key(*identity, entry.index):
                haystack, _ = haystack_and_turn(entry.index // case.group)
                yield SampleLine(
                    case=case.id, suite=case.suite, category=case.category, task=case.task, length=case.length,
                    index=entry.index, score=to_points(entry.score), source=case.source, version=case.version,
                    seed=seed, answer=entry.outcome.generation.text, references=entry.outcome.references,
                    group=case.group, planned=case.planned, haystack=haystack if is_shared else None,
                )  # fmt: skip


class Format(NamedTuple):
    """A family of result files, told by the keys of its JSON object or first row."""

    has_rows: bool
    keys: str
    read: Callable[[Content], ResultFile]

    def matches(self, content: Content) -> bool:
        """Return True for a file of this family."""
        is_known = isinstance(content.value, dict) and content.value.keys() >= set(self.keys.split())
        return is_known and self.has_rows == (content.values is not None)


FORMATS = {
    "longctx samples": Format(True, "case index score suite fingerprint", read_samples),
    "longctx report": Format(False, "schema model cases", read_report),
    "lm-evaluation-harness": Format(True, "doc_id doc filtered_resps", read_lm_eval),
    "inspect_ai": Format(False, "eval status", read_inspect),
    "NeMo Evaluator": Format(True, "problem_idx reward", read_nemo),
    "RULER": Format(True, "index input outputs pred", read_ruler),
    "HELMET": Format(False, "args data metrics averaged_metrics", read_helmet),
    "table": Format(True, "id score", read_table),
}
"""The formats by name, in the order in which they are tried."""


def format_of(content: Content) -> str | None:
    """Return the name of a file's format; None for a file without samples, such as a report of this command."""
    model = content.value.get("model") if isinstance(content.value, dict) else None
    if isinstance(model, dict) and model.get("engine") == RESULT_FILES:
        return None
    return next((name for name, known in FORMATS.items() if known.matches(content)), None)
