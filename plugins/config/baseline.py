"""The baseline of a run: another checkpoint, or the report and journal of an earlier run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.outside_files import read_outside
from fixtures.records import Options
from plugins.journal import Journal, Subject

SCHEMA = "longctx-report/1"


class _Model(msgspec.Struct):
    name: str
    fingerprint: str
    execution: dict[str, str]
    path: str | None = None


class _Options(msgspec.Struct):
    journal: str


class _Run(msgspec.Struct):
    samples: str
    seed: int
    options: _Options


class _Report(msgspec.Struct):
    """The parts of a JSON report that say where its results are."""

    model: _Model
    run: _Run


class BaselineError(ValueError):
    """A baseline without samples to compare with; the message is one line with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The model that a checkpoint is compared with."""

    name: str

    fingerprint: str
    """The fingerprint of its checkpoint."""

    journal: str
    """The directory of the journal that has or gets its results."""

    checkpoint: Checkpoint | None = None
    """The checkpoint to run as far as pairs are needed; None if the journal has all results there will be."""

    execution: Mapping[str, str] = field(default_factory=dict)
    """The engine settings under which the journal has the results of a report; empty for a checkpoint."""

    path: str | None = None
    """The directory of the checkpoint that a report is about; None for a checkpoint."""

    limit: str = ""
    """The reason why nothing can be added to the results of a report; empty if something can, or need not."""


def read_baseline(path: Path, options: Options, samples: str) -> Baseline:
    """Return the baseline that a JSON report describes; `samples` is the fingerprint of this run's samples.

    Raises BaselineError if the report is of other samples, or its journal is missing.
    """
    report = _report(path)
    model, run = report.model, report.run
    if run.samples != samples or run.seed != options.seed:
        raise BaselineError(
            f"--baseline: {path} was measured on other samples (another seed, tokenizer, chat template, text, wording "
            "or version of the tasks); measure it again with these options, or give the checkpoint instead"
        )
    subject = Subject(model=model.name, fingerprint=model.fingerprint, execution=model.execution)
    journals = [path for path in (run.options.journal, options.journal) if os.path.isdir(Path(path, subject.key))]
    if not journals:
        raise BaselineError(
            f"--baseline: the journal of {path} is neither in {run.options.journal} nor in {options.journal}; "
            "give its directory with --journal, or the checkpoint instead of the report"
        )
    return Baseline(
        name=model.name,
        fingerprint=model.fingerprint,
        journal=journals[0],
        execution=model.execution,
        path=model.path,
    )


def finished_journal(baseline: Baseline) -> Journal:
    """Return the journal of a baseline that is not run again, for reading only."""
    subject = Subject(model=baseline.name, fingerprint=baseline.fingerprint, execution=baseline.execution)
    return Journal(Path(baseline.journal), subject)


def _report(path: Path) -> _Report:
    """Read a JSON report; raise BaselineError if it is none or has no results."""
    try:
        report = json.loads(read_outside(path))
    except OSError as error:
        raise BaselineError(
            f"--baseline: cannot read {path} ({error.strerror}); give a JSON report or a checkpoint"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"--baseline: {path} is not JSON ({error}); give a file of --report-json") from error
    try:
        if report["schema"] == SCHEMA and report["model"]["execution"] is not None:
            return msgspec.convert(report, _Report)
        problem = "of a run that measured something"
    except (KeyError, TypeError, AttributeError):
        problem = "of a run that measured something"
    except msgspec.ValidationError as error:
        problem = f"({error})"
    raise BaselineError(f"--baseline: {path} is not a {SCHEMA} {problem}; give a file of --report-json")
