"""Pair the samples of two finished results, and evaluate the pairs by the rule of a run with a baseline."""

import json
import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from longctx.ci.gate.formats import Place, ResultsError, Sample
from longctx.ci.gate.load import Reading, Results, Source, load, shown_task
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.lengths import format_length
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records import (
    BaselineAnswer,
    Case,
    CaseResult,
    EngineFacts,
    FailureKind,
    Generation,
    Options,
    Outcome,
    Score,
)
from longctx.fixtures.records.report import RESULT_FILES
from longctx.fixtures.shown_text import known_names
from longctx.plugins.config.run_facts import Baseline, RunFacts
from longctx.plugins.report.document import RunSummary
from longctx.plugins.report.tables import counted, plural
from longctx.plugins.thresholds.records import COMPARED_KINDS, SHIPPED, Thresholds, load_thresholds
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation, evaluate
from longctx.plugins.verdicts.hypotheses import Scope

SUITE = "tasks"
"""The suite and the family of other programs' tasks."""
Value = TypeVar("Value")
MOST_NAMED = 5
Samples = Mapping[str, Sample]
"""The samples of a place by identity."""
# A mean over RULER is one over all its tasks.
RULER_TASKS = 13


class _Families(defaultdict[str, str]):
    """The families of all tasks that a policy may name; one that is no task of this suite is another program's."""

    def __contains__(self, task: object) -> bool:
        return True


@dataclass(slots=True, kw_only=True)
class Pairs:
    """The samples that both models have answered, as the results of cases."""

    results: list[CaseResult] = field(default_factory=list)
    short: set[str] = field(default_factory=set)
    """The ids of the cases of which the candidate lacks samples of the base."""
    notes: list[str] = field(default_factory=list)
    """Notes on samples that cannot be paired, and on unknown units of evidence."""


def compare(
    base: Source, candidate: Source, policy: str | Path | None, reading: Reading, files: Mapping[str, Path]
) -> RunSummary:
    """Read and pair two results, evaluate the gates, and return the summary from which all reports are made.

    `files` are the reports that are written. Raises ResultsError or ThresholdsError.
    """
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    results, other = load(base, reading, role="BASE"), load(candidate, reading, role="CANDIDATE")
    path = SHIPPED if policy is None else absolute(policy)
    known = [_first(samples).case for samples in (*results.samples.values(), *other.samples.values())]
    families = _Families(lambda: SUITE, {case.task: case.family for case in known if case is not None})
    thresholds = load_thresholds(path, known_tasks=families)
    pairs = pair(results, other)
    notes = [*thresholds.notes, *results.notes, *other.notes, *pairs.notes]
    if results.name == other.name and isinstance(base, str | Path):
        notes.append("BASE and CANDIDATE are the same, which is most often a wrong path")
    left_out = [gate.name for gate in thresholds.gates if gate.kind not in COMPARED_KINDS]
    if policy is None:
        thresholds = replace(thresholds, floors={})
    elif left_out:
        notes.append(f"gates on scores are for longctx run, and left out here: {', '.join(left_out)}")
    cases = tuple(result.case for result in pairs.results)
    thresholds = _with_places(thresholds, cases, results.name)
    seed = _first(_first(results.samples)).seed
    evaluation = _evaluation(cases, thresholds, pairs, seed)
    scope = evaluation.measured.scope
    options = Options(
        model=other.name, model_path=other.name, suite=SUITE, lengths=scope.lengths,
        samples=max(case.samples for case in cases), seed=scope.seed, engine=RESULT_FILES, thresholds=str(path),
        full=scope.full, baseline=results.name,
    )  # fmt: skip
    # Nothing but the place of its files is known of the model.
    model = Checkpoint(name=other.name, path=os.path.abspath(other.name), architecture=other.kind, fingerprint="")
    facts = EngineFacts(engine=RESULT_FILES, hardware=platform.node(), notes=tuple(notes))
    baseline = Baseline(name=results.name, fingerprint="", journal="", path=results.name)
    return RunSummary(
        run=RunFacts(options=options, checkpoint=model, cases=cases, thresholds=thresholds, baseline=baseline),
        evaluation=evaluation, facts=facts, execution=None, computed_samples=0, files=files, started=started,
        seconds=time.monotonic() - clock,
    )  # fmt: skip


def _with_places(thresholds: Thresholds, cases: Sequence[Case], base: str) -> Thresholds:
    """Return thresholds with the gates on changes, and with the tasks and the lengths of cases.

    A gate without a task is about all of another program. Raises ResultsError for a task that no case has.
    """
    others = tuple(dict.fromkeys(case.task for case in cases if case.suite == SUITE))
    floors = {shown_task(task): floor for task, floor in thresholds.floors.items()}
    gates, named = [], list(floors)
    for gate in thresholds.gates:
        if gate.kind in COMPARED_KINDS:
            is_of_all = not gate.tasks and gate.aspect is None and gate.category is None
            tasks = others if is_of_all else tuple(map(shown_task, gate.tasks))
            lengths = {case.length for case in cases if case.task in tasks}
            gates.append(replace(gate, tasks=tasks, lengths=gate.lengths or tuple(sorted(lengths))))
            named += tasks
    known = list(dict.fromkeys(case.task for case in cases))
    for task in named:
        if task not in known:
            raise ResultsError(f"--policy: {base} has no sample of {task}; {known_names(task, known)}")
    return replace(thresholds, gates=tuple(gates), floors=floors)


def _evaluation(cases: Sequence[Case], thresholds: Thresholds, pairs: Pairs, seed: int) -> Evaluation:
    """Return the verdicts. Without all samples of the base, a candidate of another program passes nothing."""
    aspects = {case.task: case.category for case in cases if case.suite == "ruler"}
    is_others = all(case.suite == SUITE for case in cases)
    scope = Scope(
        lengths=tuple(sorted({case.length for case in cases})),
        cases=cases,
        reference=thresholds.references["base"],
        ruler_aspects=aspects if len(aspects) == RULER_TASKS else {},
        claimed_length=None,
        seed=seed,
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
    verdicts = []
    for verdict in evaluation.verdicts:
        is_short = bool(short) and verdict.length in (None, *short)
        is_unfinished = verdict.verdict == "undecided" and verdict.because in ("too few samples", "short baseline")
        if is_short and (is_unfinished or (is_others and verdict.verdict == "pass")):
            verdict = structs.replace(verdict, verdict="undecided", because="short candidate")
        verdicts.append(verdict)
    return replace(evaluation, verdicts=tuple(verdicts))


def power_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line for every comparison: its pairs, and the smallest loss that they show."""
    for verdict in evaluation.verdicts:
        if verdict.kind == "regression" and verdict.change is not None:
            texts, seen = plural(verdict.haystacks, "text", "texts"), "no loss can be shown"
            if verdict.detectable is not None:
                seen = f"a loss of {verdict.detectable:.1f} points is seen with 80 %"
            yield f"{verdict.name}: {verdict.change.pairs:,} pairs on {texts}; {seen}"


def pair(base: Results, candidate: Results) -> Pairs:
    """Pair two results; raise ResultsError if nothing can be compared, or if inputs differ.

    A case that the candidate lacks is an error.
    """
    pairs, numbers, has_units = Pairs(), dict[str | int, int](), True
    for place, samples in base.samples.items():
        case, others = _case(place, samples), candidate.samples.get(place, {})
        if not others:
            error = f"{candidate.name} has no sample of it; measure it, or leave it out of {base.name}"
            pairs.results.append(CaseResult(case=case, outcomes=(), seconds=0.0, error=error))
            continue
        _check(case.id, samples, others, (base.name, candidate.name))
        for name, known, other in ((base.name, samples, others), (candidate.name, others, samples)):
            without = [str(sample.id) for identity, sample in known.items() if identity not in other]
            if without:
                count, ids = plural(len(without), "sample", "samples"), counted(without, MOST_NAMED)
                pairs.notes.append(f"{case.id}: {count} of {name} alone ({ids})")
        shared = [identity for identity in samples if identity in others]
        if len(shared) < len(samples):
            pairs.short.add(case.id)
        if _first(samples).case is None:
            # The number of the text of every pair is the same in all tasks.
            texts = []
            for identity in shared:
                unit = samples[identity].unit
                has_units = has_units and unit is not None
                text = f"{place} {identity}" if unit is None else unit
                texts.append(numbers.setdefault(text, len(numbers)))
            case = replace(case, samples=len(shared), texts=tuple(texts))
        else:
            # The samples of this suite are paired in the order of their indices.
            shared.sort(key=int)
        pairs.results.append(_result(case, [(samples[identity], others[identity]) for identity in shared]))
    new = [_case(place, own).id for place, own in candidate.samples.items() if place not in base.samples]
    if new:
        pairs.notes.append(f"tasks of {candidate.name} alone: {counted(new, MOST_NAMED)}")
    if not has_units:
        text = "nothing says which samples share a text, so each is one of its own; a column `cluster` says it"
        pairs.notes.insert(0, text)
    return pairs


def _check(case_id: str, samples: Samples, others: Samples, names: tuple[str, str]) -> None:
    """Raise ResultsError for the first sample in which the two models got other questions."""
    lone_ids = {sample.id for identity, sample in others.items() if identity not in samples}
    for identity, sample in samples.items():
        other = others.get(identity)
        if other is None:
            is_other = bool(sample.document) and sample.id in lone_ids
        else:
            is_other = "" not in (sample.prompt, other.prompt) and sample.prompt != other.prompt
        if is_other:
            raise ResultsError(
                f"{case_id}: sample {sample.id} has another prompt in {names[1]} than in {names[0]}; compare runs of "
                "the same prompts, with the same seed, examples and template"
            )
    if samples.keys().isdisjoint(others):
        ids = f"{_first(samples).id!r} in {names[0]}, {_first(others).id!r} in {names[1]}"
        raise ResultsError(f"{case_id}: the two have no id in common ({ids}); compare runs of the same samples")


def _case(place: Place, samples: Samples) -> Case:
    """Return the case of some samples: that of this suite, or one in the order of a file."""
    task, length = place
    return _first(samples).case or Case(
        id=f"{task}-{format_length(length)}" if length else task, suite=SUITE, category=SUITE, task=task,
        length=length, samples=len(samples), source="published", generation_tokens=1,
    )  # fmt: skip


def _result(case: Case, pairs: Sequence[tuple[Sample, Sample]]) -> CaseResult:
    """Return the candidate's outcomes with the base's scores, and the base's answers where the scores differ."""
    outcomes, flipped = [], []
    for number, (before, sample) in enumerate(pairs):
        index = number if sample.case is None else int(sample.id)
        generation = Generation(
            text=_text(sample), prompt_tokens=0, generated_tokens=None, computed_tokens=None, reused_tokens=None,
            finish="stop", seconds=0.0,
        )  # fmt: skip
        outcome = Outcome(
            index=index, score=Score(value=sample.score, failure=_failure(sample)), generation=generation,
            references=texts_of(sample.expected), depths=(),
        )  # fmt: skip
        outcomes.append(outcome)
        if sample.score != before.score and before.answer is not None:
            flipped.append(BaselineAnswer(index=index, text=_text(before), failure=_failure(before)))
    scores = tuple(before.score for before, _ in pairs)
    return CaseResult(case=case, outcomes=tuple(outcomes), seconds=0.0, baseline=scores, flipped=tuple(flipped))


def _failure(sample: Sample) -> FailureKind | None:
    if sample.score >= 1:
        return None
    return "empty" if sample.answer is not None and not _text(sample).strip() else "wrong"


def _text(sample: Sample) -> str:
    return "\n".join(texts_of(sample.answer))


def texts_of(value: object) -> tuple[str, ...]:
    """Return the expected answers or the answers of a file, one or a list of them, as texts."""
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ()
    values = value if isinstance(value, list | tuple) else [value]
    return tuple(one if isinstance(one, str) else json.dumps(one, default=str) for one in values)


def _first(samples: Mapping[Any, Value]) -> Value:
    return next(iter(samples.values()))
