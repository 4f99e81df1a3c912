"""The verdicts of the gates, how certain they are, and the headline that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate
from longctx.plugins.report.formats import plural, shares_text, short_length, shown_interval, shown_number
from longctx.plugins.report.sections.comparison import no_votes
from longctx.plugins.report.sections.engine import held_properties
from longctx.plugins.report.tables import Note, Table, Tone, notes, text_row
from longctx.plugins.thresholds.records import LARGEST_SHARE
from longctx.plugins.verdicts.evaluation import Curve

WIDE_POINTS = 30.0
"""An interval of a mean that is wider than this says little, and the text says so."""
FEW_PLANNED = 100
"""A case with fewer planned samples says little about the model, whatever the verdict on them is."""
NO_GATE = "nothing in this run can fail, except for errors; give --baseline, or a gate in --thresholds"
MOST_IDS = 8
"""The most ids of failing gates and cases that are listed."""
NAMED_GATES = 4
TITLES = {"pass": "Passed", "fail": "Failed", "open": "No verdict"}
"""The headline of a page. It says what the exit code says: a run with an undecided gate that must pass has failed."""
EXIT_CODES = {"pass": 0, "fail": 1, "open": 0}
CASE_DESCRIPTIONS = {"fail": "shown to be bad", "error": "without a score"}
TONES: Mapping[str, Tone] = {"pass": "good", "not measured": "warning", "undecided": "warning"}
"""The tones of verdicts of gates that do not fail a run; all others are bad."""
MARKDOWN_VERDICTS = {
    "fail": "❌ fail",
    "error": "⚠️ error",
    "not measured": "- not measured",
    "undecided": "❔ undecided",
    "pass": "✅ pass",
}
"""How verdicts are shown, the worst first."""
MOST_GATES = 12
AVERAGE_NOTE = (
    "a weighted average has no evidence of its own: its interval follows from the intervals of the means at all lengths"
)


def _reason(gate: ReportGate) -> str:
    """Return why a gate has its verdict; for a comparison that shows no loss, also the loss that it could detect."""
    if gate.kind != "regression" or gate.verdict not in ("pass", "undecided") or gate.because == "not shown":
        return gate.reason
    if gate.detectable is None:
        return f"{gate.reason}; too few samples to show any loss"
    return f"{gate.reason}; a loss of {gate.detectable:.1f} would show"


def _two_intervals(gate: ReportGate) -> str:
    """Return what a gate's samples say about all planned samples and about the model; empty if nothing was measured.

    The planned samples are known exactly once all are measured. The model is not.
    """
    if gate.interval is None or gate.model_interval is None:
        return ""
    signed = gate.kind == "regression"
    planned, model = shown_interval(gate.interval, signed), shown_interval(gate.model_interval, signed)
    low, high = gate.model_interval
    is_wide = gate.kind != "likelihood" and high - low > WIDE_POINTS
    of_model = f"somewhere from {model} (too few samples)" if is_wide else model
    return f"these {gate.of} samples: {planned}; the model: {of_model}"


def _correlation_text(gate: ReportGate) -> str:
    """Return the correlation between samples on the same haystack; empty if it was not estimated."""
    estimate = gate.haystack_correlation
    if estimate is None:
        return ""
    value, error = (f"{number:.2f}".replace("-0.00", "0.00") for number in estimate)
    return f"correlation on a haystack: {value} ± {error}"


def warning_texts(document: JsonReport) -> list[str]:
    """Return what limits the meaning of the verdicts: thoughts, thresholds that look like shares, few samples."""
    model = document.model
    texts = [model.thought_warning] if model.thought_warning else []
    if model.answers_with_thought:
        answers = sum(case.samples for case in document.cases)
        texts.append(
            f"{model.answers_with_thought:,} of {answers:,} answers begin with a thought, which was scored as part of "
            "the answer; give --thinking-budget"
        )
    scores = ("level", "category", "weighted_average")
    names = [gate.name for gate in document.gates if gate.kind in scores and 0 < gate.required <= LARGEST_SHARE]
    if names:
        texts.append(f"{', '.join(names[:NAMED_GATES])}: nearly every mean is above it; scores run from 0 to 100")
    few = [case.planned for case in document.cases if case.planned < FEW_PLANNED]
    if few:
        least = f"{min(few)}" if min(few) == max(few) else f"at least {min(few)}"
        cases = plural(len(few), "case has", "cases have")
        texts.append(
            f"{cases} fewer than {FEW_PLANNED} planned samples ({least}): a verdict about these samples says little "
            "about the model; give more --samples"
        )
    return texts


def seed_role(document: JsonReport) -> str:
    """Return the role of the seed for the errors of the verdicts."""
    return (
        f"Seed {document.run.seed} fixes the samples and their order, so a wrong verdict can repeat at every "
        "checkpoint: its probability is per seed; --seed changes it"
    )


def gate_notes(document: JsonReport) -> list[Note]:
    """Return a note for every blocking gate, the counts of the others, and what to select to see the failures again."""
    shown = []
    for gate in document.gates:
        if gate.blocking:
            word = gate.verdict.upper()
            text = f"{word:<5} {gate.name}: {_reason(gate)}"
            shown.append(Note(name="gate", text=text, tone="bad" if gate.fails else TONES.get(gate.verdict, "bad")))
            about = [part for part in (_two_intervals(gate), _correlation_text(gate)) if part]
            shown += [Note(text=", ".join(about))] if about else []
    reported = Counter[str](gate.verdict for gate in document.gates if not gate.blocking)
    if reported:
        shown.append(Note(text=f"reported only: {shares_text((word, count) for word, count in reported.items())}"))
    if without_vote := no_votes(document):
        shown.append(Note(text=without_vote))
    shown += [Note(text=text, tone="warning") for text in warning_texts(document)]
    if document.gates:
        shown.append(Note(text=seed_role(document)))
    return shown + notes("id", _failing_ids(document))


def _failing_ids(document: JsonReport) -> list[str]:
    """Return the ids of the blocking gates that do not pass and of the cases with an error, to select them again.

    A gate whose cases were deselected is left out.
    """
    place = Path(document.run.options["thresholds"]).name
    ids = []
    for gate in document.gates:
        is_deselected = gate.verdict == "not measured" and not gate.fails
        if gate.blocking and gate.verdict != "pass" and not is_deselected:
            ids.append(f"{place}::gate[{gate.name}]")
    for case in document.cases:
        if case.verdict == "error":
            file, _, _ = case.id.partition("[")
            ids.append(f"{CASES_DIRECTORY}/{file}.py::{case.id}")
    more = [f"and {len(ids) - MOST_IDS} more"] if len(ids) > MOST_IDS else []
    return [*ids[:MOST_IDS], *more]


def gate_table(document: JsonReport) -> Table:
    """Return the blocking gates: all that fail the run, others as far as the table stays short."""
    order = list(MARKDOWN_VERDICTS)
    blocking = sorted((gate for gate in document.gates if gate.blocking), key=lambda gate: order.index(gate.verdict))
    most = max(MOST_GATES, sum(gate.verdict in ("fail", "error") for gate in blocking))
    rows = []
    for gate in blocking[:most]:
        rows.append(text_row(MARKDOWN_VERDICTS[gate.verdict], gate.name, _reason(gate), _two_intervals(gate)))
    for verdict, count in Counter(gate.verdict for gate in blocking[most:]).items():
        rows.append(text_row(MARKDOWN_VERDICTS[verdict], f"{count} more", "", ""))
    return Table(name="", columns=("blocking gate", "reason", "confidence intervals"), rows=tuple(rows))


def gate_groups(document: JsonReport) -> dict[str, list[ReportGate]]:
    """Return the gates by name, each with its verdicts by length."""
    groups: dict[str, list[ReportGate]] = {}
    for gate in document.gates:
        suffix = "" if gate.length is None else f" at {format_length(gate.length)}"
        groups.setdefault(gate.name.removesuffix(suffix), []).append(gate)
    return groups


def requirement_text(gate: ReportGate) -> str:
    """Return what a gate requires."""
    text = f"above {gate.required:g}"
    if gate.kind == "effective_length":
        text = f"at least {short_length(int(gate.required))}"
    elif gate.kind == "regression":
        text = f"no loss of {-gate.required or 0:g} points"
    return text if gate.blocking else f"{text}, reported only"


def measured_text(gate: ReportGate) -> str:
    """Return the value that a gate measured; empty without one."""
    if gate.measured is None:
        return ""
    if gate.kind == "effective_length":
        return short_length(int(gate.measured))
    return shown_number(gate.measured, signed=gate.kind == "regression")


def gate_text(gate: ReportGate) -> str:
    """Return the reason of a verdict, the intervals, and the correlation between samples."""
    intervals = _two_intervals(gate)
    at_confidence = f"{intervals}, at {100 * (gate.confidence or 0):.4g} % confidence" if intervals else ""
    is_average = gate.kind == "weighted_average" and gate.measured is not None
    texts = (_reason(gate), at_confidence, _correlation_text(gate), AVERAGE_NOTE if is_average else "")
    return "; ".join(text for text in texts if text)


def evidence_note(curve: Curve) -> str:
    """Return how far the evidence of a gate went."""
    if curve.exact:
        return "all samples measured"
    return "undecided" if curve.decided is None else f"decided after {curve.decided:,} of {curve.of:,} samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The verdict of a run, which agrees with the exit code, and what decided it."""

    verdict: Literal["pass", "fail", "open"]
    title: str
    exit_code: int
    counts: str
    """How many blocking gates have which verdict, and how many cases fail the run."""

    reasons: tuple[tuple[str, str], ...]
    """The names of the first properties and gates that fail the run, each with its reason."""

    more: int
    """The number of gates that fail the run and are not among the reasons."""


def headline(report: JsonReport) -> Headline:
    """Return the verdict of a run and the first gates that decided it."""
    blocking = Counter[str](gate.verdict for gate in report.gates if gate.blocking)
    deciding = [gate for gate in report.gates if gate.fails]
    failed = [case for case in report.cases if case.fails]
    checked = [finding for finding in report.invariance or () if finding.verdict != "skipped"]
    broken = [finding for finding in checked if finding.verdict == "fail"]
    verdict: Literal["pass", "fail", "open"] = "open"
    if deciding or failed or broken:
        verdict = "fail"
    elif blocking["pass"] or (checked and not report.cases):
        verdict = "pass"
    title = TITLES[verdict]
    if verdict == "open" and report.run.interrupted:
        title = "Interrupted"
    elif verdict == "open" and blocking["undecided"]:
        title = "Undecided"
    reasons = [(f"invariance: {finding.name}", finding.reason) for finding in broken]
    reasons += [(gate.name, f"{gate.verdict}: {gate.reason}") for gate in deciding[:NAMED_GATES]]
    return Headline(
        verdict=verdict,
        title=title,
        # pytest gives this code to a run that Ctrl-C ended, whatever failed in it.
        exit_code=2 if report.run.interrupted else EXIT_CODES[verdict],
        counts="; ".join((*_counts(blocking, failed), *held_properties(report))),
        reasons=tuple(reasons),
        more=len(deciding[NAMED_GATES:]),
    )


def _counts(blocking: Counter[str], failed: Sequence[ReportCase]) -> list[str]:
    """Return how many blocking gates have which verdict, and how many cases fail the run for which reason."""
    verdicts = shares_text((word, blocking[word]) for word in MARKDOWN_VERDICTS if blocking[word])
    counts = [f"blocking gates: {verdicts}" if verdicts else "this run has no blocking gate"]
    for word, description in CASE_DESCRIPTIONS.items():
        if count := sum(case.verdict == word for case in failed):
            counts.append(f"{plural(count, 'case', 'cases')} {description}")
    return counts
