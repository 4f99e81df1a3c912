"""The samples that a page carries: compact rows, first the flipped and the wrong samples, within a size limit.

All texts of models and files are made visible here, so the page can show the rows as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
"""A longer answer is cut to its beginning and its end."""

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
    by_case = [paired_samples(results[case.id]) for case in cases if case.id in results]
    rows = _fitting(by_case, budget_bytes)
    order = {(case.task, case.length): index for index, case in enumerate(cases)}
    rows.sort(key=lambda row: (row["score"] == 100, order[row["task"], row["length"]], row["index"]))
    samples = [sample for samples in by_case for sample in samples]
    return Samples(
        rows=tuple(rows),
        wrong=sum(sample.is_wrong for sample in samples),
        flipped=sum(sample.is_flipped for sample in samples),
        total=len(samples),
        wrong_shown=sum(row["score"] < 100 for row in rows),
        flipped_shown=sum("flip" in row for row in rows),
    )


def _fitting(by_case: Sequence[Sequence[PairedSample]], budget_bytes: int) -> list[dict[str, Any]]:
    """Return rows of all cases in turn until the budget is used up."""
    rows: list[dict[str, Any]] = []
    left = budget_bytes
    for turn in zip_longest(*map(_by_importance, by_case)):
        for sample in turn:
            if sample is None:
                continue
            row = _row(sample)
            text = json.dumps(row, separators=(",", ":"))
            # The page has a comma after the row, and a character of markup takes six bytes.
            left -= len(text) + 5 * sum(map(text.count, "<>&")) + 1
            if left < 0:
                return rows
            rows.append(row)
    return rows


def _by_importance(samples: Sequence[PairedSample]) -> list[PairedSample]:
    """Return the flipped samples, then the other wrong ones, then a few right ones.

    Within these groups, samples come first that can show the baseline's answer or an excerpt of their context.
    """
    flipped = [sample for sample in samples if sample.is_flipped]
    others = [sample for sample in samples if not sample.is_flipped]
    flipped.sort(key=lambda sample: sample.baseline_answer is None)
    others.sort(key=lambda sample: sample.outcome.excerpt is None)
    right = [sample for sample in others if not sample.is_wrong]
    return [*flipped, *(sample for sample in others if sample.is_wrong), *right[:RIGHT_PER_CASE]]


def _row(sample: PairedSample) -> dict[str, Any]:
    """Return a sample in the form that the page's script takes. Scores are 0 to 100; absent values have no key.

    `credits` are the references' parts of the score, -1 where a reference has none; `more_references` counts those
    that are left out. `_answer` describes the keys of an answer. `flip` holds the baseline's score and answer.
    """
    outcome, score = sample.outcome, sample.outcome.score
    references = outcome.references[:REFERENCES]
    longest = REFERENCES_CHARACTERS // max(1, len(references))
    row: dict[str, Any] = {
        "task": sample.case.task,
        "length": sample.case.length,
        "index": outcome.index,
        "score": round(to_points(score.value), 2),
        "expected": [visible(reference, longest) for reference in references],
        "credits": [round(score.parts.get(reference, -1.0), 3) for reference in references],
        **_answer(outcome.generation.text),
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
    if sample.is_flipped:
        flip: dict[str, Any] = {"score": round(to_points(sample.baseline_score or 0.0), 2)}
        answer = sample.baseline_answer
        if answer is not None:
            flip |= {**_answer(answer.text), "failure": answer.failure}
        row["flip"] = flip
    return row


def _answer(text: str) -> dict[str, Any]:
    """Return an answer; of a long one the beginning, the `ending`, and how many characters are `omitted` between."""
    if len(text) <= ANSWER_CHARACTERS:
        return {"answer": visible(text)}
    # A model that thinks aloud answers at the end.
    ending = text[BEGINNING_CHARACTERS - ANSWER_CHARACTERS :]
    parts = {"answer": visible(text, BEGINNING_CHARACTERS), "ending": visible(ending, len(ending))}
    return parts | {"omitted": len(text) - ANSWER_CHARACTERS}
