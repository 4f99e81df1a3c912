"""The verdicts of the gates, how certain they are, and the headline that they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate
from longctx.plugins.report.formats import plural, shares_text, short_length, shown_number, shown_range
from longctx.plugins.report.sections.comparison import no_votes
from longctx.plugins.report.sections.cost import partial_note
from longctx.plugins.report.sections.engine import held_properties
from longctx.plugins.report.tables import Cell, Note, Row, Table, Tone, notes
from longctx.plugins.thresholds.records import LARGEST_SHARE
from longctx.plugins.verdicts.evaluate import shown_verdict
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
TONES: Mapping[str, Tone] = {"pass": "good", "not measured": "warning", "lost here": "warning", "near": "warning"}
"""The tones of verdicts that do not fail a run by themselves; all others are bad."""
MARKDOWN_VERDICTS = {
    "fail": "❌ fail",
    "error": "⚠️ error",
    "not measured": "- not measured",
    "underpowered": "❔ underpowered",
    "inconclusive": "❔ undecided",
    "lost here": "❔ lost here",
    "near": "❔ near",
    "pass": "✅ pass",
}
"""How verdicts are shown, the worst first."""
MOST_GATES = 12


def _detectable_note(gate: ReportGate) -> str:
    """Return the loss that a comparison could detect; empty if it is shown to have one, and for other gates."""
    if gate.kind != "regression" or gate.verdict not in ("pass", "inconclusive", "underpowered"):
        return ""
    loss = gate.detectable
    return f"; a loss of {loss:.1f} would show" if loss is not None else "; too few samples to show any loss"


def _two_intervals(gate: ReportGate) -> str:
    """Return what a gate's samples say about all planned samples and about the model; empty if nothing was measured.

    The planned samples are known exactly once all are measured. The model is not.
    """
    if gate.interval is None or gate.model_interval is None:
        return ""
    signed = gate.kind == "regression"
    planned, model = shown_range(gate.interval, signed), shown_range(gate.model_interval, signed)
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
    """Return what limits the meaning of the verdicts: thresholds that look like shares, and few planned samples."""
    texts = []
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
            word = shown_verdict(gate.verdict).upper()
            text = f"{word:<5} {gate.name}: {gate.reason}{_detectable_note(gate)}"
            shown.append(Note(name="gate", text=text, tone=TONES.get(gate.verdict, "bad")))
            about = [part for part in (_two_intervals(gate), _correlation_text(gate)) if part]
            shown += [Note(text=", ".join(about))] if about else []
    reported = Counter(shown_verdict(gate.verdict) for gate in document.gates if not gate.blocking)
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
        texts = (gate.name, gate.reason + _detectable_note(gate), _two_intervals(gate))
        rows.append(Row(name=MARKDOWN_VERDICTS[gate.verdict], cells=tuple(Cell(text=text) for text in texts)))
    others = Counter(gate.verdict for gate in blocking[most:])
    for verdict, count in others.items():
        cells = (Cell(text=f"{count} more"), Cell(text=""), Cell(text=""))
        rows.append(Row(name=MARKDOWN_VERDICTS[verdict], cells=cells))
    return Table(name="", columns=("blocking gate", "reason", "confidence intervals"), rows=tuple(rows))


def gate_groups(document: JsonReport, curves: Mapping[str, Sequence[Curve]]) -> list[dict[str, Any]]:
    """Return the gates by name, each with its verdicts by length and the charts of their evidence."""
    groups: dict[str, list[ReportGate]] = {}
    for gate in document.gates:
        suffix = "" if gate.length is None else f" at {format_length(gate.length)}"
        groups.setdefault(gate.name.removesuffix(suffix), []).append(gate)
    shown, anchor = [], "regression"
    for name, gates in groups.items():
        first = gates[0]
        is_anchor = first.kind == "regression" and anchor != ""
        shown.append({
            "name": name,
            "anchor": anchor if is_anchor else "",
            "verdicts": [_gate(gate, curves.get(gate.name, ())) for gate in gates],
            "requirement": _requirement(first),
            "blocking": first.blocking,
            "open": (first.blocking and name == first.name) or any(gate.fails for gate in gates),
        })  # fmt: skip
        anchor = "" if is_anchor else anchor
    return shown


def _requirement(gate: ReportGate) -> str:
    if gate.kind == "effective_length":
        return f"at least {short_length(int(gate.required))}"
    return f"no loss of {-gate.required:g} points" if gate.kind == "regression" else f"above {gate.required:g}"


def _gate(gate: ReportGate, curves: Sequence[Curve]) -> dict[str, Any]:
    shown = shown_number(gate.measured, signed=gate.kind == "regression")
    if gate.kind == "effective_length" and gate.measured:
        shown = short_length(int(gate.measured))
    charts = []
    for curve in curves:
        note = "undecided" if curve.decided is None else f"decided after {curve.decided:,} of {curve.of:,} samples"
        note = "all samples measured" if curve.exact else note
        charts.append({"length": short_length(curve.length), "curve": curve, "note": note})
    return {
        **structs.asdict(gate),
        "at": "" if gate.length is None else short_length(gate.length),
        "charts": charts,
        "shown": shown,
        "interval_text": _two_intervals(gate),
        "correlation_text": _correlation_text(gate),
        "reason": gate.reason + _detectable_note(gate),
    }


def headline(report: JsonReport) -> dict[str, Any]:
    """Return the verdict of a run, which agrees with the exit code, and the first gates that decided it."""
    blocking = Counter[str](gate.verdict for gate in report.gates if gate.blocking)
    deciding = [gate for gate in report.gates if gate.fails]
    failed = [case for case in report.cases if case.fails]
    checked = [finding for finding in report.invariance or () if finding.verdict != "skipped"]
    broken = [finding for finding in checked if finding.verdict == "fail"]
    verdict = "open"
    if deciding or failed or broken:
        verdict = "fail"
    elif blocking["pass"] or (checked and not report.cases):
        verdict = "pass"
    title = TITLES[verdict]
    if verdict == "open" and report.run.interrupted:
        title = "Interrupted"
    elif verdict == "open" and blocking["inconclusive"]:
        title = "Undecided"
    # pytest gives this code to a run that Ctrl-C ended, whatever failed in it.
    exit_code = 2 if report.run.interrupted else EXIT_CODES[verdict]
    reasons = [(f"invariance: {finding.name}", finding.reason) for finding in broken]
    reasons += [(gate.name, f"{shown_verdict(gate.verdict)}: {gate.reason}") for gate in deciding[:NAMED_GATES]]
    return {
        "verdict": verdict,
        "title": f"{title} (exit code {exit_code})",
        "partial": partial_note(report),
        "counts": "; ".join((*_counts(blocking, failed), *held_properties(report))),
        "reasons": reasons,
        "more": len(deciding[NAMED_GATES:]),
    }


def _counts(blocking: Counter[str], failed: Sequence[ReportCase]) -> list[str]:
    """Return how many blocking gates have which verdict, and how many cases fail the run for which reason."""
    verdicts = shares_text((shown_verdict(word), blocking[word]) for word in MARKDOWN_VERDICTS if blocking[word])
    counts = [f"blocking gates: {verdicts}" if verdicts else "this run has no blocking gate"]
    for word, description in CASE_DESCRIPTIONS.items():
        if count := sum(case.verdict == word for case in failed):
            counts.append(f"{plural(count, 'case', 'cases')} {description}")
    return counts
