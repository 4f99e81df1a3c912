"""The verdict on two finished results, by the rule of a run with a baseline."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from longctx.ci.gate.load import Reading, Results, load
from longctx.ci.gate.pairs import SUITE, Pairs, pair
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records import Case, EngineFacts, Options
from longctx.fixtures.records.report import RESULT_FILES
from longctx.plugins.config.run_facts import Baseline, RunFacts
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


class _Families(dict[str, str]):
    """The families of all tasks that a policy may name; one that is no task of this suite is another program's."""

    def __contains__(self, task: object) -> bool:
        return True

    def __missing__(self, task: str) -> str:
        return SUITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two results, paired, with the verdicts on them."""

    base: Results
    candidate: Results
    evaluation: Evaluation
    policy: Path
    notes: tuple[str, ...]
    """What a reader must know of the files and the policy."""
    seconds: float


def compare(base: Source, candidate: Source, policy: str | Path | None, reading: Reading) -> Comparison:
    """Read and pair two results, and evaluate the gates; raise ResultsError or ThresholdsError."""
    started = time.monotonic()
    results, other = (load(source, reading, role=role) for source, role in ((base, "BASE"), (candidate, "CANDIDATE")))
    path = SHIPPED if policy is None else absolute(policy)
    thresholds = load_thresholds(path, known_tasks=_families(results, other))
    gates = [gate for gate in thresholds.gates if gate.kind in COMPARED_KINDS]
    pairs = pair(results, other, [task for gate in gates for task in gate.tasks])
    cases = tuple(result.case for result in pairs.results)
    compared = tuple(_with_places(gate, cases, pairs.names) for gate in gates)
    left_out = ", ".join(gate.name for gate in thresholds.gates if gate.kind not in COMPARED_KINDS)
    floors = {}
    notes = [*thresholds.notes, *pairs.notes]
    if policy is not None:
        tasks = {case.task for case in cases}
        named = {pairs.names.get(task, task): floor for task, floor in thresholds.floors.items()}
        floors = {task: floor for task, floor in named.items() if task in tasks}
        notes += [f"gates on scores are for longctx run, and left out here: {left_out}"] if left_out else []
    thresholds = replace(thresholds, gates=compared, floors=floors)
    return Comparison(
        base=results, candidate=other, evaluation=_evaluation(cases, thresholds, pairs), policy=path,
        notes=tuple(notes), seconds=time.monotonic() - started,
    )  # fmt: skip


def _families(*results: Results) -> Mapping[str, str]:
    """Return the families of all tasks; those of no file are other programs'."""
    families = _Families()
    for one in results:
        for (task, _), samples in one.samples.items():
            case = next(iter(samples.values())).case
            families[task] = SUITE if case is None else case.family
    return families


def _with_places(gate: Gate, cases: Sequence[Case], names: Mapping[str, str]) -> Gate:
    """Return a gate at the lengths that its tasks have; one that names none is about all of another program's."""
    tasks = [names.get(task, task) for task in gate.tasks]
    is_about_all = not tasks and gate.aspect is None and gate.category is None
    if is_about_all:
        of_others = [case.task for case in cases if case.suite == SUITE]
        tasks = list(dict.fromkeys(of_others))
    lengths = {case.length for case in cases if case.task in tasks}
    return replace(gate, tasks=tuple(tasks), lengths=gate.lengths or tuple(sorted(lengths)))


def _evaluation(cases: tuple[Case, ...], thresholds: Thresholds, pairs: Pairs) -> Evaluation:
    """Return the verdicts. Without all samples of the base, a candidate of another program passes nothing."""
    aspects = {case.task: case.category for case in cases if case.suite == "ruler"}
    is_others = all(case.suite == SUITE for case in cases)
    scope = Scope(
        lengths=tuple(sorted({case.length for case in cases})),
        cases=cases,
        reference=thresholds.references["base"],
        ruler_aspects=aspects if len(aspects) == RULER_TASKS else {},
        claimed_length=None,
        seed=pairs.seed,
        has_baseline=True,
        baseline_is_final=True,
        # Other programs have measured all their samples, and looked at none before. A run of this suite has looked.
        full=is_others,
        is_finished=is_others,
        task_families={case.task: case.family for case in cases},
    )
    measured = Measured(scope=scope, results={result.case.id: result for result in pairs.results})
    evaluation = evaluate(thresholds, replace(measured, final_baseline=measured.baseline_scores))
    short = {case.length for case in cases if case.id in pairs.short}
    verdicts = list(evaluation.verdicts)
    for place, verdict in enumerate(verdicts):
        is_short = bool(short) and verdict.length in (None, *short)
        is_unfinished = verdict.verdict == "undecided" and verdict.because in ("too few samples", "short baseline")
        if is_short and (is_unfinished or (is_others and verdict.verdict == "pass")):
            verdicts[place] = replace(verdict, verdict="undecided", because="short candidate")
    return replace(evaluation, verdicts=tuple(verdicts))


def power_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for every comparison: its pairs, and the smallest loss that they show."""
    for verdict in evaluation.verdicts:
        if verdict.kind == "regression" and verdict.change is not None:
            texts = plural(verdict.haystacks, "text", "texts")
            seen = "no loss can be shown"
            if verdict.detectable is not None:
                seen = f"a loss of {verdict.detectable:.1f} points is seen with 80 %"
            yield f"{verdict.name}: {verdict.change.pairs:,} pairs on {texts}; {seen}"


def summarize(comparison: Comparison, files: Mapping[str, Path]) -> RunSummary:
    """Return the summary from which all reports are made; `files` are those that are written."""
    base, candidate, scope = comparison.base, comparison.candidate, comparison.evaluation.measured.scope
    # Nothing but the place of its files is known of the model.
    checkpoint = Checkpoint(
        name=candidate.name, path=os.path.abspath(candidate.path), architecture=candidate.kind, fingerprint=""
    )
    options = Options(
        model=candidate.name, model_path=candidate.path, suite=SUITE, lengths=scope.lengths,
        samples=max(case.samples for case in scope.cases), seed=scope.seed, engine=RESULT_FILES, device="", dtype="",
        attention="", batch_size=0, prefill_chunk="", chat="", length_tokenizer=None, data_dir=None, prompts=None,
        thresholds=str(comparison.policy), trust_remote_code=False, preflight=False, journal="", full=scope.full,
        budget_minutes=None, baseline=base.name, gpus_per_worker=0, scoring="", judge_model=None,
        judge_url=None, nli_model=None,
    )  # fmt: skip
    facts = EngineFacts(
        engine=RESULT_FILES, device="", dtype="", attention="", batch_size=0, prefill="", reuse="",
        hardware=platform.node(), notes=comparison.notes,
    )  # fmt: skip
    return RunSummary(
        run=RunFacts(
            options=options, checkpoint=checkpoint, cases=tuple(scope.cases),
            thresholds=comparison.evaluation.thresholds,
            baseline=Baseline(name=base.name, fingerprint="", journal="", path=base.path),
        ),
        evaluation=comparison.evaluation, facts=facts, execution=None, computed_samples=0, files=files,
        started=datetime.now(UTC).isoformat(timespec="seconds"), seconds=comparison.seconds,
    )  # fmt: skip
