"""A finished run, from which its reports are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longctx.fixtures.records import PropertyFinding
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.config.run_facts import RunFacts
from longctx.plugins.verdicts.evaluation import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run, from which its reports are made."""

    run: RunFacts
    evaluation: Evaluation
    facts: EngineFacts | None
    """The engine's settings and hardware; None if no sample needed a model."""
    execution: Mapping[str, str] | None
    """The execution path, which is part of the journal's key; None if no sample needed a model."""
    baseline_execution: Mapping[str, str] | None = None
    """The same of the baseline; None without one, and for a baseline that is not run again."""
    computed_samples: int
    """The number of samples that were not in the journal before this run."""
    worker_seconds: Mapping[str, float] = field(default_factory=dict)
    """The time of all workers together, by activity."""
    invariance: Sequence[PropertyFinding] | None = None
    """The findings of --invariance; None without it."""
    started: str
    """ISO 8601, in UTC."""
    seconds: float
    command: str = ""
    """The command line of the run; empty if the run has none."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """The file of every report that the run writes, by the option that asks for it, such as `report_json`."""
    exit_code: int | None = None
    """The exit code of the process before its reports are written; None if the verdicts alone decide it."""
