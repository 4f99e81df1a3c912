"""Pair the samples of two results, and describe the pairs as cases, of which the verdicts of a run are made."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from longctx.ci.gate.load import Place, Results
from longctx.ci.gate.records import ResultsError, ScoredSample
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import BaselineAnswer, Case, CaseResult, Generation, Outcome, Score
from longctx.fixtures.records.results import FailureKind
from longctx.plugins.report.tables import counted, plural

SUITE = "tasks"
"""The suite and the family of other programs' tasks."""
MOST_NAMED = 5
MOST_CHARACTERS = 90
Samples = Mapping[str, ScoredSample]
"""The samples of a place by identity."""


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
    for task in required:
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
