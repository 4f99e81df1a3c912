"""The verdict on two finished results, by the rule of a run with a baseline."""

from __future__ import annotations

import os
import platform
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from longctx.ci.gate.load import Reading, Results, load
from longctx.ci.gate.pairs import SUITE, Pairs, pair
from longctx.ci.gate.records import ResultsError
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.outside_files import absolute, read_outside
from longctx.fixtures.records import Case, EngineFacts, Options, Verdict
from longctx.fixtures.records.report import RESULT_FILES, JsonReport
from longctx.plugins.config.run_facts import Baseline, RunFacts
from longctx.plugins.report.document import document
from longctx.plugins.report.summary import RunSummary
from longctx.plugins.report.tables import plural
from longctx.plugins.thresholds.read import load_thresholds
from longctx.plugins.thresholds.records import COMPARED_KINDS, SHIPPED, Gate, Thresholds
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation, evaluate
from longctx.plugins.verdicts.hypotheses import Scope

Source = str | Path | Sequence[Mapping[str, object]]
"""A file, a folder or a glob of results, or the rows of a table: id, score and more, as a CSV file has them."""
# A mean over RULER is one over all its tasks.
RULER_TASKS = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two results, paired, with what decides on them."""

    base: Results
    candidate: Results
    pairs: Pairs
    thresholds: Thresholds
    scope: Scope
    measured: Measured
    policy: Path
    left_out: tuple[str, ...] = ()
    """The gates of the policy that are about scores and not about a comparison."""
    started: float = field(default_factory=time.monotonic)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know of the files and the policy."""
        names = ", ".join(self.left_out)
        left_out = [f"gates on scores are for longctx run, and left out here: {names}"] if names else []
        return (*self.thresholds.notes, *self.pairs.notes, *left_out)


def compare_results(
    base: Source,
    candidate: Source,
    policy: str | Path | None = None,
    *,
    metrics: Sequence[str] = (),
    scale: float | None = None,
    lower_is_better: bool = False,
) -> JsonReport:
    """Return the report on a candidate's results against those of a base.

    `policy` is a TOML file like thresholds.toml, of which the comparisons count. Raises ValueError with one line for
    results and policies that cannot be used.
    """
    reading = Reading(metrics=tuple(metrics), scale=scale, lower_is_better=lower_is_better)
    comparison = prepare(base, candidate, policy, reading)
    return document(summarize(comparison, evaluated(comparison)))


def prepare(base: Source, candidate: Source, policy: str | Path | None, reading: Reading) -> Comparison:
    """Read and pair two results; raise ResultsError or ThresholdsError."""
    results, other = (load(source, reading, role=role) for source, role in ((base, "BASE"), (candidate, "CANDIDATE")))
    path = SHIPPED if policy is None else absolute(policy)
    named = _named_tasks(path) if policy is not None else []
    pairs = pair(results, other, named)
    cases = [result.case for result in pairs.results]
    families = {case.task: case.family for case in cases}
    written = {task: families[name] for task, name in pairs.names.items() if name in families}
    thresholds = load_thresholds(path, known_tasks=families | written)
    compared = [_with_places(gate, cases, pairs.names) for gate in thresholds.gates if gate.kind in COMPARED_KINDS]
    left_out = tuple(gate.name for gate in thresholds.gates if gate.kind not in COMPARED_KINDS)
    floors = {pairs.names.get(task, task): floor for task, floor in thresholds.floors.items()}
    floors = {task: floor for task, floor in floors.items() if task in families and policy is not None}
    thresholds = replace(thresholds, gates=tuple(compared), floors=floors)
    scope = _scope(cases, families, thresholds, pairs.seed)
    return Comparison(
        base=results, candidate=other, pairs=pairs, thresholds=thresholds, scope=scope, policy=path,
        measured=_measured(scope, pairs), left_out=() if policy is None else left_out,
    )  # fmt: skip


def _with_places(gate: Gate, cases: Sequence[Case], names: Mapping[str, str]) -> Gate:
    """Return a gate at the lengths that its tasks have; one that names none is about all of another program's."""
    tasks = tuple(names.get(task, task) for task in gate.tasks)
    if not tasks and gate.aspect is None and gate.category is None:
        tasks = tuple(dict.fromkeys(case.task for case in cases if case.suite == SUITE))
    lengths = sorted({case.length for case in cases if case.task in tasks})
    return replace(gate, tasks=tasks, lengths=gate.lengths or tuple(lengths))


def _named_tasks(path: Path) -> list[str]:
    """Return the tasks that the gates of a policy name; reading it strictly comes later."""
    try:
        gates = tomllib.loads(read_outside(path).decode()).get("gate", [])
    except OSError as error:
        raise ResultsError(f"--policy: cannot read {path} ({error.strerror}); give a TOML file") from error
    except ValueError:
        return []
    tables = [gate for gate in gates if isinstance(gate, dict)] if isinstance(gates, list) else []
    lists = [gate.get("tasks") for gate in tables if gate.get("kind") in COMPARED_KINDS]
    return [task for tasks in lists if isinstance(tasks, list) for task in tasks if isinstance(task, str)]


def _scope(cases: Sequence[Case], families: Mapping[str, str], thresholds: Thresholds, seed: int) -> Scope:
    aspects = {case.task: case.category for case in cases if case.suite == "ruler"}
    is_others = all(case.suite == SUITE for case in cases)
    return Scope(
        lengths=tuple(sorted({case.length for case in cases})),
        cases=tuple(cases),
        reference=thresholds.references["base"],
        ruler_aspects=aspects if len(aspects) == RULER_TASKS else {},
        claimed_length=None,
        seed=seed,
        has_baseline=True,
        baseline_is_final=True,
        # Other programs have measured all their samples, and looked at none before. A run of this suite has looked.
        full=is_others,
        is_finished=is_others,
        task_families=families,
    )


def _measured(scope: Scope, pairs: Pairs) -> Measured:
    measured = Measured(scope=scope, results={result.case.id: result for result in pairs.results})
    return replace(measured, final_baseline=measured.baseline_scores)


def evaluated(comparison: Comparison) -> Evaluation:
    """Return the verdicts. Without all samples of the base, a candidate of another program passes nothing."""
    evaluation = evaluate(comparison.thresholds, comparison.measured)
    verdicts = [_completed(verdict, comparison) for verdict in evaluation.verdicts]
    return replace(evaluation, verdicts=tuple(verdicts))


def _completed(verdict: Verdict, comparison: Comparison) -> Verdict:
    lacking = [case for case in comparison.scope.cases if case.id in comparison.pairs.short]
    if not any(verdict.length in (None, case.length) for case in lacking):
        return verdict
    is_unfinished = verdict.verdict == "undecided" and verdict.because in ("too few samples", "short baseline")
    if is_unfinished or (verdict.verdict == "pass" and comparison.scope.full):
        return replace(verdict, verdict="undecided", because="short candidate")
    return verdict


def power_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for every comparison: its pairs, and the smallest loss that they show."""
    for verdict in evaluation.verdicts:
        if verdict.kind == "regression" and verdict.change is not None:
            texts = plural(verdict.haystacks, "text", "texts")
            seen = "no loss can be shown"
            if verdict.detectable is not None:
                seen = f"a loss of {verdict.detectable:.1f} points is seen with 80 %"
            yield f"{verdict.name}: {verdict.change.pairs:,} pairs on {texts}; {seen}"


def summarize(comparison: Comparison, evaluation: Evaluation, **files: Any) -> RunSummary:
    """Return the summary from which all reports are made; `files` are its further fields."""
    base, candidate, scope = comparison.base, comparison.candidate, comparison.scope
    run = RunFacts(
        options=_options(comparison),
        checkpoint=_described(candidate),
        cases=tuple(scope.cases),
        thresholds=comparison.thresholds,
        baseline=Baseline(name=base.name, fingerprint="", journal="", path=base.path),
    )
    facts = EngineFacts(
        engine=RESULT_FILES, device="", dtype="", attention="", batch_size=0, prefill="", reuse="",
        hardware=platform.node(), notes=comparison.notes,
    )  # fmt: skip
    return RunSummary(
        run=run,
        evaluation=evaluation,
        facts=facts,
        execution=None,
        computed_samples=0,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=time.monotonic() - comparison.started,
        **files,
    )


def _described(results: Results) -> Checkpoint:
    """Return the model of results, of which nothing but the place of its files is known."""
    return Checkpoint(
        name=results.name, path=os.path.abspath(results.path), architecture=results.kind, model_type="",
        claimed_length=None, dtype="", parameters=0, weight_bytes=0, fingerprint="", config={}, calibration=None,
    )  # fmt: skip


def _options(comparison: Comparison) -> Options:
    scope = comparison.scope
    return Options(
        model=comparison.candidate.name, model_path=comparison.candidate.path, suite=SUITE, lengths=scope.lengths,
        samples=max(case.samples for case in scope.cases), seed=scope.seed, engine=RESULT_FILES, device="", dtype="",
        attention="", batch_size=0, prefill_chunk="", chat="", length_tokenizer=None, data_dir=None, prompts=None,
        thresholds=str(comparison.policy), trust_remote_code=False, preflight=False, journal="", full=scope.full,
        budget_minutes=None, baseline=comparison.base.name, gpus_per_worker=0, scoring="", judge_model=None,
        judge_url=None, nli_model=None,
    )  # fmt: skip
