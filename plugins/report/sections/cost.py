"""The tokens and samples that a run took, and the parts that it leaves out."""

from __future__ import annotations

from collections.abc import Iterable

from longctx.fixtures.records.report import JsonReport, ReportTokens
from longctx.plugins.report.tables import Note, plural
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
    """Return the parts that a run leaves out; empty for a whole one."""
    run = document.run
    if run.interrupted:
        return f"interrupted: scores from {samples_text(document)}; the same command continues"
    if not run.partial:
        return ""
    if not run.deselected:
        return "partial: some cases were left out, or returned no result"
    return f"partial: {plural(run.deselected, 'case', 'cases')} deselected"


def cost_text(document: JsonReport) -> str:
    """Return the tokens, samples and time that a run took."""
    run, (samples, planned) = document.run, _sample_counts(document)
    if document.is_of_files:
        return f"{samples_text(document)}, read from files in {run.seconds:.1f} s"
    tokens, share = run.tokens, ""
    if samples == planned:
        share = " (a full run)"
    elif tokens.computed:
        share = f" (1/{tokens.full_run_equivalent / tokens.computed:.1f} of a full run)"
    computed = "unknown" if tokens.computed is None else f"{tokens.computed:,}"
    in_all = " in all" if run.computed_samples < samples else ""
    # Workers may also answer a few samples that the verdicts turn out not to need.
    has_both = document.regression is not None and run.computed_samples > samples
    now = f"{run.computed_samples:,} answered now" + (", the baseline's too," if has_both else "")
    return f"{computed} tokens computed{in_all}{share}, {samples_text(document)}, {now} in {run.seconds:,.0f} s"


def cost_notes(document: JsonReport) -> list[Note]:
    """Return the tokens, samples and time that a run took, and the parts that it leaves out."""
    shown, run = [Note(name="cost", text=cost_text(document))], document.run
    total = sum(run.worker_seconds.values())
    if total >= LEAST_SHOWN_SECONDS:
        spent = sorted(((seconds, name) for name, seconds in run.worker_seconds.items()), reverse=True)
        shares = [f"{name} {seconds / total:.0%}" for seconds, name in spent if seconds >= 0.01 * total]
        shown.append(Note(text=f"of the workers' time: {', '.join(shares)}"))
    if note := partial_note(document):
        shown.append(Note(text=note, tone="warning"))
    return shown


def samples_text(document: JsonReport) -> str:
    samples, planned = _sample_counts(document)
    return f"{samples:,} of {planned:,} samples"


def _sample_counts(document: JsonReport) -> tuple[int, int]:
    """Return the numbers of measured and of planned samples."""
    return sum(case.samples for case in document.cases), sum(case.planned for case in document.cases)
