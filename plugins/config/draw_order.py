"""The order in which a checkpoint's samples are drawn, as far as results of an earlier checkpoint suggest one.

The rates of a panel are decided once for a checkpoint, when nothing of it is measured, and recorded in the journal
directory: all workers, controllers that share the directory, and the same command after a crash have one order. The
next checkpoint takes over the rates of the one before. With --baseline the order stays uniform, because a finished
baseline was measured in that order and pairs end at its first missing sample.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fixtures.atomic_files import create_file
from fixtures.records import PHASES, Case
from fixtures.seeding import stable_hash
from plugins.config.invocation import Invocation
from plugins.config.run import Run
from plugins.gates.draw_rates import draw_rates
from plugins.journal import EarlierScores, JournalError, latest_scores

FOLDER = "draw-rates"


def with_draw_rates(run: Run, invocation: Invocation) -> Run:
    """Return the run with the recorded rates of all its panels, and record those of panels that get some.

    A run of some cases only records nothing, for its cases may not be all that the next run measures.
    """
    arguments = invocation.arguments
    if run.baseline is not None or run.options.full or arguments.plan or run.options.preflight:
        return run
    panels = [cases for cases in _panels(run) if len(cases) > 1]
    rates: dict[str, float] = {}
    # The order saves samples, but a run can do without it.
    with contextlib.suppress(OSError, JournalError):
        scores = None
        for cases in panels:
            path = _record_path(run, run.checkpoint.fingerprint, cases)
            if not path.exists() and not invocation.is_narrowed:
                scores = scores or latest_scores(Path(run.options.journal), run.checkpoint.fingerprint)
                _record(run, path, cases, *scores)
            rates |= _read(path)
    return replace(run, draw_rates=rates)


def _panels(run: Run) -> Iterator[Sequence[Case]]:
    # Phases are compared over all tasks of a sweep alike, in a uniformly random order.
    for key in dict.fromkeys((case.family, case.length) for case in run.measurable if case.family != PHASES):
        yield [case for case in run.measurable if (case.family, case.length) == key]


def _record_path(run: Run, fingerprint: str, cases: Sequence[Case]) -> Path:
    panel = (cases[0].family, cases[0].length)
    name = stable_hash(FOLDER, fingerprint, run.samples, run.options.seed, *panel)
    return Path(run.options.journal, FOLDER, f"{name:016x}.json")


def _record(run: Run, path: Path, cases: Sequence[Case], own: EarlierScores, other: EarlierScores | None) -> None:
    """Record the rates of a panel, unless something of it is measured or the other checkpoint tells too little."""
    if other is None or any(_cluster_means(run, case, own) for case in cases):
        return
    rates = _read(_record_path(run, other.fingerprint, cases))
    if not rates.keys() >= {case.id for case in cases}:
        rates = draw_rates({case.id: _cluster_means(run, case, other) for case in cases})
    if rates:
        path.parent.mkdir(exist_ok=True)
        create_file(path, json.dumps(rates, indent=1).encode())


def _read(path: Path) -> Mapping[str, float]:
    """Return the rates in a record; {} if there is none or it is damaged."""
    try:
        rates = json.loads(path.read_bytes())
        if all(isinstance(rate, float) and math.isfinite(rate) and 0 < rate <= 1 for rate in rates.values()):
            return dict(rates)
    except (OSError, ValueError, AttributeError):
        pass
    return {}


def _cluster_means(run: Run, case: Case, scores: EarlierScores) -> list[float]:
    """Return the mean scores of the case's clusters that are measured in full."""
    values = [scores.by_key.get(run.key(case, index)) for index in range(case.samples)]
    clusters = [values[start : start + case.group] for start in range(0, case.samples, case.group)]
    return [math.fsum(filter(None, cluster)) / len(cluster) for cluster in clusters if None not in cluster]
