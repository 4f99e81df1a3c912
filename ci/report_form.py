"""The form that a JSON report must have for the commands that read it; other keys are ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, Struct

SCHEMA = "longctx-report/1"
Count = Annotated[int, Meta(ge=0, le=10**9)]
Points = Annotated[float, Meta(ge=-100, le=100)]


class _Case(Struct):
    id: str
    suite: str
    category: str
    task: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,100}$")]
    length: Annotated[int, Meta(ge=1, le=10**12)]
    score: Points | None
    interval: tuple[Points, Points] | None
    planned: Annotated[int, Meta(ge=1, le=10**6)]
    verdict: str
    decided_by: str | None
    error: str | None
    # Reports of earlier versions lack the optional ones.
    haystacks: Count = 0


class _Gate(Struct):
    name: str
    kind: str
    length: Count | None
    measured: float | None
    interval: tuple[float, float] | None
    samples: Count
    verdict: str
    blocking: bool
    reason: str
    haystack_correlation: tuple[float, float] | None = None


class _Comparison(Struct):
    difference: Points | None
    worse: Count
    better: Count
    pairs: Count


class _Baseline(Struct):
    name: str
    fingerprint: str


class _Regression(Struct):
    baseline: _Baseline
    cases: dict[str, _Comparison]


class _Model(Struct):
    name: str
    path: str
    fingerprint: str
    execution: dict[str, str] | None


class _Options(Struct):
    journal: str


class _Run(Struct):
    corpora: str
    prompts: str
    samples: str
    seed: int
    options: _Options


# The keys of scores by length.
_Length = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,11}$")]
_Scores = dict[_Length, Points | None]


_Intervals = dict[_Length, tuple[Points, Points] | None]


class _Ruler(Struct):
    effective_length: Count | None
    effective_length_label: str | None
    scores: _Scores
    intervals: _Intervals


class _Helmet(Struct):
    categories: dict[str, _Scores]
    intervals: dict[str, _Intervals]


class _Report(Struct):
    schema: str
    model: _Model
    run: _Run
    cases: list[_Case]
    gates: list[_Gate]
    ruler: _Ruler
    helmet: _Helmet | None
    regression: _Regression | None


def parse_report(data: bytes) -> Mapping[str, Any]:
    """Return a report as data; raise ValueError with the key of the first value that has not the form."""
    try:
        report: Mapping[str, Any] = json.loads(data, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    form = msgspec.convert(report, _Report)
    if form.schema != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    for gate in form.gates:
        if gate.kind == "regression" and gate.measured is not None and gate.interval is None:
            raise ValueError("a regression was measured without an interval")
    return report


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
