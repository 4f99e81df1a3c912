"""Read two facts about a search from the journal: samples that flipped between checkpoints, and computed tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugins.journal import Entry, Journal, Subject, element_name
from plugins.journal.lines import decode_subject

ANSWER_CHARACTERS = 200


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
    """Number of answers, and of the tokens that a model computed for them."""

    samples: int = 0
    tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(samples=self.samples + other.samples, tokens=self.tokens + other.tokens)


class JournalStats:
    """Statistics over the journal entries of the cases in a report, by checkpoint fingerprint.

    A checkpoint's entries are read once, so entries written later are missing.
    """

    def __init__(self, report: Mapping[str, Any], samples: int):
        self._report = report
        self._samples = samples
        self._directory = Path(report["run"]["options"]["journal"])
        self._entries_by_fingerprint: dict[str, Mapping[str, Entry]] = {}

    def of(self, report: Mapping[str, Any]) -> JournalStats:
        """Return the same statistics for the cases of another report."""
        return JournalStats(report, self._samples)

    def cost(self, fingerprint: str, cases: Sequence[str]) -> Cost:
        """Return the cost of all of a checkpoint's answers to these cases, in whichever run it gave them."""
        generations = [entry.outcome.generation for entry in self._entries(fingerprint, cases)]
        return Cost(samples=len(generations), tokens=sum(generation.computed_tokens for generation in generations))

    def difference(self, before: str, after: str, cases: Sequence[str]) -> float:
        """Return the mean score of `after` minus that of `before`, in points, over the samples of both; 0 for none."""
        scores_before = {entry.element: entry.outcome.score.value for entry in self._entries(before, cases)}
        differences = [
            entry.outcome.score.value - scores_before[entry.element]
            for entry in self._entries(after, cases)
            if entry.element in scores_before
        ]
        return 100 * sum(differences) / len(differences) if differences else 0.0

    def flips(self, before: str, after: str, cases: Sequence[str]) -> tuple[Flip, ...]:
        """Return the samples that both checkpoints answered and that have different scores."""
        entries_before = {entry.element: entry for entry in self._entries(before, cases)}
        return tuple(
            _flip(entry_before, entry)
            for entry in self._entries(after, cases)
            if (entry_before := entries_before.get(entry.element)) is not None
            and entry_before.outcome.score.value != entry.outcome.score.value
        )

    def _entries(self, fingerprint: str, cases: Sequence[str]) -> list[Entry]:
        if fingerprint not in self._entries_by_fingerprint:
            self._entries_by_fingerprint[fingerprint] = self._read(fingerprint)
        entries, run = self._entries_by_fingerprint[fingerprint], self._report["run"]
        names = (
            element_name(run["samples"], case.get("version", ""), run["seed"], case["task"], case["length"], index)
            for case in self._report["cases"]
            if case["id"] in cases
            for index in range(max(self._samples, case["planned"]))
        )
        return [entries[name] for name in names if name in entries]

    def _read(self, fingerprint: str) -> Mapping[str, Entry]:
        """Return the checkpoint's entries, computed as the report's model if there are such, else in any other way."""
        subjects = [
            subject
            for file in sorted(self._directory.glob("*/subject.json"))
            if (subject := decode_subject(file.read_bytes())) is not None and subject.fingerprint == fingerprint
        ]
        same_execution = [
            subject for subject in subjects if dict(subject.execution) == self._report["model"]["execution"]
        ]
        return self._read_subjects(*(same_execution or subjects)[:1])

    def _read_subjects(self, *subjects: Subject) -> Mapping[str, Entry]:
        entries: dict[str, Entry] = {}
        for subject in subjects:
            journal = Journal(self._directory, subject)
            journal.refresh()
            entries |= journal.entries
        return entries


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
