"""The tokens and samples that a run took, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from longctx.fixtures.records.report import JsonReport, ReportTokens
from longctx.plugins.report.formats import Line, named_line
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.verdicts.evaluate import Measured

# Start-up and noise take a large share of shorter runs.
LEAST_SHOWN_SECONDS = 10


def tokens_of(measured: Measured) -> ReportTokens:
    """Return the tokens of all finished samples, and an estimate for a run of all planned samples.

    A sum is None if the tokens of a sample are not known. The estimate rests on the mean of every case's samples.
    """
    full_run = 0.0
    for case in measured.scope.cases:
        result = measured.results.get(case.id)
        counts = [outcome.generation.computed_tokens for outcome in result.outcomes] if result else []
        computed = [count for count in counts if count is not None]
        full_run += len(case.planned) * (sum(computed) / len(computed) if computed else case.length)
    generations = [outcome.generation for result in measured.results.values() for outcome in result.outcomes]
    return ReportTokens(
        prompt=_total(generation.prompt_tokens for generation in generations),
        generated=_total(generation.generated_tokens for generation in generations),
        computed=_total(generation.computed_tokens for generation in generations),
        reused=_total(generation.reused_tokens for generation in generations),
        full_run_equivalent=round(full_run),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def partial_note(document: JsonReport) -> str:
    """Return what a run leaves out; empty for a whole one."""
    run = document.run
    if run.interrupted:
        samples, planned = sum(case.samples for case in document.cases), sum(case.planned for case in document.cases)
        return f"interrupted: scores from {samples:,} of {planned:,} samples; the same command continues"
    if not run.partial:
        return ""
    deselected = run.deselected
    if not deselected:
        return "partial: cases returned no result"
    return f"partial: {deselected} {'case' if deselected == 1 else 'cases'} deselected"


def _terminal(document: JsonReport) -> list[Line]:
    run = document.run
    tokens, cases = run.tokens, document.cases
    samples, planned = sum(case.samples for case in cases), sum(case.planned for case in cases)
    share = f" (1/{tokens.full_run_equivalent / tokens.computed:.1f} of a full run)" if tokens.computed else ""
    if samples == planned:
        share = " (a full run)"
    lines = [
        named_line(
            "cost", f"{_shown_count(tokens.computed)} tokens computed{share}, {samples:,} of {planned:,} samples"
        ),
        named_line("", f"{run.computed_samples:,} samples answered in this run, {run.seconds:.0f} s"),
    ]
    if time := _shown_seconds(run.worker_seconds):
        lines.append(named_line("", time))
    if note := partial_note(document):
        lines.append(named_line("", note, yellow=True))
    return lines


def _markdown(document: JsonReport) -> str:
    run, cases = document.run, document.cases
    samples, planned = sum(case.samples for case in cases), sum(case.planned for case in cases)
    note = partial_note(document)
    partial = f"; **{note}**" if note else ""
    return f"{_shown_count(run.tokens.computed)} tokens computed, {samples:,} of {planned:,} samples{partial}"


def _page(document: JsonReport, _: Details) -> dict[str, Any]:
    """Return the numbers of tokens and samples."""
    tokens, cases = document.run.tokens, document.cases
    samples, planned = sum(case.samples for case in cases), sum(case.planned for case in cases)
    share = "a full run" if samples == planned else "part of a full run"
    if samples != planned and tokens.computed:
        share = f"1/{tokens.full_run_equivalent / tokens.computed:.1f} of a full run"
    shown = {
        "tokens": _shown_count(tokens.computed),
        "share": share,
        "samples": f"{samples:,}",
        "planned": f"of {planned:,} planned",
        "reused": _shown_count(tokens.reused),
    }
    return {"cost": shown}


COST = Section(terminal=_terminal, markdown=_markdown, page=_page)


def _shown_seconds(seconds: Mapping[str, float]) -> str:
    """Return where the time of the workers went; empty for a short run."""
    total = sum(seconds.values())
    if total < LEAST_SHOWN_SECONDS:
        return ""
    shares = [(spent / total, name) for name, spent in seconds.items() if spent >= 0.01 * total]
    return "of the workers' time: " + ", ".join(f"{name} {share:.0%}" for share, name in sorted(shares, reverse=True))


def _shown_count(count: int | None) -> str:
    """Return a number of tokens as reports show it."""
    return "unknown" if count is None else f"{count:,}"
