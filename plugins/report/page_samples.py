"""The samples that a page carries: compact rows, first the flipped and the wrong samples, within a size limit.

All texts of models and files are made visible here, so the page can show the rows as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from longctx.fixtures.records import Case, CaseResult
from longctx.fixtures.shown_text import visible
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.sample_files import PairedSample, paired_samples

BUDGET_BYTES = 5_000_000
RIGHT_PER_CASE = 3
ANSWER_CHARACTERS, BEGINNING_CHARACTERS = 600, 400
"""A longer answer is cut to its beginning and one more part: its end, or the surroundings of a reference."""

REFERENCES = 12
REFERENCES_CHARACTERS = 480
EXCERPT_FIELDS = ("question", "head", "before", "needle", "after", "tail")
EXCERPT_CHARACTERS = 480


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The rows that fit into the page, and the counts of all samples."""

    rows: tuple[Mapping[str, Any], ...]
    """One row per sample, as `_row` describes it."""

    wrong: int
    """The number of samples that score below 100."""

    flipped: int
    """The number of samples whose score differs from the baseline's."""

    total: int
    wrong_shown: int
    flipped_shown: int

    @property
    def left_out(self) -> int:
        """The number of wrong samples that are not among the rows."""
        return self.wrong - self.wrong_shown


def samples_of(
    cases: Sequence[Case], results: Mapping[str, CaseResult], *, budget_bytes: int = BUDGET_BYTES
) -> Samples:
    """Return the rows that fit into the budget: wrong samples before right ones, then by case and index.

    The cases take turns, so every case gets its share of the budget.
    """
    measured = [results[case.id] for case in cases if case.id in results]
    rows = _fitting(measured, budget_bytes)
    order = {(case.task, case.length): index for index, case in enumerate(cases)}
    rows.sort(key=lambda row: (row["score"] == 100, order[row["task"], row["length"]], row["index"]))
    candidates = [candidate for result in results.values() for candidate in paired_samples(result)]
    return Samples(
        rows=tuple(rows),
        wrong=sum(candidate.is_wrong for candidate in candidates),
        flipped=sum(candidate.is_flipped for candidate in candidates),
        total=len(candidates),
        wrong_shown=sum(row["score"] < 100 for row in rows),
        flipped_shown=sum("flip" in row for row in rows),
    )


def _fitting(results: Sequence[CaseResult], budget_bytes: int) -> list[dict[str, Any]]:
    """Return rows of all results in turn until the budget is used up."""
    rows: list[dict[str, Any]] = []
    left = budget_bytes
    for turn in zip_longest(*map(_by_importance, results)):
        for candidate in turn:
            if candidate is None:
                continue
            row = _row(candidate)
            text = json.dumps(row, separators=(",", ":"))
            # The page has a comma after the row, and a character of markup takes six bytes.
            left -= len(text) + 5 * sum(map(text.count, "<>&")) + 1
            if left < 0:
                return rows
            rows.append(row)
    return rows


def _by_importance(result: CaseResult) -> Iterator[PairedSample]:
    """Yield the flipped samples, then the other wrong ones, then a few right ones.

    Within these groups, samples come first that can show the baseline's answer or an excerpt of their context.
    """
    candidates = paired_samples(result)
    unflipped = [candidate for candidate in candidates if not candidate.is_flipped]
    unflipped.sort(key=lambda candidate: candidate.outcome.excerpt is None)
    flipped = [candidate for candidate in candidates if candidate.is_flipped]
    flipped.sort(key=lambda candidate: candidate.baseline_answer is None)
    wrong = [candidate for candidate in unflipped if candidate.is_wrong]
    right = [candidate for candidate in unflipped if not candidate.is_wrong][:RIGHT_PER_CASE]
    yield from (*flipped, *wrong, *right)


def _row(candidate: PairedSample) -> dict[str, Any]:
    """Return a sample in the form that the page's script takes. Scores are 0 to 100; absent values have no key.

    `credits` are the references' parts of the score, -1 where a reference has none; `more_references` counts those
    that are left out. `_answer` describes the keys of an answer. `flip` holds the baseline's score and answer.
    """
    outcome, score = candidate.outcome, candidate.outcome.score
    references = outcome.references[:REFERENCES]
    longest = REFERENCES_CHARACTERS // max(1, len(references))
    row: dict[str, Any] = {
        "task": candidate.case.task,
        "length": candidate.case.length,
        "index": outcome.index,
        "score": round(to_points(score.value), 2),
        "expected": [visible(reference, longest) for reference in references],
        "credits": [round(score.parts.get(reference, -1.0), 3) for reference in references],
        **_answer(outcome.generation.text, outcome.references),
    }
    if depths := [round(depth, 3) for depth in outcome.depths[:REFERENCES]]:
        row["depth"] = depths[0]
        if len(outcome.depths) > 1:
            row["depths"] = depths
    if len(outcome.references) > REFERENCES:
        row["more_references"] = len(outcome.references) - REFERENCES
    if score.failure:
        row["failure"] = score.failure
    if outcome.excerpt is not None:
        row["excerpt"] = {
            name: visible(text, EXCERPT_CHARACTERS)
            for name in EXCERPT_FIELDS
            if (text := getattr(outcome.excerpt, name))
        }
    if candidate.is_flipped:
        flip: dict[str, Any] = {"score": round(to_points(candidate.baseline_score or 0.0), 2)}
        answer = candidate.baseline_answer
        if answer is not None:
            flip |= {**_answer(answer.text, outcome.references), "failure": answer.failure}
        row["flip"] = flip
    return row


def _answer(text: str, references: Sequence[str]) -> dict[str, Any]:
    """Return an answer, or two parts of a long one.

    `answer` is the whole answer or its beginning, `ending` the second part. `omitted` and `omitted_after` are the
    numbers of characters left out before and after the second part.
    """
    if len(text) <= ANSWER_CHARACTERS:
        return {"answer": visible(text)}
    size = ANSWER_CHARACTERS - BEGINNING_CHARACTERS
    start = len(text) - size
    # A model that thinks aloud answers at the end, so the end is preferred to an earlier reference.
    if _position(text[start:], references) is None:
        position = _position(text, references)
        if position is not None and position >= BEGINNING_CHARACTERS - 40:
            start = max(BEGINNING_CHARACTERS, min(start, position - size // 4))
    parts: dict[str, Any] = {"answer": visible(text, BEGINNING_CHARACTERS), "ending": visible(text[start:], size)}
    counts = {"omitted": start - BEGINNING_CHARACTERS, "omitted_after": len(text) - start - size}
    return parts | {name: count for name, count in counts.items() if count}


def _position(text: str, references: Sequence[str]) -> int | None:
    """Return the position of the first reference in the text, ignoring case; None if there is none."""
    alternatives = "|".join(re.escape(reference) for reference in references if reference)
    match = re.search(alternatives, text, re.IGNORECASE) if alternatives else None
    return match.start() if match else None
