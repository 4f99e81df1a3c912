"""Pair the samples of two results, and describe the pairs as cases, of which the verdicts of a run are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from longctx.ci.gate.load import Results
from longctx.ci.gate.records import ResultsError, ScoredSample
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import BaselineAnswer, Case, CaseResult, Generation, Outcome, Score
from longctx.fixtures.records.results import FailureKind
from longctx.plugins.report.tables import counted, plural

SUITE = "tasks"
"""The suite and the family of other programs' tasks."""
MOST_NAMED = 5
MOST_CHARACTERS = 90
Place = tuple[str, int]
"""A task and a length in tokens."""
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
    notes = [*base.notes, *candidate.notes]
    names = _shown_names([task for task, _ in (*base.samples, *candidate.samples)])
    base, candidate = _renamed(base, names), _renamed(candidate, names)
    units: dict[str, int] = {}
    results, short, lone, unknown = [], set(), [], False
    for place, samples in base.samples.items():
        case_id, others = _case_id(place, samples), candidate.samples.get(place, {})
        if not others:
            error = f"{candidate.name} has no sample of it; measure it, or leave it out of {base.name}"
            results.append(_failed(_described(place, samples, ()), error))
            continue
        shared = sorted((identity for identity in samples if identity in others), key=_index(samples))
        _check(place, samples, others, shared, (base.name, candidate.name))
        missing, added = [one for one in samples if one not in others], [one for one in others if one not in samples]
        if missing:
            short.add(case_id)
        for name, known, without in ((base.name, samples, missing), (candidate.name, others, added)):
            if without:
                ids = counted([known[one].id for one in without], MOST_NAMED)
                lone.append(f"{case_id}: {plural(len(without), 'sample', 'samples')} of {name} alone ({ids})")
        unknown = unknown or not all(samples[identity].unit for identity in shared)
        case = _described(
            place, {identity: samples[identity] for identity in shared}, _units(place, samples, shared, units)
        )
        results.append(_result(case, shared, base, candidate, place))
    new = [_case_id(place, samples) for place, samples in candidate.samples.items() if place not in base.samples]
    if new:
        lone.append(f"tasks of {candidate.name} alone: {counted(new, MOST_NAMED)}")
    known_tasks = {task for task, _ in base.samples}
    for task in required:
        if names.get(task, task) not in known_tasks:
            like = replace(results[0].case, id=task, task=_shown_names([task])[task], texts=(), only=())
            results.append(_failed(like, f"{base.name} has no sample of it; measure it"))
    if unknown:
        notes.append("nothing says which samples share a text, so each is one of its own; a column `cluster` says it")
    return Pairs(
        results=tuple(results), short=frozenset(short), names=names, seed=_seed(base), notes=(*notes, *lone)
    )  # fmt: skip


def _seed(results: Results) -> int:
    return next((sample.seed for samples in results.samples.values() for sample in samples.values()), 0)


def _check(place: Place, samples: Samples, others: Samples, shared: Sequence[str], names: tuple[str, str]) -> None:
    """Raise ResultsError for the first sample of which the two models were asked something else."""
    case_id = _case_id(place, samples)
    for identity in shared:
        prompt, other = samples[identity].prompt, others[identity].prompt
        if prompt and other and prompt != other:
            raise ResultsError(_otherwise(samples[identity].id, case_id, names))
    by_id = {sample.id for identity, sample in others.items() if identity not in samples}
    for identity, sample in samples.items():
        if identity not in others and sample.document and sample.id in by_id:
            raise ResultsError(_otherwise(sample.id, case_id, names))
    if not shared:
        raise ResultsError(f"{case_id}: no sample of {names[0]} is in {names[1]}; compare runs of the same samples")


def _otherwise(sample_id: str, case_id: str, names: tuple[str, str]) -> str:
    return (
        f"{case_id}: sample {sample_id} has another prompt in {names[1]} than in {names[0]}; compare runs of the same "
        "prompts, with the same seed, examples and template"
    )


def _index(samples: Samples) -> Callable[[str], int]:
    """Return the order of the pairs: that of this suite's samples, or that of the base's file."""
    order = {identity: number for number, identity in enumerate(samples)}
    is_own = any(sample.case is not None for sample in samples.values())
    return int if is_own else order.__getitem__


def _units(place: Place, samples: Samples, shared: Sequence[str], numbers: dict[str, int]) -> tuple[int, ...]:
    """Return the number of the text of every pair, the same in all tasks."""
    units = [samples[identity].unit or f"{place} {identity}" for identity in shared]
    return tuple(numbers.setdefault(unit, len(numbers)) for unit in units)


def _case_id(place: Place, samples: Samples) -> str:
    case = next((sample.case for sample in samples.values()), None)
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
    return replace(
        results,
        samples={(names[task], length): known for (task, length), known in results.samples.items()},
        scores={(names[task], length): known for (task, length), known in results.scores.items()},
    )


def _described(place: Place, samples: Samples, units: tuple[int, ...]) -> Case:
    """Return the case of some pairs: that of this suite, with the indices that are there, or one in their order."""
    first = next(iter(samples.values()), None)
    if first is not None and first.case is not None:
        return first.case
    return Case(
        id=_case_id(place, samples), suite=SUITE, category=SUITE, task=place[0], length=place[1],
        samples=max(1, len(samples)), source="published", generation_tokens=1, texts=units,
    )  # fmt: skip


def _failed(case: Case, error: str) -> CaseResult:
    return CaseResult(case=case, outcomes=(), seconds=0.0, error=error)


def _result(case: Case, shared: Sequence[str], base: Results, candidate: Results, place: Place) -> CaseResult:
    """Return the candidate's outcomes with the base's scores, and the base's answers where the scores differ."""
    outcomes, scores, flipped = [], [], []
    for number, identity in enumerate(shared):
        index = number if case.suite == SUITE else int(identity)
        sample, other = candidate.samples[place][identity], base.samples[place][identity]
        score, before = candidate.scores[place][identity], base.scores[place][identity]
        outcomes.append(_outcome(index, sample, score))
        scores.append(before)
        if score != before and other.answer is not None:
            flipped.append(BaselineAnswer(index=index, text=other.answer, failure=_failure(before, other.answer)))
    return CaseResult(case=case, outcomes=tuple(outcomes), seconds=0.0, baseline=tuple(scores), flipped=tuple(flipped))


def _outcome(index: int, sample: ScoredSample, score: float) -> Outcome:
    generation = Generation(
        text=sample.answer or "", prompt_tokens=0, generated_tokens=None, computed_tokens=None, reused_tokens=None,
        finish="stop", seconds=0.0,
    )  # fmt: skip
    return Outcome(
        index=index,
        score=Score(value=score, failure=_failure(score, sample.answer)),
        generation=generation,
        references=sample.expected,
        depths=(),
    )


def _failure(score: float, answer: str | None) -> FailureKind | None:
    if score >= 1:
        return None
    return "empty" if answer is not None and not answer.strip() else "wrong"
