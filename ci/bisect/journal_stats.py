"""What the journal holds of a question: which samples flipped between two checkpoints, and what answers cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugins.journal import Entry, Journal, Subject, element_name
from plugins.journal.lines import decode_subject

SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A sample that two checkpoints score differently; scores are 0 to 1, texts as answered."""

    case: str
    index: int
    expected: tuple[str, ...]
    depth: float | None
    before: float
    after: float
    answer_before: str
    answer_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Answers and the tokens that a model computed for them."""

    samples: int = 0
    tokens: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(samples=self.samples + other.samples, tokens=self.tokens + other.tokens)


class Results:
    """The journal as a report's run used it; `samples` of each case are looked for."""

    def __init__(self, report: Mapping[str, Any], samples: int):
        self._report = report
        self._samples = samples
        self._directory = Path(report["run"]["options"]["journal"])
        self._known: dict[str, Mapping[str, Entry]] = {}

    def of(self, report: Mapping[str, Any]) -> Results:
        """The same for the cases of another report."""
        return Results(report, self._samples)

    def cost(self, fingerprint: str, cases: Sequence[str]) -> Cost:
        """Of all answers of a checkpoint to these cases, whoever asked."""
        generations = [entry.outcome.generation for entry in self._entries(fingerprint, cases)]
        return Cost(samples=len(generations), tokens=sum(each.computed_tokens for each in generations))

    def difference(self, before: str, after: str, cases: Sequence[str]) -> float:
        """Mean score of `after` minus that of `before`, in points, over the samples that both answered; 0 of none."""
        known = {entry.element: entry.outcome.score.value for entry in self._entries(before, cases)}
        found = [
            entry.outcome.score.value - known[entry.element]
            for entry in self._entries(after, cases)
            if entry.element in known
        ]
        return 100 * sum(found) / len(found) if found else 0.0

    def flips(self, before: str, after: str, cases: Sequence[str]) -> tuple[Flip, ...]:
        """Samples that both checkpoints (by fingerprint) answered and that count differently."""
        known = {entry.element: entry for entry in self._entries(before, cases)}
        return tuple(
            Flip(
                case=now.case,
                index=now.index,
                expected=now.outcome.references,
                depth=now.outcome.depths[0] if now.outcome.depths else None,
                before=was.outcome.score.value,
                after=now.outcome.score.value,
                answer_before=was.outcome.generation.text[:SHOWN_CHARACTERS],
                answer_after=now.outcome.generation.text[:SHOWN_CHARACTERS],
            )
            for now in self._entries(after, cases)
            if (was := known.get(now.element)) is not None and was.outcome.score.value != now.outcome.score.value
        )

    def _entries(self, fingerprint: str, cases: Sequence[str]) -> list[Entry]:
        if fingerprint not in self._known:
            self._known[fingerprint] = self._read(fingerprint)
        entries, run = self._known[fingerprint], self._report["run"]
        names = (
            element_name(run["samples"], case.get("version", ""), run["seed"], case["task"], case["length"], index)
            for case in self._report["cases"]
            if case["id"] in cases
            for index in range(max(self._samples, case["planned"]))
        )
        return [entries[name] for name in names if name in entries]

    def _read(self, fingerprint: str) -> Mapping[str, Entry]:
        """Of the subject that computes as the report's model does; of any, where there is no such."""
        subjects = [
            subject
            for file in sorted(self._directory.glob("*/subject.json"))
            if (subject := decode_subject(file.read_bytes())) is not None and subject.fingerprint == fingerprint
        ]
        alike = [each for each in subjects if dict(each.execution) == self._report["model"]["execution"]]
        return self._of(*(alike or subjects)[:1])

    def _of(self, *subjects: Subject) -> Mapping[str, Entry]:
        found: dict[str, Entry] = {}
        for subject in subjects:
            journal = Journal(self._directory, subject)
            journal.refresh()
            found |= journal.entries
        return found
