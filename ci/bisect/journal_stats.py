"""Read two facts about a search from the journal: samples that flipped between checkpoints, and computed tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Number of answers, and of the tokens that a model computed."""

    samples: int = 0
    tokens: int = 0
    """Tokens computed for the answers."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(samples=self.samples + other.samples, tokens=self.tokens + other.tokens)


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

    def of(self, report: JsonReport) -> JournalStats:
        """Return the same statistics for the cases of another report."""
        return JournalStats(report, self._samples)

    def cost(self, fingerprint: str, cases: Sequence[str]) -> Cost:
        """Return the cost of all of a checkpoint's results for these cases, in whichever run it gave them."""
        entries = self._entries(fingerprint, cases)
        return Cost(
            samples=len(entries), tokens=sum(entry.outcome.generation.computed_tokens or 0 for entry in entries)
        )

    def scores(self, fingerprint: str, cases: Sequence[str]) -> SampleScores:
        """Return the scores of all samples of these cases that a checkpoint answered."""
        journal = self._journal(fingerprint)
        entries = {} if journal is None else journal.entries
        return {sample: entries[key].score for sample, key in self._keys(cases) if key in entries}

    def flips(self, before: str, after: str, cases: Sequence[str]) -> tuple[Flip, ...]:
        """Return the samples that both checkpoints answered and that have different scores."""
        known = {entry.key: entry for entry in self._entries(before, cases)}
        flips = []
        for entry in self._entries(after, cases):
            entry_before = known.get(entry.key)
            if entry_before is not None and entry_before.score != entry.score:
                flips.append(_flip(entry_before, entry))
        return tuple(flips)

    def _entries(self, fingerprint: str, cases: Sequence[str]) -> list[Entry]:
        journal = self._journal(fingerprint)
        entries = {} if journal is None else journal.entries
        return [entries[key] for _, key in self._keys(cases) if key in entries]

    def _keys(self, cases: Sequence[str]) -> Iterator[tuple[tuple[str, int], str]]:
        """Yield the case ids and indices of all samples of these cases, with their keys."""
        run = self._report.run
        for case in self._report.cases:
            if case.id in cases:
                for index in range(max(self._samples, case.planned)):
                    key = sample_key(run.samples, case.version, run.seed, case.task, case.length, index)
                    yield (case.id, index), key

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
