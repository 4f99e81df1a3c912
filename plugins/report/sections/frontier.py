"""The frontier tasks: their means, which enter no other figure, comparisons of related tasks, and what reports show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records import Case, Outcome
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.records.report_parts import (
    CopiedReply,
    FrontierSummary,
    LadderResult,
    ReplyResult,
    TwinResult,
    UnanswerableResult,
)
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.formats import Line, markdown_text, named_line, short_length, shown_number
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.verdicts.evaluation import Evaluation

SUITE = "frontier"
# The part of a score of a graph task that tells the F1 by a lenient reading.
LENIENT_PART = "lenient"
# The category of the tasks that only serve to be compared with others.
CONTROLS = "controls"
# The twin of a task, from which it differs in one thing: literal instead of associative questions, or printed labels.
TWINS = {
    "association": "association_literal", "association_far": "association_literal",
    "count_labels": "count_labels_labelled", "count_users": "count_users_labelled",
    "count_dates": "count_dates_labelled",
}  # fmt: skip
# The tasks of every ladder, with the operation that they test.
LADDERS = {
    "mk": {"basic": "find", "easy": "copy", "medium": "copy and solve", "hard": "solve"},
    "mv": {"basic": "find", "easy": "copy", "medium": "copy and select", "hard": "select"},
    "qa": {"basic": "find", "easy": "select", "medium": "copy and solve", "hard": "solve"},
}
# A length counts as mastered with this share of the score at the shortest length (NoLiMa's rule).
RELATIVE_SHARE = 0.85
# A ladder breaks at its first rung with a score below this.
BREAKS_BELOW = 50.0
ByLength = dict[str, float | None]


def frontier(evaluation: Evaluation, planned: Sequence[Case]) -> FrontierSummary | None:
    """Return the summary of the frontier tasks with scores from 0 to 100; None for a run without them."""
    cases = [case for case in planned if case.suite == SUITE]
    if not cases:
        return None
    categories = {
        category: means_by_length(evaluation, [case for case in cases if case.category == category])
        for category in dict.fromkeys(case.category for case in cases)
        if category != CONTROLS
    }
    scores = {(case.task, case.length): _score(evaluation, case) for case in cases}
    outcomes = {case: result.outcomes for case in cases if (result := evaluation.measured.results.get(case.id))}
    lengths = evaluation.measured.scope.lengths
    ladders, twins = [], []
    for (ladder, steps), length in product(LADDERS.items(), lengths):
        rungs = {name: scores.get((f"ladder_{ladder}_{step}", length)) for step, name in steps.items()}
        if any(score is not None for score in rungs.values()):
            ladders.append(LadderResult(ladder=ladder, length=length, rungs=rungs, breaks_at=_breaking_rung(rungs)))
    for (task, twin), length in product(TWINS.items(), lengths):
        score, other = scores.get((task, length)), scores.get((twin, length))
        if score is not None and other is not None:
            twins.append(TwinResult(task=task, twin=twin, length=length, difference=other - score))
    return FrontierSummary(
        categories=categories,
        relative_share=RELATIVE_SHARE,
        relative_lengths={category: relative_length(means) for category, means in categories.items()},
        ladders=tuple(ladders),
        twins=tuple(twins),
        replies=tuple(_replies(case, own) for case, own in outcomes.items() if case.category == "mrcr" and own),
        unanswerable=tuple(
            _unanswerable(case, own) for case, own in outcomes.items() if case.category == "absence" and own
        ),
        lenient=_lenient(outcomes),
    )


def _lenient(outcomes: Mapping[Case, Sequence[Outcome]]) -> dict[str, ByLength]:
    """Return by graph task and length the mean of the lenient readings of its answers."""
    means: dict[str, ByLength] = {}
    for case, own in outcomes.items():
        if case.category == "graphs" and own:
            values = [one.score.parts[LENIENT_PART] for one in own if LENIENT_PART in one.score.parts]
            mean = to_points(math.fsum(values) / len(values)) if len(values) == len(own) else None
            means.setdefault(case.task, {})[str(case.length)] = mean
    return means


def relative_length(scores: Mapping[str, float | None]) -> int | None:
    """Return the longest length with at least `RELATIVE_SHARE` of the score at the shortest length.

    Returns None if the shortest length has no score or a score of 0, of which every other would be a share.
    """
    known = {int(length): score for length, score in scores.items() if score is not None}
    shortest = min(map(int, scores), default=None)
    if shortest is None or not known.get(shortest):
        return None
    return max(length for length, score in known.items() if score >= RELATIVE_SHARE * known[shortest])


def _breaking_rung(rungs: Mapping[str, float | None]) -> str | None:
    """Return the first rung with a score below `BREAKS_BELOW`; None if there is none before an unmeasured rung."""
    for name, score in rungs.items():
        if score is None:
            return None
        if score < BREAKS_BELOW:
            return name
    return None


def _replies(case: Case, outcomes: Sequence[Outcome]) -> ReplyResult:
    """Return how often an answer began with the code, and which reply it copied for which one."""
    pairs = Counter((int(one.score.parts["wanted"]), int(one.score.parts["copied"])) for one in outcomes)
    return ReplyResult(
        task=case.task,
        length=case.length,
        code_rate=to_points(math.fsum(one.score.parts["code"] for one in outcomes) / len(outcomes)),
        copied=tuple(
            CopiedReply(wanted=wanted, copied=copied or None, samples=samples)
            for (wanted, copied), samples in sorted(pairs.items())
        ),
    )


def _unanswerable(case: Case, outcomes: Sequence[Outcome]) -> UnanswerableResult:
    """Return the scores of the questions that the text answers and of those that it does not answer."""

    def rate(kind: str) -> float | None:
        values = [one.score.value for one in outcomes if kind in one.score.parts]
        return to_points(math.fsum(values) / len(values)) if values else None

    return UnanswerableResult(length=case.length, present=rate("present"), absent=rate("absent"))


def means_by_length(evaluation: Evaluation, cases: Sequence[Case]) -> ByLength:
    """Return the mean score of the cases by length; None at a length where one of them has no score."""
    means: ByLength = {}
    for length in evaluation.measured.scope.lengths:
        scores = [_score(evaluation, case) for case in cases if case.length == length]
        known = [score for score in scores if score is not None]
        means[str(length)] = math.fsum(known) / len(known) if known and len(known) == len(scores) else None
    return means


def _score(evaluation: Evaluation, case: Case) -> float | None:
    result = evaluation.measured.results.get(case.id)
    return None if result is None or result.score is None else to_points(result.score)


def frontier_means(document: JsonReport) -> dict[str, Mapping[str, float | None]]:
    """Return the means of a document's frontier categories by length; reports of older versions have none."""
    section = document.frontier
    return dict(section.categories) if section else {}


def _findings(section: FrontierSummary | None) -> list[str]:
    """Return one line for every ladder, twin and conversation; empty for a run without frontier tasks."""
    if section is None:
        return []
    lines = []
    for ladder in section.ladders:
        rungs = ", ".join(f"{name} {shown_number(score)}" for name, score in ladder.rungs.items())
        result = f"breaks at {ladder.breaks_at}" if ladder.breaks_at else "no rung breaks"
        if ladder.breaks_at is None and None in ladder.rungs.values():
            result = "incomplete"
        lines.append(f"ladder {ladder.ladder} at {short_length(ladder.length)}: {result} ({rungs})")
    for one in section.twins:
        lines.append(f"{one.task} at {short_length(one.length)}: {one.difference:+.1f} for its twin {one.twin}")
    for reply in section.replies:
        total = sum(pair.samples for pair in reply.copied)
        wrong = [pair for pair in reply.copied if pair.copied not in (None, pair.wanted)]
        swaps = ", ".join(f"reply {pair.copied} in place of {pair.wanted}: {pair.samples}" for pair in wrong)
        copied = f"{sum(pair.samples for pair in wrong)} of {total} copy another reply"
        text = f"{reply.task} at {short_length(reply.length)}: code in {reply.code_rate:.0f} % of the answers, {copied}"
        lines.append(f"{text} ({swaps})" if swaps else text)
    for entry in section.unanswerable:
        present, absent = shown_number(entry.present), shown_number(entry.absent)
        text = f"{present} where the text tells, {absent} where it does not"
        lines.append(f"not_in_text at {short_length(entry.length)}: {text}")
    tested = {int(length) for scores in section.categories.values() for length in scores}
    known = {name: length for name, length in section.relative_lengths.items() if length is not None}
    if len(tested) > 1 and known:
        lengths = ", ".join(f"{name} {format_length(length).upper()}" for name, length in known.items())
        share = f"{100 * section.relative_share:.0f} %"
        lines.append(f"longest length with {share} of the score at {format_length(min(tested)).upper()}: {lengths}")
    return lines


def _terminal(report: JsonReport) -> list[Line]:
    findings = _findings(report.frontier)
    return [named_line("frontier" * (not number), text) for number, text in enumerate(findings)]


def _markdown(report: JsonReport) -> str:
    return "\n".join(f"- {markdown_text(text, 240)}" for text in _findings(report.frontier))


def _page(report: JsonReport, _: Details) -> dict[str, Any]:
    return {"frontier": _findings(report.frontier)}


FRONTIER = Section(terminal=_terminal, markdown=_markdown, page=_page)
