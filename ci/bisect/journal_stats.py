"""Read from the journal which samples flipped between two checkpoints, and the scores of one."""

from __future__ import annotations

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


class JournalStats:
    """Statistics over the journal entries of the cases in a report, by checkpoint fingerprint.

    A checkpoint's entries are read once, so entries written later are missing.
    """

    def __init__(self, report: JsonReport, samples: int):
        self._report = report
        self._samples = samples
        self._directory = Path(report.run.journal)
        self._journals: dict[str, Journal | None] = {}
        """The journal of each fingerprint; None if it has no results."""

    def scores(self, fingerprint: str, cases: Sequence[str]) -> SampleScores:
        """Return the scores of all samples of these cases that a checkpoint answered."""
        return {sample: entry.score for sample, entry in self._entries(fingerprint, cases).items()}

    def flips(self, before: str, after: str, cases: Sequence[str]) -> tuple[Flip, ...]:
        """Return the samples that both checkpoints answered and that have different scores."""
        known = self._entries(before, cases)
        flips = []
        for sample, entry in self._entries(after, cases).items():
            if sample in known and known[sample].score != entry.score:
                flips.append(_flip(known[sample], entry))
        return tuple(flips)

    def _entries(self, fingerprint: str, cases: Sequence[str]) -> dict[tuple[str, int], Entry]:
        """Return a checkpoint's results for these cases, by case id and index."""
        run, journal = self._report.run, self._journal(fingerprint)
        entries = {}
        for case in self._report.cases:
            if case.id in cases:
                for index in range(max(self._samples, case.planned)):
                    key = sample_key(run.samples, case.version, run.seed, case.task, case.length, index)
                    if journal is not None and key in journal.entries:
                        entries[case.id, index] = journal.entries[key]
        return entries

    def _journal(self, fingerprint: str) -> Journal | None:
        """Read the checkpoint's results, computed as the report's model if there are such, else in any other way."""
        if fingerprint in self._journals:
            return self._journals[fingerprint]
        stored = [decode_record(file.read_bytes(), Subject) for file in sorted(self._directory.glob("*/subject.json"))]
        subjects = [subject for subject in stored if subject is not None and subject.fingerprint == fingerprint]
        same_execution = [subject for subject in subjects if dict(subject.execution) == self._report.model.execution]
        journal = None
        if subjects:
            journal = Journal(self._directory, (same_execution or subjects)[0])
            journal.refresh()
        self._journals[fingerprint] = journal
        return journal


def _flip(before: Entry, after: Entry) -> Flip:
    return Flip(
        case=after.case,
        index=after.index,
        expected=after.outcome.references,
        depth=after.outcome.depths[0] if after.outcome.depths else None,
        before=before.outcome.score.value,
        after=after.outcome.score.value,
        answer_before=before.outcome.generation.text[:ANSWER_CHARACTERS],
        answer_after=after.outcome.generation.text[:ANSWER_CHARACTERS],
    )
