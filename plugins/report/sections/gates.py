"""The verdicts of the gates, how certain they are, and the headline that they make."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import structs

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport, ReportGate
from longctx.plugins.report.formats import (
    Line,
    markdown_table,
    markdown_text,
    named_line,
    short_length,
    shown_number,
    shown_range,
)
from longctx.plugins.report.sections.comparison import no_votes
from longctx.plugins.report.sections.cost import partial_note
from longctx.plugins.report.sections.invariance import held_properties
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.thresholds.records import LARGEST_SHARE
from longctx.plugins.verdicts.evaluate import shown_verdict

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
WORST_FIRST = ("fail", "error", "underpowered", "not measured", "inconclusive", "lost here", "near", "pass")
VERDICT_MARKUP = {
    "pass": {"green": True}, "not measured": {"yellow": True}, "lost here": {"yellow": True}, "near": {"yellow": True},
}  # fmt: skip
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


def few_samples(document: JsonReport) -> str:
    """Return the warning about cases with few planned samples; empty if there are none."""
    few = [case.planned for case in document.cases if case.planned < FEW_PLANNED]
    if not few:
        return ""
    least = f"{min(few)}" if min(few) == max(few) else f"at least {min(few)}"
    cases = f"{len(few)} cases have" if len(few) > 1 else "1 case has"
    return (
        f"{cases} fewer than {FEW_PLANNED} planned samples ({least}): a verdict about these samples says little about "
        "the model; give more --samples"
    )


def share_as_score(document: JsonReport) -> str:
    """Return the warning about gates whose threshold looks like a share from 0 to 1; empty if there are none."""
    scores = ("level", "category", "weighted_average")
    names = [gate.name for gate in document.gates if gate.kind in scores and 0 < gate.required <= LARGEST_SHARE]
    return f"{', '.join(names[:NAMED_GATES])}: nearly every mean is above it; scores run from 0 to 100" if names else ""


def _seed_role(document: JsonReport) -> str:
    """Return the role of the seed for the errors of the verdicts."""
    return (
        f"Seed {document.run.seed} fixes the samples and their order, so a wrong verdict can repeat at every "
        "checkpoint: its probability is per seed; --seed changes it"
    )


def _gate_groups(document: JsonReport, details: Details) -> list[dict[str, Any]]:
    """Return the gates by name, each with its verdicts by length and the charts of their evidence."""
    groups: dict[str, list[Any]] = {}
    for gate in document.gates:
        suffix = "" if gate.length is None else f" at {format_length(gate.length)}"
        groups.setdefault(gate.name.removesuffix(suffix), []).append(_gate(gate, details))
    regressions = (name for name, verdicts in groups.items() if verdicts[0]["kind"] == "regression")
    first_regression = next(regressions, None)
    return [
        {
            "name": name,
            "anchor": "regression" if name == first_regression else "",
            "verdicts": verdicts,
            "requirement": verdicts[0]["requirement"],
            "blocking": verdicts[0]["blocking"],
            "open": (verdicts[0]["blocking"] and name == verdicts[0]["name"])
            or any(gate["fails"] for gate in verdicts),
        }
        for name, verdicts in groups.items()
    ]


def _gate(gate: ReportGate, details: Details) -> dict[str, Any]:
    is_length, signed = gate.kind == "effective_length", gate.kind == "regression"
    measured, required = gate.measured, gate.required
    requirement = f"no loss of {-required:g} points" if signed else f"above {required:g}"
    if is_length:
        requirement = f"at least {short_length(int(required))}"
    charts = []
    for curve in details.curves.get(gate.name, ()):
        note = "undecided" if curve.decided is None else f"decided after {curve.decided:,} of {curve.of:,} samples"
        note = "all samples measured" if curve.exact else note
        charts.append({"length": short_length(curve.length), "curve": curve, "note": note})
    return {
        **structs.asdict(gate),
        "at": "" if gate.length is None else short_length(gate.length),
        "charts": charts,
        "shown": short_length(int(measured)) if is_length and measured else shown_number(measured, signed),
        "requirement": requirement,
        "interval_text": _two_intervals(gate),
        "correlation_text": _correlation_text(gate),
        "reason": gate.reason + _detectable_note(gate),
    }


def _terminal(document: JsonReport) -> list[Line]:
    """Return a line for every blocking gate, the counts of the others, and what to select to see the failures again."""
    lines = []
    for gate in document.gates:
        if gate.blocking:
            markup = VERDICT_MARKUP.get(gate.verdict, {"red": True})
            word = shown_verdict(gate.verdict).upper()
            text = f"{word:<5} {gate.name}: {gate.reason}{_detectable_note(gate)}"
            lines.append(named_line("gate", text, **markup))
            about = ", ".join(part for part in (_two_intervals(gate), _correlation_text(gate)) if part)
            lines += [named_line("", about)] if about else []
    reported = Counter(gate.verdict for gate in document.gates if not gate.blocking)
    if reported:
        counts = ", ".join(f"{count} {shown_verdict(verdict)}" for verdict, count in reported.items())
        lines.append(named_line("", f"reported only: {counts}"))
    warnings = (share_as_score(document), few_samples(document))
    notes = (no_votes(document), *warnings, _seed_role(document) if document.gates else "")
    lines += [named_line("", note, yellow=note in warnings) for note in notes if note]
    # The blocking gates that do not pass and the cases with an error, to select them again.
    # A gate whose cases were deselected is left out.
    place = Path(document.run.options["thresholds"]).name
    gates = [gate for gate in document.gates if gate.blocking and gate.verdict != "pass"]
    ids = [f"{place}::gate[{gate.name}]" for gate in gates if gate.fails or gate.verdict != "not measured"]
    failed = [case.id for case in document.cases if case.verdict == "error"]
    ids += [f"{CASES_DIRECTORY}/{case.partition('[')[0]}.py::{case}" for case in failed]
    more = [f"and {len(ids) - MOST_IDS} more"] if len(ids) > MOST_IDS else []
    return [*lines, *(named_line("" if at else "id", text) for at, text in enumerate([*ids[:MOST_IDS], *more]))]


def _markdown(document: JsonReport) -> str:
    """Return a table of the blocking gates: all that fail the run, others as far as the table stays short."""
    blocking = [gate for gate in document.gates if gate.blocking]
    blocking.sort(key=lambda gate: list(MARKDOWN_VERDICTS).index(gate.verdict))
    most = max(MOST_GATES, sum(gate.verdict in ("fail", "error") for gate in blocking))
    rows = [
        (
            MARKDOWN_VERDICTS[gate.verdict],
            markdown_text(gate.name, 60),
            markdown_text(gate.reason + _detectable_note(gate), 160),
            markdown_text(_two_intervals(gate), 160),
        )
        for gate in blocking[:most]
    ]
    others = Counter(gate.verdict for gate in blocking[most:])
    rows += [(MARKDOWN_VERDICTS[verdict], f"{count} more", "", "") for verdict, count in others.items()]
    return markdown_table(("", "blocking gate", "reason", "confidence intervals"), rows)


def _verdict_notes(document: JsonReport) -> str:
    """Return what limits the meaning of the verdicts; empty without gates."""
    notes = [share_as_score(document), few_samples(document), _seed_role(document)] if document.gates else []
    return "\n\n".join(f"<sub>{markdown_text(note, 300)}</sub>" for note in notes if note)


def _page(report: JsonReport, details: Details) -> dict[str, Any]:
    """Return the headline, which agrees with the exit code and names the first gates that decided it, and all gates."""
    blocking = Counter[str](gate.verdict for gate in report.gates if gate.blocking)
    deciding = [gate for gate in report.gates if gate.fails]
    failed = [case for case in report.cases if case.fails]
    findings = [finding for finding in report.invariance or () if finding.verdict != "skipped"]
    broken = [finding for finding in findings if finding.verdict == "fail"]
    verdicts = ", ".join(
        f"{blocking[verdict]} {shown_verdict(verdict)}" for verdict in WORST_FIRST if blocking[verdict]
    )
    counts = [f"blocking gates: {verdicts}" if verdicts else "this run has no blocking gate"]
    for word, description in CASE_DESCRIPTIONS.items():
        if count := sum(case.verdict == word for case in failed):
            counts.append(f"{count} {'case' if count == 1 else 'cases'} {description}")
    is_check_alone = bool(findings) and not report.cases
    verdict = "fail" if deciding or failed or broken else "pass" if blocking["pass"] or is_check_alone else "open"
    # pytest gives this code to a run that Ctrl-C ended, whatever failed in it.
    exit_code = 2 if report.run.interrupted else EXIT_CODES[verdict]
    is_undecided = verdict == "open" and blocking["inconclusive"]
    title = "Interrupted" if report.run.interrupted and verdict == "open" else TITLES[verdict]
    headline = {
        "verdict": verdict,
        "title": f"{'Undecided' if is_undecided and not report.run.interrupted else title} (exit code {exit_code})",
        "partial": partial_note(report),
        "counts": "; ".join((*counts, *held_properties(report))),
        "reasons": [
            *((f"invariance: {finding.name}", finding.reason) for finding in broken),
            *((gate.name, f"{shown_verdict(gate.verdict)}: {gate.reason}") for gate in deciding[:NAMED_GATES]),
        ],
        "more": len(deciding[NAMED_GATES:]),
    }
    return {
        "headline": headline,
        "gates": _gate_groups(report, details),
        "notes": [note for note in (share_as_score(report), few_samples(report)) if note],
        "seed_notes": [_seed_role(report)],
    }


GATES = Section(terminal=_terminal, markdown=_markdown, page=_page)
NOTES = Section(markdown=_verdict_notes)
