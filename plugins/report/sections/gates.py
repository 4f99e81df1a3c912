"""The verdicts of a run and of its gates, in the sentences with which every report explains the exit code."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from longctx.fixtures.records import PairedChange, Reason, Verdict, VerdictWord
from longctx.fixtures.records.report import JsonReport, ReportCase, ReportGate, ReportVerdict
from longctx.plugins.evidence.effective_length import (
    contiguous_effective_length,
    effective_length,
    effective_length_label,
)
from longctx.plugins.report.sections.comparison import endings_text
from longctx.plugins.report.sections.engine import failed_properties, held_properties, partial_note
from longctx.plugins.report.tables import (
    Cell,
    Row,
    Table,
    counted,
    plural,
    shares_text,
    short_length,
    shown_interval,
    shown_number,
    text_row,
    verdict_cell,
)
from longctx.plugins.thresholds.records import COMPARED_KINDS, LARGEST_SHARE
from longctx.plugins.verdicts.diagnoses import Diagnosis

FEW_PLANNED = 100
"""A case with fewer planned samples says little about the model under any verdict."""
NO_GATE = "nothing in this run can fail, except for errors; give --baseline, or a gate in --thresholds"
NO_GATE_OF_FILES = "no loss can fail: the policy blocks nothing; set blocking = true in [regression] or in a gate"
OTHER_TESTS = "a test that is not about the model failed"
NAMED_GATES = 4
ORDER = ("fail", "error", "undecided", "not measured", "pass")
"""The words of verdicts, the worst first."""
# Points by which the sum of differences may be off.
ROUNDING = 1e-6
# Rarer losses have one form.
RAREST = 1e-6
# More frequent ones are not counted.
MOST_SHOWN = 2 / 3
# Lengths that pass have 100 points in the arithmetic of effective lengths, others 0.
HALF = 50.0
PLAIN: Mapping[Reason, str] = {
    "no answers": "--signal likelihood generates no answers",
    "same checkpoint": "the baseline is the same checkpoint: a comparison with itself is most often a wrong path",
    "no common samples": "too few samples to compare: the baseline's journal has none of these samples",
    "no baseline": "it compares with a baseline; give --baseline",
}

REMEDIES: Mapping[str, str] = {
    "too few samples": "--full, more --samples or a longer --budget decides it",
    "not shown": "twice the samples may show it",
    "short baseline": "measure the baseline with --full",
    "short candidate": "measure all samples of the base, or leave out of it what is not meant",
    "distractors not told": "give more --samples",
}
"""What may decide an undecided verdict, by its reason."""


def run_verdict(report: JsonReport, exit_code: int | None = None, page: Path | None = None) -> ReportVerdict:
    """Return the verdict of a run, with a sentence for everything that decides it.

    `exit_code` is that of a process, which other tests may decide; `page` is the file of the HTML report.
    """
    blocking = [gate for gate in report.gates if gate.blocking]
    words = Counter[str](gate.verdict for gate in blocking)
    checked = held_properties(report)
    reasons = _failures(report)
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
        # pytest gives code 2 to a run that Ctrl-C ended, also if tests failed in it.
        exit_code = 2 if report.run.interrupted else int(word == "fail")
    return ReportVerdict(
        word=word,
        exit_code=exit_code,
        counts="; ".join([*_counts(words, report.cases), *checked]),
        reasons=tuple(reasons),
        next_step="" if word == "pass" else _next_step(report, page),
    )


def _failures(report: JsonReport) -> list[str]:
    """Return a sentence for everything that fails the run, errors before losses."""
    failed = [case for case in report.cases if case.fails]
    errors = [case for case in failed if case.error]
    bad = [case for case in failed if not case.error]
    gates = [gate_text(gate) for gate in _worst_first(report.gates) if gate.fails]
    reasons = [*failed_properties(report), *_case_reasons(errors), *gates, *_case_reasons(bad)]
    endings = report.regression.endings if report.regression else None
    if endings is not None and endings.fails:
        reasons.append(f"endings: fail: {endings_text(endings)}")
    return reasons


def _worst_first(gates: Sequence[ReportGate]) -> list[ReportGate]:
    return sorted(gates, key=lambda gate: ORDER.index(gate.verdict))


def _case_reasons(cases: Sequence[ReportCase]) -> list[str]:
    """Return a sentence for every distinct reason, with the first of its cases."""
    ids: dict[str, list[str]] = {}
    for case in cases:
        reason = f"{case.verdict}: {case.error or case.decided_by}"
        ids.setdefault(reason, []).append(case.id)
    return [f"{counted(names, 1)}: {reason}" for reason, names in ids.items()]


def _counts(words: Counter[str], cases: Sequence[ReportCase]) -> list[str]:
    gates = _shares(words)
    failed = _shares(Counter(case.verdict for case in cases if case.fails))
    counts = [f"blocking gates: {gates}" if gates else "this run has no blocking gate"]
    if failed:
        counts.append(f"cases: {failed}")
    return counts


def _shares(words: Mapping[str, int]) -> str:
    return shares_text((word, words[word]) for word in ORDER if words.get(word))


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


def gate_table(document: JsonReport, most: int | None = None) -> Table:
    """Return all gates, the worst first; with `most`, some that pass and those that are only reported are counted."""
    gates = sorted(_worst_first(document.gates), key=lambda gate: not gate.blocking)
    rows: list[Row] = []
    more: dict[str, list[VerdictWord]] = {}
    for gate in gates:
        is_open = gate.blocking and gate.verdict != "pass"
        if most is None or is_open or (gate.blocking and len(rows) < most):
            name = gate.name if gate.blocking else f"{gate.name}, reported only"
            rows.append(_gate_row(name, gate.verdict, gate.reason, _intervals(gate)))
        else:
            more.setdefault("more" if gate.blocking else "reported only", []).append(gate.verdict)
    for word, verdicts in more.items():
        counts = [f"{count} {verdict}" for verdict, count in Counter(verdicts).items()]
        rows.append(text_row(word, ", ".join(counts), "", ""))
    columns = ("verdict", "reason", "confidence intervals")
    return Table(name="Gates", corner="gate", columns=columns, rows=tuple(rows), is_wordy=True)


def _gate_row(name: str, verdict: VerdictWord, reason: str, intervals: str) -> Row:
    return Row(name=name, cells=(verdict_cell(verdict), Cell(text=reason), Cell(text=intervals)))


def _intervals(gate: ReportGate) -> str:
    """Return what a gate's samples say about all planned samples and about the model; empty if nothing was measured."""
    if gate.interval is None or gate.model_interval is None:
        return ""
    signed = gate.kind == "regression"
    planned, model = shown_interval(gate.interval, signed), shown_interval(gate.model_interval, signed)
    confidence = "" if gate.confidence is None else f", at {100 * gate.confidence:.4g} % confidence"
    # A loss is shown by a test that needs no interval of the model, which may be wide.
    of_model = "" if signed and gate.verdict == "fail" else f"; the model: {model}"
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
    few = [case.planned for case in document.cases if case.planned < FEW_PLANNED]
    if few:
        cases = plural(len(few), "case has", "cases have")
        texts.append(
            f"{cases} fewer than {FEW_PLANNED} planned samples (down to {min(few)}): a verdict about these samples "
            "says little about the model; more samples or questions say more"
        )
    return texts


def seed_role(document: JsonReport) -> str:
    if document.is_of_files:
        return "A wrong verdict can repeat on the same samples: its probability is per set of samples"
    return (
        f"Seed {document.run.seed} fixes the samples and their order, so a wrong verdict can repeat at every "
        "checkpoint: its probability is per seed; --seed changes it"
    )


def reason_text(verdict: Verdict) -> str:
    """Return one line that explains a verdict; of an undecided one with its remedy."""
    remedy = REMEDIES.get(verdict.because or "", "") if verdict.verdict == "undecided" else ""
    return f"{_facts_text(verdict)}; {remedy}" if remedy else _facts_text(verdict)


def _facts_text(verdict: Verdict) -> str:
    because, length = verdict.because, verdict.length
    if because == "error":
        return verdict.detail
    if because is not None and because in PLAIN:
        return PLAIN[because]
    if because == "interrupted":
        return f"interrupted after {verdict.samples:,} of {verdict.of:,} samples"
    if because == "missing tasks" and verdict.kind == "likelihood":
        return f"likelihood: not all tasks run at {short_length(length)}"
    if because == "missing tasks":
        place = "" if length is None else f" at {short_length(length)}"
        return f"partial: {verdict.detail} not run{place}"
    if verdict.kind in ("regression", "change"):
        return _comparison_text(verdict)
    if verdict.kind == "likelihood":
        return _likelihood_text(verdict)
    counts = _extent(verdict)
    if verdict.kind == "effective_length":
        return _effective_length_text(verdict) + ("" if because == "missing length" else counts)
    if verdict.measured is None:
        return f"cases without a sample: {verdict.detail}"
    return _mean_text(verdict) + counts


def _extent(verdict: Verdict) -> str:
    if verdict.samples == verdict.of:
        return f" (all {verdict.of} samples)"
    return f" ({verdict.samples} of {verdict.of} samples)"


def _mean_text(verdict: Verdict) -> str:
    """Return the text that compares a mean at a length, or over all lengths, with the required one."""
    assert verdict.measured is not None
    text = _compared(verdict.measured, verdict.required, verdict.length)
    if verdict.because == "not shown":
        return f"{text}; not shown to be below it for the model"
    if verdict.verdict == "undecided":
        return text
    return f"{text}; the model's own mean may be on either side" if verdict.of_model == "near" else text


def _compared(mean: float, required: float, length: int | None) -> str:
    place = "over all lengths" if length is None else f"at {short_length(length)}"
    return f"mean {mean:.1f} {place}, needs more than {required:g}"


def _effective_length_text(verdict: Verdict) -> str:
    findings = {at.length: at for at in verdict.by_length if at.length is not None}
    needs = f"needs at least {short_length(int(verdict.required))}"
    if verdict.because == "missing length":
        longest_tested = short_length(max(findings))
        return f"{needs}, the longest tested length is {longest_tested}"
    threshold = verdict.threshold or 0.0
    why = f" (mean above {threshold:g})"
    open_lengths = [short_length(length) for length, at in findings.items() if not at.is_settled]
    if open_lengths:
        return f"not decided at {', '.join(open_lengths)}; {needs}{why}"
    settled = {length: 100.0 if at.verdict == "pass" else 0.0 for length, at in findings.items()}
    label, longest = effective_length_label(settled, HALF), effective_length(settled, HALF) or 0
    failed = [at for at in verdict.by_length if _fails_at(at, longest)]
    if verdict.verdict == "fail" and failed:
        first = failed[0]
        why = f": {_compared(first.measured or 0.0, threshold, first.length)}"
    contiguous, gap = contiguous_effective_length(settled, HALF) or 0, ""
    if contiguous != longest:
        up_to = f"up to {short_length(contiguous)} only" if contiguous else "at none of the shortest lengths"
        gap = f"; not monotone: without a gap it passes {up_to}"
    return f"reaches {shown_label(label)}, {needs}{why}{gap}{_possible_lengths(findings)}"


def _fails_at(at: Verdict, longest: int) -> bool:
    """Return True for a length that is shown to be too low below the longest one that passes, or fails above it."""
    if at.measured is None or at.length is None:
        return False
    return at.is_below if at.length < longest else at.verdict != "pass"


def _possible_lengths(findings: Mapping[int, Verdict]) -> str:
    """Return between which lengths the model's own effective length is, if other samples may show another one."""
    near = [length for length, at in findings.items() if at.of_model == "near"]
    passed = [length for length, at in findings.items() if at.verdict == "pass" and at.of_model != "near"]
    longest, surest = max(near, default=0), max(passed, default=0)
    if longest <= surest:
        return ""
    shortest = short_length(surest) if surest else f"less than {short_length(min(findings))}"
    return f"; the model's own length may be from {shortest} to {short_length(longest)}"


def shown_label(label: str | None) -> str:
    """Return the label of an effective length as reports show it: `<1024` as `<1K`; `undecided` without one."""
    if label is None:
        return "undecided"
    sign = label[0] if label[0] in "<>" else ""
    return f"{sign}{short_length(int(label.removeprefix(sign)))}"


def _likelihood_text(verdict: Verdict) -> str:
    if verdict.measured is None:
        if verdict.because == "no recovery":
            text = "recovery is undefined, because the evidence alone gains less than 0.3 nats"
            return f"likelihood: {text}{_extent(verdict)}"
        return "likelihood: no sample was measured"
    unit = " nats" if verdict.measure == "gain" else ""
    value = f"{verdict.measure} {verdict.measured:.{2 if unit else 1}f}{unit}"
    text = f"{value} is above {verdict.required:g}"
    if verdict.because == "too few samples":
        text = f"{value} is not yet told from {verdict.required:g}"
    elif verdict.because == "likely distractors":
        text += f", but distractors are at least as likely (gold - foil {verdict.margin:+.2f} nats)"
    elif verdict.because == "distractors not told":
        text += f", but gold - foil {verdict.margin:+.2f} nats is not yet told from 0"
    elif verdict.verdict == "fail":
        text = f"{value} is not above {verdict.required:g}"
    elif verdict.margin is None:
        text += "; there are no distractors to compare with"
    return f"likelihood: {text}{_extent(verdict)}"


def _comparison_text(verdict: Verdict) -> str:
    """Return the loss against the baseline, or how much scores changed for better or worse, and what is allowed."""
    change, measured = verdict.change, verdict.measured
    if change is None or measured is None or verdict.interval is None:
        return "too few samples to compare: none has an answer of both models"
    low, high = verdict.interval
    counts = f"{change.worse} worse, {change.better} better of {change.pairs} pairs"
    if verdict.kind == "change":
        return f"{_changed_text(verdict, measured, low, high)} ({counts})"
    start, bound = "", " on these samples"
    if verdict.because in ("short baseline", "short candidate"):
        start = f"the {verdict.because.removeprefix('short ')} has too few samples to compare: "
    if verdict.because != "not shown":
        bound = _bound_text(verdict.verdict, measured, low, high)
    points = round(measured, 1)
    moved = f"gained {points:.1f} points" if points > 0 else f"lost {_loss(points):.1f} points"
    allowed = _allowed_text(verdict, change, is_exact=low == high)
    return f"{start}{moved}{bound}; {allowed} ({counts}){_chance_text(verdict, change)}"


def _changed_text(verdict: Verdict, measured: float, low: float, high: float) -> str:
    bounds = {"pass": f" (at most {high:.1f})", "fail": f" (at least {low:.1f})"}
    bound = bounds.get(verdict.verdict, f" ({low:.1f} to {high:.1f})")
    if verdict.because == "not shown":
        bound = " on these samples, not shown for the model"
    return f"scores changed by {measured:.1f} points{bound}; {verdict.required:g} allowed"


def _allowed_text(verdict: Verdict, change: PairedChange, *, is_exact: bool) -> str:
    loss, required = _loss(verdict.measured or 0.0), _loss(verdict.required)
    if verdict.verdict != "fail" or loss > required:
        return f"{required:g} allowed"
    # The loss itself does not exceed what is allowed: another limit failed the gate.
    if is_exact and loss >= change.limit - ROUNDING:
        return f"less than {change.limit:g} allowed where all pairs are known"
    return f"{required:g} allowed, and a failure shows more than {required / 2:g}"


def _bound_text(word: str, measured: float, low: float, high: float) -> str:
    """Return the bound on the change of the planned samples that a verdict rests on."""
    is_gain = round(measured, 1) > 0
    if word == "fail":
        # An interval of no width may end beyond the measured loss by rounding.
        return f" (at least {min(_loss(high), _loss(measured)):.1f})"
    if word == "pass" and is_gain:
        return f" (at least {low:.1f})" if low >= 0 else f" (lost at most {-low:.1f})"
    if word == "pass":
        return f" (at most {_loss(low):.1f})"
    return f" ({'lost ' if is_gain else ''}between {_loss(high):.1f} and {_loss(low):.1f})"


def _chance_text(verdict: Verdict, change: PairedChange) -> str:
    """Return in how many runs an unchanged model loses as much; empty for a verdict that does not rest on it.

    Of several comparisons of a run, one loses as much more often than each does.
    """
    p_value = verdict.p_value
    if p_value is None or not (verdict.verdict == "fail" or verdict.because == "not shown"):
        return ""
    of_run = 1.0 if p_value >= 1 else -math.expm1(change.comparisons * math.log1p(-p_value))
    often = f"1 of {_rounded(1 / max(of_run, RAREST))}"
    if of_run < RAREST:
        often = f"fewer than {often}"
    elif of_run > MOST_SHOWN:
        often = "most"
    if change.comparisons > 1:
        return f"; in {often} runs an unchanged model loses as much in one of its {change.comparisons} comparisons"
    return f"; unchanged models lose as much in {often} runs"


def _rounded(number: float) -> str:
    """Return a number of at least 1 with two significant digits at most."""
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.1f}".removesuffix(".0")


def _loss(difference: float) -> float:
    """Return the loss of a difference in points, without a negative zero."""
    return -difference + 0.0
