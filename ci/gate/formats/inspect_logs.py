"""The logs of inspect_ai: `.eval` archives and JSON, of version 2 of their format. Seen in 0.3.285."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator
from typing import Any

import msgspec

from longctx.ci.gate.records import Content, ResultFile, ResultsError, ScoredSample, text_hash, texts_of
from longctx.plugins.report.tables import plural

# inspect_ai.scorer.value_to_float
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
HEADER, SAMPLES = "header.json", "samples/"


class Score(msgspec.Struct, kw_only=True):
    """What one scorer says of a sample: a number, a letter, or several of them by name."""

    value: Any = None


class Output(msgspec.Struct, kw_only=True):
    """The answer of the model."""

    choices: tuple[dict[str, Any], ...] = ()


class LogSample(msgspec.Struct, kw_only=True):
    """A sample in one epoch."""

    id: int | str
    epoch: int = 1
    input: Any = None
    target: Any = None
    output: Output | None = None
    scores: dict[str, Score] | None = None
    error: Any = None


class Eval(msgspec.Struct, kw_only=True):
    """The description of the task."""

    task: str
    created: str = ""


class Log(msgspec.Struct, kw_only=True):
    """A log, or the header of one."""

    status: str = "success"
    eval: Eval
    samples: tuple[LogSample, ...] | None = None


def matches(content: Content) -> bool:
    """Return True for a log of either kind."""
    return zipfile.is_zipfile(io.BytesIO(content.data)) or (content.keys >= {"eval", "status"} and not content.lines)


def read(content: Content) -> ResultFile:
    """Read a log; samples without a score are named and left out."""
    log = content.record(Log) if content.value is not None else _unpacked(content)
    if log.samples is None:
        raise ResultsError(f"{content.path}: has no samples; write the log with them")
    samples = [ScoredSample(
        task=log.eval.task,
        id=str(sample.id),
        scores=dict(_scores(sample)),
        prompt=text_hash(_said(sample.input)),
        answer=_answer(sample.output),
        expected=texts_of(sample.target),
        repeat=str(sample.epoch),
    ) for sample in log.samples if _is_scored(sample)]  # fmt: skip
    notes = [] if log.status == "success" else [f"its status is {log.status}"]
    if missing := len(log.samples) - len(samples):
        notes.append(f"{plural(missing, 'sample has', 'samples have')} no score")
    return ResultFile(path=content.path, samples=tuple(samples), stamp=log.eval.created, notes=tuple(notes))


def _unpacked(content: Content) -> Log:
    """Return the log in an archive. inspect_ai reads it where it is packed by a method that Python does not know."""
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            names = [name for name in archive.namelist() if name.startswith(SAMPLES)]
            parts = [json.loads(archive.read(name)) for name in sorted(names)]
            if HEADER not in archive.namelist():
                raise ResultsError(f"{content.path}: has no {HEADER}, as an interrupted log; run the task again")
            value = {**json.loads(archive.read(HEADER)), "samples": parts}
    except NotImplementedError:
        try:
            from inspect_ai.log import read_eval_log
        except ImportError:
            raise ResultsError(
                f"{content.path}: is packed in a way that needs inspect_ai; install it, or give `inspect log dump`"
            ) from None
        value = json.loads(read_eval_log(str(content.path)).model_dump_json())
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ResultsError(f"{content.path}: cannot be read ({error}); write it again") from error
    return Content(path=content.path, data=b"", value=value).record(Log)


def _is_scored(sample: LogSample) -> bool:
    return sample.error is None and any(True for _ in _scores(sample))


def _scores(sample: LogSample) -> Iterator[tuple[str, float]]:
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


def _answer(output: Output | None) -> str | None:
    """Return the text of the first answer."""
    message = output.choices[0].get("message", {}) if output is not None and output.choices else {}
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None
