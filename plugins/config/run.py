"""The record of one run: everything that is measured, with which settings, and the baseline it is compared with."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from longctx.fixtures.engines import EngineSettings
from longctx.fixtures.engines.base import LocalSettings
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings
from longctx.fixtures.engines.vllm.execution import VllmSettings
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import Case, Options
from longctx.fixtures.records.report import REPORT_SCHEMA, JsonReport, parse_report
from longctx.plugins.config.run_facts import Baseline, RunFacts
from longctx.plugins.journal import Journal, Subject, sample_key
from longctx.plugins.verdicts.hypotheses import Scope
from longctx.plugins.verdicts.panels import ModelRole
from longctx.plugins.verdicts.selection import NamedGate, named_gates


class BaselineError(ValueError):
    """A baseline without samples to compare with; the message is one line with the remedy."""


OTHER_FILES = {
    b"\x1f\x8b": "compressed by gzip", b"pk": "a zip archive", b"gguf": "a GGUF file", b"<!doc": "a page in HTML",
    b"<": "XML", b"#": "Markdown or TOML",
}  # fmt: skip
"""What a file that is no JSON report is, by its first bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunFacts):
    """One pytest run. The controller builds it from the command line and sends it to every worker."""

    task_names: tuple[str, ...] = ()
    """The tasks, categories and suites of --tasks; empty for all of --suite."""
    ruler_aspects: dict[str, str] = field(default_factory=dict)
    """All tasks of RULER with their aspect."""
    task_families: dict[str, str] = field(default_factory=dict)
    """All tasks with their family, the group of tasks that has a mean."""
    formatter: str = ""
    """The fingerprint of the tokenizer and chat template that make the prompts; every worker loads them again."""
    scorers: tuple[str, ...] = ()
    """The mode of scoring, the judge and the entailment model, as parts of `samples`."""
    deadline: float | None = None
    """The Unix time in seconds after which no sample and no request to a server is started; None without --budget."""
    endpoint: Endpoint | None = None
    """The server that runs the model; None if the workers load the checkpoint, or if no model is run."""
    baseline_endpoint: Endpoint | None = None
    """The server that runs the baseline; None if the workers load its checkpoint, or if it is not run."""
    server_turns: str | None = None
    """The folder of the servers of --serve that run in turn; None for any other run."""

    @property
    def is_in_turn(self) -> bool:
        """True if the model and its baseline are loaded one after the other, because they may not fit together."""
        is_local = self.endpoint is None and self.options.engine == "vllm"
        has_both = self.baseline is not None and self.baseline.checkpoint is not None
        return has_both and (is_local or self.server_turns is not None)

    def engine_settings(self, role: ModelRole) -> EngineSettings:
        options = self.options
        endpoint = self.endpoint if role == "model" else self.baseline_endpoint
        if endpoint is not None:
            return ServerSettings(
                endpoint=endpoint,
                batch_size=options.batch_size,
                thinking_tokens=options.thinking_budget,
                timeout_seconds=options.request_timeout,
                deadline=self.deadline,
            )
        local = LocalSettings(
            device=options.device,
            dtype=options.dtype,
            attention=options.attention,
            batch_size=options.batch_size,
            prefill_chunk=options.prefill_chunk,
            thinking_tokens=options.thinking_budget,
            gpus=options.gpus_per_worker,
            overrides=options.config_override,
        )
        if options.engine != "vllm":
            return HfSettings(**asdict(local))
        # Prompts of another tokenizer and prepared ones may be longer than their length.
        longest = max((case.length for case in self.cases), default=0)
        return VllmSettings(**asdict(local), context_tokens=longest + longest // 8)

    @property
    def named_gates(self) -> dict[str, NamedGate]:
        """The gates by name, in the order in which they are printed."""
        return named_gates(self.thresholds, self.scope(self.available))

    def is_named(self, case: Case) -> bool:
        """Return True if --tasks selects the case, or is not given."""
        return not self.task_names or not {case.task, case.category, case.suite}.isdisjoint(self.task_names)

    def key(self, case: Case, index: int) -> str:
        """Return the key of a sample in the journal; models that read the same samples share it."""
        return sample_key(self.samples, case.version, self.options.seed, case.task, case.length, index)

    def scope(self, selected: Sequence[Case], executions: Mapping[str, Mapping[str, str]] | None = None) -> Scope:
        """Return the facts about this run that its gates depend on, for the selected cases.

        `executions` has the settings under which the journals keep the results, by "model" and "baseline"; None before
        they are known.
        """
        return Scope(
            lengths=self.options.lengths,
            cases=selected,
            reference=self.yardstick or self.thresholds.references["aligned" if self.chat else "base"],
            ruler_aspects=self.ruler_aspects,
            claimed_length=self.checkpoint.claimed_length,
            misfits=frozenset(self.misfits),
            seed=self.options.seed,
            has_baseline=self.baseline is not None,
            baseline_is_final=self.baseline is not None and self.baseline.checkpoint is None,
            full=self.options.full,
            is_in_turn=self.is_in_turn,
            signal=self.options.signal,
            series=self.options.series,
            chosen_from=self.options.chosen_from,
            is_same_checkpoint=executions is not None and is_same_checkpoint(self, executions),
            task_families=self.task_families,
        )


def is_same_checkpoint(run: Run, executions: Mapping[str, Mapping[str, str]]) -> bool:
    """Return True if the model and its baseline are one checkpoint in one execution, so that no answer can differ.

    `executions` has the settings under which the journals keep the results, by "model" and "baseline". It is False if a
    server answers: its answers also depend on its load, and other weights may have the same name.
    """
    model = executions.get("model")
    if run.baseline is None or model is None or model.get("engine") == "openai":
        return False
    is_same_execution = model == executions.get("baseline")
    return is_same_execution and run.baseline.fingerprint == run.checkpoint.fingerprint


def read_baseline(path: Path, options: Options, samples: str) -> Baseline:
    """Return the baseline that a JSON report describes; `samples` is the fingerprint of this run's samples.

    Raises BaselineError if the report's journal is missing, and for a report of other samples.
    """
    report = _report(path)
    model, run = report.model, report.run
    if run.samples != samples or run.seed != options.seed:
        raise BaselineError(
            f"--baseline: {path} was measured on other samples (seed {run.seed}, or other texts, prompts, scoring or "
            "tokenizer); measure it again with these options, or give the checkpoint instead"
        )
    execution = model.execution or {}
    subject = Subject(model=model.name, fingerprint=model.fingerprint, execution=execution)
    journals = [path for path in (run.journal, options.journal) if os.path.isdir(Path(path, subject.key))]
    if not journals:
        raise BaselineError(
            f"--baseline: the journal of {path} is neither in {run.journal} nor in {options.journal}; "
            "give its directory with --journal, or the checkpoint instead of the report"
        )
    return Baseline(
        name=model.name, fingerprint=model.fingerprint, journal=journals[0], execution=execution, path=model.path
    )


def finished_journal(baseline: Baseline) -> Journal:
    """Return the journal of a baseline that is not run again, for reading only."""
    subject = Subject(model=baseline.name, fingerprint=baseline.fingerprint, execution=baseline.execution)
    return Journal(Path(baseline.journal), subject)


def _report(path: Path) -> JsonReport:
    """Read a JSON report; raise BaselineError if it is none or has no results."""
    problem = "of a run that measured something"
    try:
        report = parse_report(read_outside(path))
        if report.model.execution is not None:
            return report
    except OSError as error:
        raise BaselineError(
            f"--baseline: cannot read {path} ({error.strerror}); give a JSON report or a checkpoint"
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        start = read_outside(path)[:5].lower()
        kinds = [kind for first, kind in OTHER_FILES.items() if start.startswith(first)]
        kind = kinds[0] if kinds else f"not JSON ({error})"
        raise BaselineError(
            f"--baseline: {path} is {kind}; give a file of --report-json, or a checkpoint directory; longctx gate "
            "compares results of other kinds"
        ) from error
    except ValueError as error:
        problem = f"({error})"
    raise BaselineError(f"--baseline: {path} is not a {REPORT_SCHEMA} {problem}; give a file of --report-json")
