"""The verdicts of a run and of its gates: every report explains the exit code with the same sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate, ReportVerdict
from longctx.plugins.report.sections.comparison import endings_text
from longctx.plugins.report.sections.engine import failed_properties, held_properties, partial_note
from longctx.plugins.report.tables import (
    Cell,
    Note,
    Row,
    Table,
    counted,
    notes,
    plural,
    shares_text,
    shown_interval,
    shown_number,
    verdict_cell,
    verdict_tone,
)
from longctx.plugins.thresholds.records import COMPARED_KINDS, LARGEST_SHARE
from longctx.plugins.verdicts.diagnoses import Diagnosis

WIDE_POINTS = 30.0
"""An interval of a mean that is wider than this says little, and the text says so."""
FEW_PLANNED = 100
"""A case with fewer planned samples says little about the model, whatever the verdict on them is."""
NO_GATE = "nothing in this run can fail, except for errors; give --baseline, or a gate in --thresholds"
NO_GATE_OF_FILES = "no loss can fail: the policy blocks nothing; set blocking = true in [regression] or in a gate"
OTHER_TESTS = "a test that is not about the model failed"
NAMED_GATES = 4
ORDER = ("fail", "error", "undecided", "not measured", "pass")
"""The words of verdicts, the worst first."""
MOST_GATES, MOST_PASSING = 12, 6


def run_verdict(report: JsonReport, exit_code: int | None = None, page: Path | None = None) -> ReportVerdict:
    """Return the verdict of a run, with a sentence for everything that decides it.

    `exit_code` is that of a process, which other tests may decide; `page` is the file of the HTML report.
    """
    blocking = [gate for gate in report.gates if gate.blocking]
    words = Counter[str](gate.verdict for gate in blocking)
    failed = [case for case in report.cases if case.fails]
    checked = held_properties(report)
    reasons = [
        *failed_properties(report),
        *_case_reasons([case for case in failed if case.error]),
        *(gate_text(gate) for gate in _worst_first(report.gates) if gate.fails),
        *_case_reasons([case for case in failed if not case.error]),
    ]
    endings = report.regression.endings if report.regression else None
    if endings is not None and endings.fails:
        reasons.append(f"endings: fail: {endings_text(endings)}")
    if exit_code == 1 and not reasons:
        reasons.append(OTHER_TESTS)
    word: Literal["pass", "fail", "undecided", "not measured"] = "not measured"
    if reasons:
        word = "fail"
    elif report.run.interrupted:
        # What the rest of the run would have shown is open, whatever has passed so far.
        reasons.append(partial_note(report))
    elif words["pass"] or (checked and not report.cases):
        word = "pass"
    elif words["undecided"]:
        word = "undecided"
        reasons += [gate_text(gate) for gate in blocking if gate.verdict == "undecided"]
    else:
        reasons += [gate_text(gate) for gate in blocking] or [NO_GATE_OF_FILES if report.is_of_files else NO_GATE]
    if exit_code is None:
        # pytest gives code 2 to a run that Ctrl-C ended, whatever failed in it.
        exit_code = 2 if report.run.interrupted else int(word == "fail")
    return ReportVerdict(
        word=word,
        exit_code=exit_code,
        counts="; ".join([*_counts(words, failed), *checked]),
        reasons=tuple(reasons),
        next_step="" if word == "pass" else _next_step(report, page),
    )


def _worst_first(gates: Sequence[ReportGate]) -> list[ReportGate]:
    return sorted(gates, key=lambda gate: ORDER.index(gate.verdict))


def _case_reasons(cases: Sequence[ReportCase]) -> list[str]:
    """Return a sentence for every distinct reason, with the first of its cases."""
    ids: dict[str, list[str]] = {}
    for case in cases:
        ids.setdefault(f"{case.verdict}: {case.error or case.decided_by}", []).append(case.id)
    return [f"{counted(names, 1)}: {text}" for text, names in ids.items()]


def _counts(words: Counter[str], failed: Sequence[ReportCase]) -> list[str]:
    """Return how many blocking gates have which verdict, and how many cases fail the run with which one."""
    verdicts = shares_text((word, words[word]) for word in ORDER if words[word])
    counts = [f"blocking gates: {verdicts}" if verdicts else "this run has no blocking gate"]
    by_word = Counter[str](case.verdict for case in failed)
    if by_word:
        counts.append(f"cases: {shares_text((word, by_word[word]) for word in ORDER if by_word[word])}")
    return counts


def _next_step(report: JsonReport, page: Path | None) -> str:
    if report.run.interrupted:
        return "the same command continues"
    if failed_properties(report):
        return "look up the property in docs/same-answers.md"
    if any(case.error and case.fails for case in report.cases):
        measures = "" if report.is_of_files else "; the same command then measures what is missing"
        return f"do what the error says{measures}"
    if report.regression and report.regression.cause:
        return report.regression.cause
    gates = _worst_first(report.gates)
    deciding = [gate for gate in gates if gate.fails or (gate.blocking and gate.verdict != "pass")]
    if not deciding:
        return "" if page is None else f"look at the answers in {page}"
    gate = deciding[0]
    answers = "--report-html FILE shows the answers" if page is None else f"look at the answers in {page}"
    if gate.verdict == "not measured" and report.is_of_files:
        return f"give results that have what {gate.name!r} lacks, or leave it out of the policy"
    if gate.verdict == "not measured":
        is_alone = gate.kind in COMPARED_KINDS and report.regression is None
        lack = "give --baseline" if is_alone else "measure what it lacks (--lengths, -k)"
        return f'{lack}; or leave it out: -k "not gate[{gate.name}]"'
    if report.is_of_files:
        return answers
    place = f"{Path(report.run.options['thresholds']).name}::gate[{gate.name}]"
    return f"{answers}; '{place}' selects this gate alone"


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Return why a case is bad: below its floor, worse than the baseline, or both; empty if it is neither."""
    texts = []
    if diagnosis.below:
        texts.append(f"{shown_number(diagnosis.score)} is below its floor of {diagnosis.floor:g}")
    compared = diagnosis.comparison
    if compared.dropped:
        counts = f"{compared.worse} worse, {compared.better} better of {compared.pairs} pairs"
        texts.append(f"{shown_number(compared.difference, signed=True)} against the baseline ({counts})")
    return "; ".join(texts)


def gate_text(gate: ReportGate) -> str:
    return f"{gate.name}: {gate.verdict}: {gate.reason}"


def gate_notes(document: JsonReport) -> list[Note]:
    """Return a note for every blocking gate, the worst last, and the counts of the others and of many that pass."""
    blocking = [gate for gate in document.gates if gate.blocking]
    blocking.sort(key=lambda gate: -ORDER.index(gate.verdict))
    passing = [gate for gate in blocking if gate.verdict == "pass"]
    shown = [Note(name="gate", text=f"{len(passing)} gates: pass", tone="good")] if len(passing) > MOST_PASSING else []
    for gate in blocking if not shown else blocking[len(passing) :]:
        shown.append(Note(name="gate", text=gate_text(gate), tone=verdict_tone(gate.verdict)))
        shown += notes("", [_intervals(gate)]) if gate.interval else []
    reported = Counter(gate.verdict for gate in document.gates if not gate.blocking)
    if reported:
        shown.append(Note(text=f"reported only: {shares_text((word, count) for word, count in reported.items())}"))
    return shown


def gate_table(document: JsonReport, most: int | None = None) -> Table:
    """Return the gates, or the blocking ones: all that fail the run, others up to `most`; the worst come first."""
    gates = [gate for gate in document.gates if gate.blocking or most is None]
    gates.sort(key=lambda gate: (not gate.blocking, ORDER.index(gate.verdict)))
    shown = len(gates) if most is None else max(most, sum(gate.fails for gate in gates))
    rows = []
    for gate in gates[:shown]:
        name = gate.name if gate.blocking else f"{gate.name}, reported only"
        cells = (verdict_cell(gate.verdict), Cell(text=gate.reason), Cell(text=_intervals(gate)))
        rows.append(Row(name=name, cells=cells))
    for verdict, count in Counter(gate.verdict for gate in gates[shown:]).items():
        rows.append(Row(name=f"{count} more", cells=(verdict_cell(verdict), Cell(text=""), Cell(text=""))))
    columns = ("verdict", "reason", "confidence intervals")
    return Table(name="Gates", corner="gate", columns=columns, rows=tuple(rows))


def _intervals(gate: ReportGate) -> str:
    """Return what a gate's samples say about all planned samples and about the model; empty if nothing was measured.

    The planned samples are known exactly once all are measured. The model is not.
    """
    if gate.interval is None or gate.model_interval is None:
        return ""
    signed = gate.kind == "regression"
    planned, model = shown_interval(gate.interval, signed), shown_interval(gate.model_interval, signed)
    low, high = gate.model_interval
    few = " (too few samples)" if gate.kind != "likelihood" and high - low > WIDE_POINTS else ""
    confidence = "" if gate.confidence is None else f", at {100 * gate.confidence:.4g} % confidence"
    # A loss is shown by a test that needs no interval of the model, which may be wide.
    of_model = "" if signed and gate.verdict == "fail" else f"; the model: {model}{few}"
    changed = ""
    if gate.kind in COMPARED_KINDS and gate.changed is not None:
        changed = f"; {gate.changed:.1f} % of the scores changed ({shown_interval(gate.changed_interval)})"
    return f"these {gate.of} samples: {planned}{of_model}{confidence}{changed}"


def warning_texts(document: JsonReport) -> list[str]:
    """Return the limits of the meaning of the verdicts: thoughts, thresholds that look like shares, few samples."""
    model = document.model
    texts = [model.thought_warning] if model.thought_warning else []
    texts += model.checkpoint_warnings
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
    small = [case for case in document.cases if case.planned < FEW_PLANNED]
    few = [case.planned for case in small]
    if few:
        least = f"{min(few)}" if min(few) == max(few) else f"at least {min(few)}"
        remedy = "compare more samples" if document.is_of_files else "give more --samples"
        if {case.source for case in small} == {"own"}:
            remedy = "add questions to the file"
        cases = plural(len(few), "case has", "cases have")
        texts.append(
            f"{cases} fewer than {FEW_PLANNED} planned samples ({least}): a verdict about these samples says little "
            f"about the model; {remedy}"
        )
    return texts


def seed_role(document: JsonReport) -> str:
    if document.is_of_files:
        return "A wrong verdict can repeat on the same samples: its probability is per set of samples"
    return (
        f"Seed {document.run.seed} fixes the samples and their order, so a wrong verdict can repeat at every "
        "checkpoint: its probability is per seed; --seed changes it"
    )
