"""The result files of HELMET's eval.py, one for a data set and length. Seen at commit 4526dfb."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from longctx.ci.gate.records import Content, ResultFile, ResultsError, ScoredSample, text_hash, texts_of

LENGTH = re.compile(r"_in(\d+)_")
COUNTS = ("input_len", "output_len")
# The metric of a data set in HELMET's tables (scripts/collect_results.py), by the first part that its name has.
MAIN_METRICS = {
    "ruler_qa": "substring_exact_match", "ruler": "ruler_recall", "msmarco": "NDCG@10", "icl": "exact_match",
    "infbench_choice": "exact_match", "infbench_qa": "rougeL_f1", "infbench_sum": "gpt-4-f1",
    "multi_lexsum": "gpt-4-f1", "narrativeqa": "gpt-4-score", "json_kv": "substring_exact_match",
    "kilt": "substring_exact_match",
}  # fmt: skip
# A second file of the same samples, with the scores of a judge.
JUDGED = "-gpt4eval_o"
MOST_CORRECT = 3


class Arguments(msgspec.Struct, kw_only=True):
    """The options of the run."""

    datasets: str
    input_max_length: int | str = 0


class Results(msgspec.Struct, kw_only=True):
    """A file of results."""

    args: Arguments
    data: tuple[dict[str, Any], ...]
    metrics: dict[str, tuple[object, ...]]


def matches(content: Content) -> bool:
    """Return True for a file of results."""
    return not content.lines and content.keys >= {"args", "data", "metrics", "averaged_metrics"}


def read(content: Content) -> ResultFile:
    """Read all samples with their metrics, 0 to 1."""
    results = content.record(Results)
    metrics = {name: values for name, values in results.metrics.items() if name not in COUNTS}
    for name, values in metrics.items():
        if len(values) != len(results.data):
            raise ResultsError(
                f"{content.path}: metric {name} has {len(values)} values for {len(results.data)} samples; run it again"
            )
    named = LENGTH.search(content.path.name)
    given = str(results.args.input_max_length)
    length = int(named[1]) if named else int(given) if given.isdecimal() else 0
    task = results.args.datasets
    main = next((metric for part, metric in MAIN_METRICS.items() if part in task), "")
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
    return ResultFile(path=content.path, samples=tuple(samples), stamp=JUDGED if JUDGED in content.path.name else "")


def _judged(scores: object) -> dict[str, float]:
    """Return the scores of HELMET's judge, 0 to 1, of a summary or an answer."""
    if not isinstance(scores, dict):
        return {}
    if "f1" in scores:
        return {"gpt-4-f1": scores["f1"]}
    return {"gpt-4-score": scores["fluency"] * scores["correctness"] / MOST_CORRECT}
