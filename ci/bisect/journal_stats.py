"""Read from the journal which samples flipped between two checkpoints, and the scores of one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.journal import Entry, Journal, Subject, sample_key
from longctx.plugins.journal.lines import decode_record

ANSWER_CHARACTERS = 200

SampleScores = Mapping[tuple[str, int], float]
"""Scores, 0 to 1, by case id and index of the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A sample that two checkpoints score differently."""

    case: str
    index: int
    expected: tuple[str, ...]
    """The sample's references."""
    depth: float | None
    """Relative position of the first queried unit in the context, 0 to 1; None for tasks without such a unit."""
    before: float
    """Score of the earlier checkpoint, 0 to 1."""
    after: float
    """Score of the later checkpoint, 0 to 1."""
    answer_before: str
    """First 200 characters of the earlier checkpoint's answer."""
    answer_after: str
    """First 200 characters of the later checkpoint's answer."""


Answers = Mapping[tuple[str, int], Entry]
"""The results of one checkpoint, by case id and index of the sample."""


def stored_answers(report: JsonReport, fingerprint: str, cases: Sequence[str], samples: int = 0) -> Answers:
    """Return the results of a checkpoint for the planned samples of a report's cases, or for `samples` of each.

    They are those computed as the report's model if there are such, else in any other way.
    """
    run = report.run
    folder = Path(run.journal)
    stored = [decode_record(file.read_bytes(), Subject) for file in sorted(folder.glob("*/subject.json"))]
    subjects = [subject for subject in stored if subject is not None and subject.fingerprint == fingerprint]
    if not subjects:
        return {}
    same_execution = [subject for subject in subjects if dict(subject.execution) == report.model.execution]
    journal = Journal(folder, (same_execution or subjects)[0])
    journal.refresh()
    answers = {}
    for case in report.cases:
        if case.id in cases:
            for index in range(max(samples, case.planned)):
                key = sample_key(run.samples, case.version, run.seed, case.task, case.length, index)
                if key in journal.entries:
                    answers[case.id, index] = journal.entries[key]
    return answers


def scores_of(answers: Answers) -> SampleScores:
    return {sample: entry.score for sample, entry in answers.items()}


def flipped(before: Answers, after: Answers) -> tuple[Flip, ...]:
    """Return the samples that both checkpoints answered and that have different scores."""
    flips = []
    for sample, entry in after.items():
        known, outcome = before.get(sample), entry.outcome
        if known is not None and known.score != entry.score:
            flip = Flip(
                case=entry.case, index=entry.index, expected=outcome.references,
                depth=outcome.depths[0] if outcome.depths else None, before=known.score, after=entry.score,
                answer_before=known.outcome.generation.text[:ANSWER_CHARACTERS],
                answer_after=outcome.generation.text[:ANSWER_CHARACTERS],
            )  # fmt: skip
            flips.append(flip)
    return tuple(flips)
