"""What a run is compared with: another checkpoint, or the report and journal of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.records import Options
from plugins.journal import Journal, Subject

SCHEMA = "longctx-report/1"


class BaselineError(ValueError):
    """A baseline that cannot be compared with; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The other side of every pair.

    With a `checkpoint` it is run as far as pairs are needed. Without, its results are those of
    `execution` in `journal`, and what is not there will not come.
    """

    name: str
    fingerprint: str
    journal: str
    checkpoint: Checkpoint | None = None
    execution: Mapping[str, str] = field(default_factory=dict)


def read_baseline(path: Path, options: Options, samples: str) -> Baseline:
    """The baseline of a JSON report; raises BaselineError."""
    report = _report(path)
    model, run = report["model"], report["run"]
    if run["samples"] != samples or run["seed"] != options.seed:
        raise BaselineError(
            f"--baseline: {path} was measured on other samples (another seed, tokenizer, chat template, text, wording "
            "or version of the tasks); measure it again with these options, or give the checkpoint instead"
        )
    subject = Subject(model=model["name"], fingerprint=model["fingerprint"], execution=model["execution"])
    homes = [home for home in (run["options"]["journal"], options.journal) if Path(home, subject.key).is_dir()]
    if not homes:
        raise BaselineError(
            f"--baseline: the journal of {path} is neither in {run['options']['journal']} nor in {options.journal}; "
            "give its directory with --journal, or the checkpoint instead of the report"
        )
    return Baseline(
        name=model["name"], fingerprint=model["fingerprint"], journal=homes[0], execution=model["execution"]
    )


def finished_journal(baseline: Baseline) -> Journal:
    """The journal of a baseline that is not run again, to be read only."""
    subject = Subject(model=baseline.name, fingerprint=baseline.fingerprint, execution=baseline.execution)
    return Journal(Path(baseline.journal), subject)


def _report(path: Path) -> Mapping[str, Any]:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(
            f"--baseline: cannot read {path} ({error.strerror}); give a JSON report or a checkpoint"
        ) from error
    except ValueError as error:
        raise BaselineError(f"--baseline: {path} is not JSON ({error}); give a file of --report-json") from error
    try:
        measured = report["schema"] == SCHEMA and report["model"]["execution"] is not None
    except (KeyError, TypeError):
        measured = False
    if not measured:
        raise BaselineError(
            f"--baseline: {path} is not a {SCHEMA} of a run that measured something; give a file of --report-json"
        )
    found: Mapping[str, Any] = report
    return found
