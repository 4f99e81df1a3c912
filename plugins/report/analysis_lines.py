"""The analysis over many checkpoints as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fixtures.lengths import format_length
from fixtures.shown_text import one_line
from plugins.gates.rank_correlation import FEWEST_PAIRS
from plugins.report.analysis import DEPTHS, Analysis, Changes, Checkpoint, Correlation
from plugins.report.markdown import plain

SHOWN_NAME = 40


def analysis_lines(analysis: Analysis) -> str:
    """Return the page."""
    parts = ["# Many checkpoints", _scores(analysis), _correlations(analysis), _depths(analysis)]
    if analysis.changes is not None:
        parts.append(_changes(analysis.changes))
    return "\n\n".join(part for part in parts if part) + "\n"


def checkpoint_label(checkpoint: Checkpoint) -> str:
    """Return the name of a checkpoint on one line, and its step."""
    step = "" if checkpoint.step is None else f", step {checkpoint.step}"
    return one_line(checkpoint.name, SHOWN_NAME) + step


def missing_note(analysis: Analysis) -> str:
    """Return a sentence about the measures that are left out; empty if there are none."""
    if not analysis.missing:
        return ""
    return f"Left out, because not all reports have them at a common length: {', '.join(analysis.missing)}."


def few_note(analysis: Analysis) -> str:
    """Return why there is no correlation at all; empty if there is one."""
    if analysis.correlations:
        return ""
    count = len(analysis.checkpoints)
    if count < FEWEST_PAIRS:
        return f"Not known: it needs {FEWEST_PAIRS} checkpoints, and there are {count}."
    return "Not known: it needs two measures that all reports have and that differ between checkpoints."


def interval_text(pair: Correlation) -> str:
    """Return the 95 % interval of a correlation."""
    return f"{pair.found.low:+.2f} to {pair.found.high:+.2f}"


def _scores(analysis: Analysis) -> str:
    text = "Means over the lengths that all checkpoints were measured at."
    shown = list(analysis.checkpoints[0].scores)
    rows = [
        (plain(checkpoint_label(one), 2 * SHOWN_NAME), *(f"{one.scores[name]:.1f}" for name in shown))
        for one in analysis.checkpoints
    ]
    return "\n\n".join(part for part in (text, _table(("", *shown), rows), missing_note(analysis)) if part)


def _correlations(analysis: Analysis) -> str:
    head = f"## Rank correlation over {len(analysis.checkpoints)} checkpoints\n\nSpearman's, with 95 % intervals.\n\n"
    return head + (few_note(analysis) or _pairs(analysis.correlations))


def _depths(analysis: Analysis) -> str:
    """Return the mean score by depth at each length: a dip in the middle is the loss in the middle."""
    if not analysis.depths:
        return ""
    rows = [
        (
            format_length(curve.length),
            *("-" if score is None else f"{score:.1f}" for score in curve.scores),
            "-" if curve.loss_in_the_middle is None else f"{curve.loss_in_the_middle:+.1f}",
        )
        for curve in analysis.depths
    ]
    head = ("", *(f"{depth:.2f}" for depth in DEPTHS), "ends less middle")
    return "## Score by depth of the answer\n\nMeans over the samples of all checkpoints and tasks.\n\n" + _table(
        head, rows
    )


def _changes(changes: Changes) -> str:
    rows = [(measure, f"{points:+.1f}") for measure, points in changes.points.items()]
    text = f"## Changes from step {changes.first_step} to {changes.last_step}\n\n" + _table(("", "change"), rows)
    if not changes.together:
        return f"{text}\n\nNo two measures are shown to have moved together."
    return f"{text}\n\nMoved together from step to step (intervals without 0):\n\n{_pairs(changes.together)}"


def _pairs(pairs: Iterable[Correlation]) -> str:
    rows = [(pair.first, pair.second, f"{pair.found.value:+.2f}", interval_text(pair)) for pair in pairs]
    return _table(("", "", "correlation", "95 %"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
