"""The formats of results, each seen at the version that stands beside it: a file in, its scored samples out.

A format of rows is a table of a sample's fields by its own keys, and a function for the rest.
"""

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import structs

from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import Case
from longctx.fixtures.records.report import REPORT_SCHEMA, RESULT_FILES, parse_report
from longctx.fixtures.records.samples import haystack_and_turn
from longctx.plugins.evidence.points import from_points, to_points
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
LM_EVAL_TIME = re.compile(r"_\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d[.\d]*$")
# A text of a document that is at least so long is one that several samples may be about.
LEAST_TEXT = 100
WRITE_SAMPLES = "give the file of --samples-jsonl"
# The keys of every format of rows, with the field of a sample that each is.
TABLE = {name: name for name in ("id", "score", "task", "length", "prompt", "expected", "answer")} | {"cluster": "unit"}
LM_EVAL = {
    "doc_id": "id", "target": "expected", "filtered_resps": "answer", "doc_hash": "document", "prompt_hash": "prompt",
}  # fmt: skip
INSPECT = {"id": "id", "epoch": "repeat", "target": "expected"}
NEMO = {
    "problem_idx": "id", "reward": "score", "repeat": "repeat", "prompt": "prompt", "expected_answer": "expected",
    "model_response": "answer",
}  # fmt: skip
RULER = {"index": "id", "input": "prompt", "outputs": "expected", "pred": "answer"}
OWN = {"index": "id", "task": "task", "length": "length", "seed": "seed", "answer": "answer", "references": "expected"}


class ResultsError(ValueError):
    """Results that cannot be read or compared; one line with the file, the value, the accepted ones and the remedy."""


Place = tuple[str, int]
"""A task and a length in tokens."""


class Sample(msgspec.Struct, kw_only=True, gc=False):
    """One answer of a model with its scores: the fields that a row may have, and those that only its format knows."""

    id: str | int
    score: Any = None
    """As the row has it; from 0 to 1 once its metric is chosen, and then the mean of all attempts."""
    task: str | int | None = None
    length: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """In tokens; None or 0 for a task that has none."""
    unit: str | int | None = None
    """The text that several samples are about, the same in all tasks; None if the file does not tell."""
    document: str = ""
    """The hash of the question, which identifies a sample better than its id; empty if the file has none."""
    prompt: Any = ""
    """The hash of the input. Samples with other prompts are not compared; empty if the file has none."""
    expected: Any = None
    answer: Any = None
    repeat: int | str = ""
    """The number of the attempt; the attempts at one sample are averaged."""
    scores: Mapping[str, Any] = {}
    """The scores by metric. Values that are no numbers are refused once their metric is chosen."""
    main: str = ""
    """The metric that counts if none is chosen; empty if the format has no such metric."""
    stamp: str = ""
    """The time of the run in a form that sorts; empty if the file does not tell. The newest run of a task counts."""
    case: Case | None = None
    """The case of a sample of this suite, whose index is the id; None for other programs' samples."""
    seed: int = 0

    @property
    def place(self) -> Place:
        return str(self.task), self.length or 0

    @property
    def key(self) -> str:
        """The identity of a sample of a task: the hash of its document, else its id."""
        return self.document or str(self.id)


Line = dict[str, Any]
"""A sample as JSON, or as a row of a table."""
Rows = Iterable[tuple[str, Any]]
"""Where a value stands in its file, such as ", line 3", and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A file before its format is known."""

    path: Path
    first: Any
    """The JSON value of the whole file, or that of its first row; of CSV, an object with its columns as keys."""
    rows: Rows
    """All of them."""
    notes: list[str]
    """Notes on the file for the reader."""

    def samples(self, fields: Mapping[str, str], rows: Rows | None = None) -> Iterator[tuple[Sample, Line]]:
        """Yield all rows as samples, with all that the file has of them; raise ResultsError for one that is none."""
        for place, row in self.rows if rows is None else rows:
            if not isinstance(row, dict):
                raise ResultsError(f"{self.path}{place}: is no object with the keys of a sample; write it again")
            known = {fields[key]: value for key, value in row.items() if key in fields}
            for name in ("length", "unit"):
                # An empty cell is one that is not known.
                known[name] = None if known.get(name) == "" else known.get(name)
            try:
                sample = msgspec.convert(known, Sample, strict=False)
            except ValueError as error:
                _, _, name = str(error).rstrip("`").partition("$.")
                fault = f"{name} is {known.get(name)!r}" if name else "cannot be read"
                raise ResultsError(f"{self.path}{place}: {fault} ({error}); write it again") from error
            sample.prompt = text_hash(sample.prompt) if sample.prompt else ""
            yield sample, row


def text_hash(value: object) -> str:
    """Return a short hash of a text or of JSON data."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def read_table(content: Content) -> Iterator[Sample]:
    """Read CSV, or lines of JSON, with the columns `id` and `score` and those of `TABLE` that are known."""
    for sample, _ in content.samples(TABLE):
        # CSV has no numbers.
        sample.unit = None if sample.unit is None else str(sample.unit)
        sample.scores = {SCORE: sample.score}
        yield sample


def read_helmet(content: Content) -> Iterator[Sample]:
    """Read a result file of HELMET's eval.py, one data set at one length. Seen at commit 4526dfb."""
    results, file_name = content.first, content.path.name
    data, task = results["data"], results["args"]["datasets"]
    metrics = {name: values for name, values in results["metrics"].items() if name not in HELMET_COUNTS}
    for name, values in metrics.items():
        if len(values) != len(data):
            raise ResultsError(f"{content.path}: {name} has {len(values)} values, not {len(data)}; run it again")
    length = HELMET_LENGTH.search(file_name)
    main = next((metric for part, metric in HELMET_METRICS.items() if part in task), "")
    for number, entry in enumerate(data):
        scores = {name: values[number] for name, values in metrics.items()}
        yield Sample(
            id=number, task=task, length=int(length[1]) if length else None,
            # A sample that the server did not answer is left out, which moves the numbers of those after it.
            document=text_hash([entry.get("question"), entry.get("answer")]),
            expected=entry.get("answer"), answer=entry.get("output", ""),
            scores=scores | _judged(entry.get("gpt-4-scores")), main=main,
            stamp=JUDGED if JUDGED in file_name else "",
        )  # fmt: skip


def _judged(scores: Mapping[str, float] | None) -> dict[str, float]:
    """Return the scores of HELMET's judge, 0 to 1, of a summary or an answer."""
    if scores is None:
        return {}
    if "f1" in scores:
        return {"gpt-4-f1": scores["f1"]}
    return {"gpt-4-score": scores["fluency"] * scores["correctness"] / MOST_CORRECT}


def read_inspect(content: Content) -> Iterator[Sample]:
    """Read a log of inspect_ai, an archive or JSON, of version 2 of its format. Seen in 0.3.285.

    Samples without a score are counted and left out.
    """
    log = content.first
    if log.get("samples") is None:
        raise ResultsError(f"{content.path}: has no samples; write the log with them")
    if log["status"] != "success":
        content.notes.append(f"{content.path}: its status is {log['status']}")
    missing = 0
    for sample, line in content.samples(INSPECT, [("", line) for line in log["samples"]]):
        sample.task, sample.stamp = log["eval"]["task"], log["eval"].get("created", "")
        said = line.get("input")
        if isinstance(said, list):
            # Every run gives its messages new ids.
            said = [(message.get("role"), message.get("content")) for message in said]
        sample.prompt = text_hash(said) if said else ""
        sample.answer = (line.get("output") or {}).get("completion")
        sample.scores = dict(_inspect_scores(line.get("scores") or {}))
        if sample.scores and line.get("error") is None:
            yield sample
        else:
            missing += 1
    if missing:
        content.notes.append(f"{content.path}: {plural(missing, 'sample has', 'samples have')} no score")


def _inspect_scores(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the scores by scorer; those of a scorer with several values as SCORER/NAME."""
    for scorer, score in scores.items():
        value = score.get("value")
        parts = {scorer: value}
        if isinstance(value, dict):
            parts = {f"{scorer}/{name}": part for name, part in value.items()}
        for name, part in parts.items():
            number = LETTERS.get(part) if isinstance(part, str) else part
            if isinstance(number, int | float) and not math.isnan(number):
                yield name, float(number)


def read_lm_eval(content: Content) -> Iterator[Sample]:
    """Read a file of lm-evaluation-harness (--log_samples), `samples_TASK_TIME.jsonl`. Seen in 0.4.13.

    A task with several filters has a line for each.
    """
    name = content.path.stem
    stamp = "".join(LM_EVAL_TIME.findall(name))
    rows = list(content.samples(LM_EVAL))
    units = [_text_of(line) for _, line in rows]
    # One text in all documents is an instruction.
    has_texts = len(set(units)) > 1 and "" not in units
    task = name.removeprefix("samples_").removesuffix(stamp)
    for (sample, line), unit in zip(rows, units, strict=True):
        sample.task, sample.stamp = task, stamp
        sample.answer = _lm_eval_answer(sample.answer)
        sample.unit = unit if has_texts else sample.document or text_hash(line.get("doc"))
        for length, scores in _lm_eval_scores(line):
            yield structs.replace(sample, length=length, scores=scores)


def _lm_eval_scores(line: Mapping[str, Any]) -> list[tuple[int, dict[str, object]]]:
    """Return the scores by length. RULER's metrics are lengths: -1 stands for a sample of another length."""
    scores = {metric: line[metric] for metric in line.get("metrics", ()) if metric in line}
    lengths = {metric: score for metric, score in scores.items() if metric.isdecimal()}
    if lengths:
        return [(int(length), {SCORE: score}) for length, score in lengths.items() if score != -1]
    # As lm-eval's own tables name them.
    applied = line.get("filter", "none")
    return [(0, {f"{metric},{applied}": score for metric, score in scores.items()})]


def _lm_eval_answer(responses: Any) -> object:
    """Return the answers; of a choice by likelihood its number, which is what the target has."""
    choices = responses if isinstance(responses, list) else []
    if choices and all(isinstance(choice, list) and len(choice) == 2 for choice in choices):
        likelihoods = [float(likelihood) for likelihood, _ in choices]
        return likelihoods.index(max(likelihoods))
    return responses


def _text_of(line: Mapping[str, Any]) -> str:
    """Return the hash of the long text that several documents may have; empty for a document without one."""
    document = line.get("doc")
    values = document.values() if isinstance(document, dict) else ()
    longest = max([value for value in values if isinstance(value, str)], key=len, default="")
    return text_hash(longest) if len(longest) >= LEAST_TEXT else ""


def read_nemo(content: Content) -> Iterator[Sample]:
    """Read `results.jsonl` of NVIDIA's NeMo Evaluator, all attempts. Seen at commit ac66aff5 (0.4.0).

    The newest `eval-*.json` beside it names the benchmark.
    """
    folder = content.path.parent
    bundles: list[Line] = [json.loads(read_outside(path)) for path in folder.glob("eval-*.json")]
    bundle = max(bundles, key=lambda bundle: str(bundle.get("timestamp", "")), default={})
    for sample, _ in content.samples(NEMO):
        sample.task = bundle.get("benchmark", {}).get("name", folder.name)
        sample.stamp = bundle.get("timestamp", "")
        sample.scores = {"reward": sample.score}
        yield sample


def read_ruler(content: Content) -> Iterator[Sample]:
    """Read predictions of RULER's scripts, LENGTH/pred/TASK.jsonl, and score them as RULER does.

    One of the references of a question is enough, other tasks need all. Seen at commit c3f5e3b.
    """
    # Its table of characters takes longer to make than most comparisons.
    from longctx.fixtures.scoring.match import string_match_all, string_match_any

    # Several processes write TASK-0.jsonl, TASK-1.jsonl and so on.
    task = re.sub(r"-\d+$", "", content.path.name.partition(".")[0])
    match = string_match_any if task.startswith("qa") else string_match_all
    lengths = [int(part) for part in content.path.parts if part.isdecimal() and int(part) >= 256]
    for sample, _ in content.samples(RULER):
        sample.task, sample.length = task, lengths[-1] if lengths else 0
        sample.scores = {SCORE: match(sample.answer, sample.expected)}
        yield sample


def read_samples(content: Content, rows: Rows | None = None) -> Iterator[Sample]:
    """Read all lines of --samples-jsonl, as `plugins.report.texts` writes them."""
    by_case: dict[str, list[tuple[Sample, Line]]] = defaultdict(list)
    for sample, line in content.samples(OWN, rows):
        by_case[line["case"]].append((sample, line))
    for own in by_case.values():
        case = _case_of([line for _, line in own])
        for sample, line in own:
            sample.case, sample.unit = case, "known"
            sample.prompt = text_hash([case.version, sample.seed, sample.expected])
            sample.scores = {SCORE: from_points(line["score"])}
            yield sample


def _case_of(lines: list[Line]) -> Case:
    """Return the case of some samples."""
    first, haystacks = lines[0], {line["index"]: line["haystack"] for line in lines}
    most = max(first["planned"], 1 + max(haystacks))
    shares = any(haystack != index // first["group"] for index, haystack in haystacks.items())
    # Indices without a line have no text; none is read.
    texts = [haystacks.get(index, 0) for index in range(most)] if first["shared_text"] else []
    facts = {name: first[name] for name in ("suite", "category", "task", "length", "source", "version", "group")}
    facts |= {"id": first["case"], "samples": most, "generation_tokens": 1, "texts": texts}
    return msgspec.convert(facts | {"shares_haystacks": shares and not texts}, Case)


def read_report(content: Content) -> Iterator[Sample]:
    """Read the samples of a report, of its versions and seed, from its journal."""
    # Few comparisons need the journal.
    from longctx.plugins.journal.lines import Subject, sample_key
    from longctx.plugins.journal.reading import SubjectReader

    try:
        report = parse_report(read_outside(content.path))
    except ValueError as error:
        raise ResultsError(f"{content.path}: is not a {REPORT_SCHEMA} ({error}); {WRITE_SAMPLES}") from error
    if report.model.engine == RESULT_FILES:
        # A report of this command may stand beside the results that it is about.
        return
    run, model, rows = report.run, report.model, []
    subject = Subject(model=model.name, fingerprint=model.fingerprint, execution=model.execution or {})
    reader = SubjectReader(Path(run.journal) / subject.key)
    reader.refresh()
    for case in report.cases:
        identity = run.samples, case.version, run.seed, case.task, case.length
        is_shared = isinstance(case.haystacks, int) and case.haystacks < case.samples // case.group
        own = [entry for entry in reader.entries.values() if entry.case == case.id]
        for entry in sorted(own, key=lambda entry: entry.index):
            group = entry.index // case.group
            if entry.key == sample_key(*identity, entry.index):
                facts = structs.asdict(case) | {
                    "case": case.id, "index": entry.index, "score": to_points(entry.score), "seed": run.seed,
                    "answer": entry.outcome.generation.text, "references": entry.outcome.references,
                    "haystack": haystack_and_turn(group)[0] if is_shared else group, "shared_text": False,
                }  # fmt: skip
                rows.append(("", facts))
    if not rows:
        raise ResultsError(f"{content.path}: its journal {run.journal} has none of its samples; {WRITE_SAMPLES}")
    content.notes.extend(reader.damage)
    yield from read_samples(content, rows)


FORMATS: Mapping[str, tuple[str, Callable[[Content], Iterator[Sample]]]] = {
    "longctx samples": ("case index score suite fingerprint planned", read_samples),
    "longctx report": ("schema model cases", read_report),
    "lm-evaluation-harness": ("doc_id doc filtered_resps", read_lm_eval),
    "inspect_ai": ("eval status", read_inspect),
    "NeMo Evaluator": ("problem_idx reward", read_nemo),
    "RULER": ("index input outputs pred", read_ruler),
    "HELMET": ("args data metrics averaged_metrics", read_helmet),
    "table": ("id score", read_table),
}
"""The formats by name, in the order in which they are tried: the keys of an object or a first row, and the reader."""
