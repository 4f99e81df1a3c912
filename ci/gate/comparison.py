"""Pair the samples of two finished results, and evaluate the pairs by the rule of a run with a baseline."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from longctx.ci.gate.formats import ResultsError, ScoredSample
from longctx.ci.gate.load import Place, Reading, Results, load
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.lengths import format_length
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records import (
    BaselineAnswer,
    Case,
    CaseResult,
    EngineFacts,
    Generation,
    Options,
    Outcome,
    Score,
)
from longctx.fixtures.records.report import RESULT_FILES
from longctx.fixtures.records.results import FailureKind
from longctx.plugins.config.run_facts import Baseline, RunFacts
from longctx.plugins.report.document import RunSummary
from longctx.plugins.report.tables import counted, plural
from longctx.plugins.thresholds.read import load_thresholds
from longctx.plugins.thresholds.records import COMPARED_KINDS, SHIPPED, Gate, Thresholds
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation, evaluate
from longctx.plugins.verdicts.hypotheses import Scope

Source = str | Path | Sequence[Mapping[str, object]]
"""A file, a folder or a glob of results, or the rows of a table: id, score and more, as a CSV file has them."""
SUITE = "tasks"
"""The suite and the family of other programs' tasks."""
MOST_NAMED = 5
MOST_CHARACTERS = 90
Samples = Mapping[str, ScoredSample]
"""The samples of a place by identity."""
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
    named_tasks = [task for gate in gates for task in gate.tasks]
    named_tasks += [] if policy is None else thresholds.floors
    pairs = pair(results, other, named_tasks)
    cases = tuple(result.case for result in pairs.results)
    compared = tuple(_with_places(gate, cases, pairs.names) for gate in gates)
    left_out = ", ".join(gate.name for gate in thresholds.gates if gate.kind not in COMPARED_KINDS)
    floors = {}
    notes = [*thresholds.notes, *pairs.notes]
    if results.path == other.path and isinstance(base, str | Path):
        notes.append("BASE and CANDIDATE are the same, which is most often a wrong path")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The samples that both models have answered, as the results of cases."""

    results: tuple[CaseResult, ...]
    short: frozenset[str]
    """The ids of the cases of which the candidate lacks samples of the base."""
    names: Mapping[str, str]
    """By the task of a file, its name in reports."""
    seed: int
    notes: tuple[str, ...]
    """What cannot be paired, and what is not known of the units of evidence."""


def pair(base: Results, candidate: Results, required: Collection[str]) -> Pairs:
    """Pair two results; raise ResultsError if nothing can be compared, or if inputs differ.

    A case of `required` tasks that no file has is an error, as is one that the candidate lacks.
    """
    names = _shown_names([task for task, _ in (*base.samples, *candidate.samples)])
    base, candidate = _renamed(base, names), _renamed(candidate, names)
    units: dict[str, int] = {}
    results, short, lone, has_units = [], set(), [], True
    for place, samples in base.samples.items():
        case_id, others = _case_id(place, samples), candidate.samples.get(place, {})
        if not others:
            error = f"{candidate.name} has no sample of it; measure it, or leave it out of {base.name}"
            results.append(_failed(_described(place, samples, ()), error))
            continue
        shared = [identity for identity in samples if identity in others]
        _check(case_id, samples, others, (base.name, candidate.name))
        for name, known, other in ((base.name, samples, others), (candidate.name, others, samples)):
            without = [sample.id for identity, sample in known.items() if identity not in other]
            if without:
                ids = counted(without, MOST_NAMED)
                lone.append(f"{case_id}: {plural(len(without), 'sample', 'samples')} of {name} alone ({ids})")
        if len(shared) < len(samples):
            short.add(case_id)
        if next(iter(samples.values())).case is not None:
            # The samples of this suite are paired in the order of their indices.
            shared.sort(key=int)
        has_units = has_units and all(samples[identity].unit for identity in shared)
        # The number of the text of every pair is the same in all tasks.
        texts = [samples[identity].unit or f"{place} {identity}" for identity in shared]
        numbers = tuple(units.setdefault(text, len(units)) for text in texts)
        case = _described(place, {identity: samples[identity] for identity in shared}, numbers)
        results.append(_result(case, [(samples[identity], others[identity]) for identity in shared]))
    new = [_case_id(place, samples) for place, samples in candidate.samples.items() if place not in base.samples]
    if new:
        lone.append(f"tasks of {candidate.name} alone: {counted(new, MOST_NAMED)}")
    known_tasks = {task for task, _ in base.samples}
    for task in dict.fromkeys(required):
        if names.get(task, task) not in known_tasks:
            like = replace(results[0].case, id=task, task=_shown_names([task])[task], texts=(), only=())
            results.append(_failed(like, f"{base.name} has no sample of it; measure it"))
    notes = [*base.notes, *candidate.notes]
    if not has_units:
        notes.append("nothing says which samples share a text, so each is one of its own; a column `cluster` says it")
    seed = next(sample.seed for samples in base.samples.values() for sample in samples.values())
    return Pairs(results=tuple(results), short=frozenset(short), names=names, seed=seed, notes=(*notes, *lone))


def _check(case_id: str, samples: Samples, others: Samples, names: tuple[str, str]) -> None:
    """Raise ResultsError for the first sample of which the two models were asked something else."""
    lone_ids = {sample.id for identity, sample in others.items() if identity not in samples}
    for identity, sample in samples.items():
        other = others.get(identity)
        if other is None:
            is_other = bool(sample.document) and sample.id in lone_ids
        else:
            is_other = sample.prompt != other.prompt and "" not in (sample.prompt, other.prompt)
        if is_other:
            raise ResultsError(
                f"{case_id}: sample {sample.id} has another prompt in {names[1]} than in {names[0]}; compare runs of "
                "the same prompts, with the same seed, examples and template"
            )
    if samples.keys().isdisjoint(others):
        raise ResultsError(f"{case_id}: no sample of {names[0]} is in {names[1]}; compare runs of the same samples")


def _case_id(place: Place, samples: Samples) -> str:
    case = next(iter(samples.values())).case
    task, length = place
    return case.id if case is not None else f"{task}-{format_length(length)}" if length else task


def _shown_names(tasks: Sequence[str]) -> dict[str, str]:
    """Return by task its name as reports may have it, another one for each."""
    names: dict[str, str] = {}
    for task in dict.fromkeys(tasks):
        shown = re.sub(r"[^A-Za-z0-9_.-]", "-", task)[:MOST_CHARACTERS] or "-"
        name, number = shown, 1
        while name in names.values():
            number += 1
            name = f"{shown}-{number}"
        names[task] = name
    return names


def _renamed(results: Results, names: Mapping[str, str]) -> Results:
    """Return results with these names of their tasks."""
    samples = {(names[task], length): known for (task, length), known in results.samples.items()}
    return replace(results, samples=samples)


def _described(place: Place, samples: Samples, texts: tuple[int, ...]) -> Case:
    """Return the case of some pairs: that of this suite, with the indices that are there, or one in their order."""
    case = next(iter(samples.values())).case
    return case or Case(
        id=_case_id(place, samples), suite=SUITE, category=SUITE, task=place[0], length=place[1],
        samples=len(samples), source="published", generation_tokens=1, texts=texts,
    )  # fmt: skip


def _failed(case: Case, error: str) -> CaseResult:
    return CaseResult(case=case, outcomes=(), seconds=0.0, error=error)


def _result(case: Case, pairs: Sequence[tuple[ScoredSample, ScoredSample]]) -> CaseResult:
    """Return the candidate's outcomes with the base's scores, and the base's answers where the scores differ."""
    outcomes, flipped = [], []
    for number, (before, sample) in enumerate(pairs):
        index = number if case.suite == SUITE else int(sample.id)
        outcomes.append(_outcome(index, sample))
        if sample.score != before.score and before.answer is not None:
            flipped.append(BaselineAnswer(index=index, text=before.answer, failure=_failure(before)))
    scores = tuple(before.score for before, _ in pairs)
    return CaseResult(case=case, outcomes=tuple(outcomes), seconds=0.0, baseline=scores, flipped=tuple(flipped))


def _outcome(index: int, sample: ScoredSample) -> Outcome:
    generation = Generation(
        text=sample.answer or "", prompt_tokens=0, generated_tokens=None, computed_tokens=None, reused_tokens=None,
        finish="stop", seconds=0.0,
    )  # fmt: skip
    score = Score(value=sample.score, failure=_failure(sample))
    return Outcome(index=index, score=score, generation=generation, references=sample.expected, depths=())


def _failure(sample: ScoredSample) -> FailureKind | None:
    if sample.score >= 1:
        return None
    return "empty" if sample.answer is not None and not sample.answer.strip() else "wrong"
