"""Samples as compact rows that a page can filter: the wrong and the flipped ones first, within a size.

What models and files said is made visible here, once; rows hold nothing that a page would have to clean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from fixtures.records import BaselineAnswer, Case, CaseResult, Excerpt, Outcome
from plugins.report.escape import visible

BUDGET_BYTES = 5_000_000
RIGHT_PER_CASE = 3
EXCERPTS_PER_CASE = 6
# Of a longer answer its beginning and its end, or where a reference stands that is in neither.
ANSWER_CHARACTERS, BEGINNING_CHARACTERS = 600, 400
REFERENCES = 12
REFERENCES_CHARACTERS = 480


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The rows that fit, and how many there were: below 100, flipped against a baseline, and in all."""

    rows: tuple[Mapping[str, Any], ...]
    wrong: int
    flipped: int
    all: int
    wrong_shown: int
    flipped_shown: int

    @property
    def left_out(self) -> int:
        """How many wrong samples are not among the rows."""
        return self.wrong - self.wrong_shown


def samples_of(
    cases: Sequence[Case], results: Mapping[str, CaseResult], *, budget_bytes: int = BUDGET_BYTES
) -> Samples:
    """Rows of all cases in turn, so that each has its share of the budget; the wrong ones first, by case and index."""
    queues = [_in_order(results[case.id]) for case in cases if case.id in results]
    chosen: list[dict[str, Any]] = []
    left = budget_bytes
    for found in (each for rank in zip_longest(*queues) for each in rank if each is not None):
        row = _row(*found)
        left -= _size(row)
        if left < 0:
            break
        chosen.append(row)
    places = {case.id: at for at, case in enumerate(cases)}
    by_id = {case.id: (case.task, case.length) for case in cases}
    chosen.sort(key=lambda row: (row["score"] == 100, places[row["case"]], row["index"]))
    for row in chosen:
        row["task"], row["length"] = by_id[row.pop("case")]
    pairs = [(outcome, other) for result in results.values() for outcome, other in _pairs(result)]
    return Samples(
        rows=tuple(chosen),
        wrong=sum(outcome.score.value < 1 for outcome, _ in pairs),
        flipped=sum(other is not None and other != outcome.score.value for outcome, other in pairs),
        all=len(pairs),
        wrong_shown=sum(row["score"] < 100 for row in chosen),
        flipped_shown=sum("flip" in row for row in chosen),
    )


def _size(row: Mapping[str, Any]) -> int:
    """Bytes in the page, where each sign of markup takes six."""
    text = json.dumps(row, separators=(",", ":"))
    return len(text) + 5 * sum(map(text.count, "<>&")) + 1


def _in_order(result: CaseResult) -> Iterator[tuple[Case, Outcome, float | None, BaselineAnswer | None, bool]]:
    """What is worth most to a reader first: what flipped, what is wrong, a few that are right."""
    answers = {answer.index: answer for answer in result.flipped}
    pairs = _pairs(result)
    # Those for which the baseline's answer is at hand come first.
    flipped = [pair for pair in pairs if pair[1] not in (None, pair[0].score.value)]
    flipped.sort(key=lambda pair: pair[0].index not in answers)
    rest = [pair for pair in pairs if pair[1] in (None, pair[0].score.value)]
    wrong = [pair for pair in rest if pair[0].score.value < 1]
    # One that says what was asked comes first.
    wrong.sort(key=lambda pair: pair[0].excerpt is None)
    right = [pair for pair in rest if pair[0].score.value == 1]
    right = sorted(right, key=lambda pair: pair[0].excerpt is None)[:RIGHT_PER_CASE]
    for at, (outcome, other) in enumerate((*flipped, *wrong, *right)):
        excerpted = at < EXCERPTS_PER_CASE or at >= len(flipped) + len(wrong)
        yield result.case, outcome, other, answers.get(outcome.index), excerpted


def _pairs(result: CaseResult) -> list[tuple[Outcome, float | None]]:
    """Every outcome with the baseline's score, None where there is none."""
    return list(
        zip(result.outcomes, (*result.baseline, *[None] * (len(result.outcomes) - len(result.baseline))), strict=False)
    )


def _row(
    case: Case, outcome: Outcome, other: float | None, answer: BaselineAnswer | None, excerpted: bool
) -> dict[str, Any]:
    """A sample as the page's script takes it; what it does not have is left out. Scores are 0 to 100."""
    text, score = outcome.generation.text, outcome.score
    most = REFERENCES_CHARACTERS // max(1, min(REFERENCES, len(outcome.references)))
    row: dict[str, Any] = {
        "case": case.id,
        "index": outcome.index,
        "score": round(100 * score.value, 2),
        "expected": [visible(reference, most) for reference in outcome.references[:REFERENCES]],
        "found": [round(score.parts.get(reference, -1.0), 3) for reference in outcome.references[:REFERENCES]],
        **_said(text, outcome.references),
    }
    if len(outcome.references) > REFERENCES:
        row["others"] = len(outcome.references) - REFERENCES
    if score.failure:
        row["failure"] = score.failure
    if outcome.depths:
        row["depth"] = round(outcome.depths[0], 3)
        if len(outcome.depths) > 1:
            row["depths"] = [round(depth, 3) for depth in outcome.depths[:REFERENCES]]
    if excerpted and outcome.excerpt is not None:
        row["excerpt"] = _excerpt(outcome.excerpt)
    if other is not None and other != score.value:
        row["flip"] = {"score": round(100 * other, 2)}
        if answer is not None:
            row["flip"] |= {**_said(answer.text, outcome.references), "failure": answer.failure}
    return row


def _said(text: str, references: Sequence[str]) -> dict[str, Any]:
    """An answer, or two pieces of a long one: `got`, `more` signs left out, `end`, `rest` signs left out."""
    if len(text) <= ANSWER_CHARACTERS:
        return {"got": visible(text)}
    size = ANSWER_CHARACTERS - BEGINNING_CHARACTERS
    start = len(text) - size
    # Whoever thinks aloud answers at the end.
    if _first(text[start:], references) < 0 and (at := _first(text, references)) >= BEGINNING_CHARACTERS - 40:
        start = max(BEGINNING_CHARACTERS, min(start, at - size // 4))
    said: dict[str, Any] = {"got": visible(text, BEGINNING_CHARACTERS), "end": visible(text[start:], size)}
    left_out = {"more": start - BEGINNING_CHARACTERS, "rest": len(text) - start - size}
    return said | {name: count for name, count in left_out.items() if count}


def _first(text: str, references: Sequence[str]) -> int:
    """Where the first of the references stands in the text, whatever its case; -1 if none does."""
    wanted = "|".join(re.escape(reference) for reference in references if reference)
    found = re.search(wanted, text, re.IGNORECASE) if wanted else None
    return found.start() if found else -1


def _excerpt(found: Excerpt) -> dict[str, str]:
    names = ("question", "head", "before", "needle", "after", "tail")
    return {name: visible(text, 480) for name in names if (text := getattr(found, name))}
