"""The work of the engine: tokens, samples and time, the properties that --invariance checked, the notes on a server."""

from collections.abc import Iterable, Sequence

from msgspec import UNSET, UnsetType

from longctx.fixtures.records import Generation, PropertyFinding
from longctx.fixtures.records.report import JsonReport, ReportServer, ReportTokens
from longctx.fixtures.records.results import EngineFacts
from longctx.plugins.report.tables import Cell, Note, Row, Table, notes, plural, verdict_cell
from longctx.plugins.verdicts.evaluate import Measured

# Single answers may consist of special tokens, which no text shows.
MISSING_SHARE = 0.05
WORDS = {"skipped": "not measured"}


def failed_properties(document: JsonReport) -> list[str]:
    """Return a line for every property that fails: its name, the sample, the first differing token, both answers."""
    failed = [finding for finding in document.invariance or () if finding.verdict == "fail"]
    return [f"invariance: {finding.line}" for finding in failed]


def held_properties(document: JsonReport) -> list[str]:
    """Return the number of the checked properties of the engine that hold, in words; nothing without --invariance."""
    checked = [finding for finding in document.invariance or () if finding.verdict != "skipped"]
    holding = sum(finding.verdict == "pass" for finding in checked)
    return [f"{holding} of {len(checked)} checked properties of the engine hold"] if checked else []


def invariance_table(findings: Sequence[PropertyFinding]) -> Table:
    """Return the properties of the engine that --invariance checked, each with the difference or the answers."""
    rows = []
    for finding in findings:
        text = finding.line.removeprefix(f"{finding.name}: ").removeprefix(f"{finding.verdict}: ")
        word = WORDS.get(finding.verdict, finding.verdict)
        rows.append(Row(name=finding.name, cells=(verdict_cell(word), Cell(text=text))))
    columns = ("verdict", "difference")
    return Table(name="Properties of the engine", corner="invariance", columns=columns, rows=tuple(rows), is_wordy=True)


def server_notes(generations: Sequence[Generation], facts: EngineFacts | None) -> ReportServer | UnsetType:
    """Return the notes about the server of a run; unset without any."""
    texts = list(facts.notes) if facts else []
    excess = [one.excess_tokens for one in generations if one.excess_tokens]
    missing = [one.missing_tokens for one in generations if one.missing_tokens]
    answers = len(generations)
    if excess:
        counts = f"{len(excess):,} of {answers:,} answers, up to {max(excess):,} too many"
        texts.append(
            f"gave more tokens than requested in {counts}; each answer was cut to its token budget before it was scored"
        )
    if len(missing) > MISSING_SHARE * answers:
        counts = f"{len(missing):,} of {answers:,} answers, up to {max(missing):,} more"
        texts.append(f"counted more tokens than its texts have in {counts}: it drops a part of what the model writes")
    return ReportServer(notes=tuple(texts)) if texts else UNSET


def notes_of(document: JsonReport) -> list[Note]:
    """Return the report's facts about its server, or about the files whose results were compared."""
    texts = () if isinstance(document.server, UnsetType) else document.server.notes
    return notes("files" if document.is_of_files else "server", texts, "warning")


def tokens_of(measured: Measured, generations: Sequence[Generation]) -> ReportTokens:
    """Return the tokens of all finished samples, and an estimate for a run of all planned samples.

    A sum is None if the tokens of a sample are not known. The estimate rests on the mean of every case's samples.
    """
    full_run = 0.0
    for case in measured.scope.cases:
        result = measured.results.get(case.id)
        counts = [outcome.generation.computed_tokens for outcome in result.outcomes] if result else []
        computed = [count for count in counts if count is not None]
        full_run += len(case.planned) * (sum(computed) / len(computed) if computed else case.length)
    return ReportTokens(
        prompt=_total(generation.prompt_tokens for generation in generations),
        generated=_total(generation.generated_tokens for generation in generations),
        computed=_total(generation.computed_tokens for generation in generations),
        reused=_total(generation.reused_tokens for generation in generations),
        full_run_equivalent=round(full_run),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is not known."""
    counts = list(counts)
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def partial_note(document: JsonReport) -> str:
    run = document.run
    if run.interrupted:
        return f"interrupted: scores from {samples_text(document)}; the same command continues"
    if not run.partial:
        return ""
    if not run.deselected:
        return "partial: some cases were left out, or returned no result"
    return f"partial: {plural(run.deselected, 'case', 'cases')} deselected"


def cost_text(document: JsonReport) -> str:
    run, tokens, of_planned = document.run, document.run.tokens, samples_text(document)
    if document.is_of_files:
        return f"{of_planned}, read from files in {run.seconds:.1f} s"
    samples, planned = _sample_counts(document)
    share = " (a full run)" if samples == planned else ""
    if tokens.computed and not share:
        parts = tokens.full_run_equivalent / tokens.computed
        share = f" (1/{parts:.1f} of a full run)"
    computed = "unknown" if tokens.computed is None else f"{tokens.computed:,}"
    in_all = " in all" if run.computed_samples < samples else ""
    now = f"{run.computed_samples:,} answered now"
    # Workers may also answer a few samples that the verdicts turn out not to need.
    if document.regression is not None and run.computed_samples > samples:
        now += ", the baseline's too,"
    return f"{computed} tokens computed{in_all}{share}, {of_planned}, {now} in {run.seconds:,.0f} s"


def cost_notes(document: JsonReport) -> list[Note]:
    shown = [Note(name="cost", text=cost_text(document))] if document.cases else []
    if note := partial_note(document):
        shown.append(Note(text=note, tone="warning"))
    return shown


def samples_text(document: JsonReport) -> str:
    samples, planned = _sample_counts(document)
    return f"{samples:,} of {planned:,} samples"


def _sample_counts(document: JsonReport) -> tuple[int, int]:
    """Return the numbers of finished and of planned samples."""
    samples = sum(case.samples for case in document.cases)
    return samples, sum(case.planned for case in document.cases)
