"""The extension of a report given as baseline: while its checkpoint exists, it answers the samples that are missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fixtures.checkpoints.checkpoint import Checkpoint, CheckpointError
from fixtures.conversion import ConversionError
from fixtures.engines import EngineError, execution_settings
from fixtures.memory.fit import cases_over_memory
from plugins.config.baseline import Baseline, finished_journal
from plugins.config.invocation import Invocation
from plugins.config.models import read_or_make
from plugins.config.run import Run
from plugins.config.servers import is_served
from plugins.journal import JournalError, likelihood_key


def extend_baseline(run: Run, invocation: Invocation) -> Run:
    """Return the run with the checkpoint of the report that --baseline names, to be loaded if pairs are missing.

    Nothing changes for a run without such a report, and for a report whose results are complete. If the checkpoint
    cannot take part, `Baseline.limit` says why.
    """
    baseline = run.baseline
    if baseline is None or baseline.checkpoint is not None or run.thresholds.regression.underpowered != "extend":
        return run
    if _is_complete(run, baseline):
        return run
    limit, checkpoint = "", None
    try:
        checkpoint = _usable_checkpoint(run, baseline, invocation)
    except ExtensionError as error:
        limit = str(error)
    return replace(run, baseline=replace(baseline, checkpoint=checkpoint, limit=limit))


class ExtensionError(Exception):
    """A baseline that answers no further samples; the message completes "it cannot be extended: "."""


def _is_complete(run: Run, baseline: Baseline) -> bool:
    """Return True if the baseline's journal has all that the run would measure of it."""
    journal = finished_journal(baseline)
    try:
        journal.refresh()
    except JournalError:
        return False
    signal = run.options.signal
    keys = [(case, run.key(case, index)) for case in run.measurable for index in case.planned]
    return all(signal == "likelihood" or key in journal.entries for _, key in keys) and all(
        signal == "answers" or likelihood_key(key) in journal.likelihoods for case, key in keys if case.has_gold
    )


def _usable_checkpoint(run: Run, baseline: Baseline, invocation: Invocation) -> Checkpoint:
    """Return the checkpoint of the baseline's report; raise ExtensionError if it is not as it was measured."""
    if baseline.path is None or baseline.execution.get("engine") != "hf":
        raise ExtensionError("a server answered for it")
    try:
        checkpoint = read_or_make(invocation, baseline.path, option="--baseline")
    except (CheckpointError, ConversionError):
        raise ExtensionError(f"its checkpoint {baseline.path} is gone") from None
    if checkpoint.fingerprint != baseline.fingerprint:
        raise ExtensionError(f"its checkpoint {baseline.path} has changed")
    if Path(baseline.journal) != Path(run.options.journal):
        raise ExtensionError(f"its results are in another journal; give --journal {baseline.journal}")
    if _execution(run, checkpoint) != baseline.execution:
        raise ExtensionError("it was measured with other engine settings or on another kind of machine")
    if _exceeds_memory(run, checkpoint, invocation):
        raise ExtensionError("the memory does not suffice for both models")
    return checkpoint


def _execution(run: Run, checkpoint: Checkpoint) -> dict[str, str] | None:
    try:
        return execution_settings(checkpoint, **run.engine_settings("baseline"))
    except EngineError:
        return None


def _exceeds_memory(run: Run, checkpoint: Checkpoint, invocation: Invocation) -> bool:
    workers = invocation.local_workers
    loaded = [checkpoint] if is_served(run.options) else [run.checkpoint, checkpoint]
    if workers is None or checkpoint.fingerprint == run.checkpoint.fingerprint:
        return False
    return bool(cases_over_memory(run.options, loaded, run.measurable, workers=workers))
