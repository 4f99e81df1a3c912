"""The likelihoods of gold answers (--signal): their part of the report, and what the reports show of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any

from longctx.fixtures.lengths import format_length
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.records.report_parts import (
    CaseLikelihood,
    LikelihoodChanges,
    LikelihoodPanel,
    LikelihoodSummary,
    LikelihoodTokens,
    MeanEstimate,
)
from longctx.plugins.evidence.clusters import ESTIMATE_ALPHA
from longctx.plugins.evidence.likelihood import (
    DIFFERENCE_CLIP,
    LEAST_EVIDENCE_GAIN,
    NLL_CLIP,
    Estimate,
    LikelihoodEstimates,
)
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.formats import Line, markdown_table, markdown_text, short_length
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details
from longctx.plugins.verdicts.evaluation import Evaluation
from longctx.plugins.verdicts.likelihood_gates import PanelLikelihood

# A smaller change against the baseline, in nats, is no finding: rounding alone causes as much.
LEAST_CHANGE = 0.05
CAPTION = "Likelihood of gold answers, in nats per token. It screens; answers decide."
MEASURES: Mapping[str, str] = {
    "nll": "nll",
    "gain": "gain",
    "recovery": "recovery",
    "evidence": "evidence",
    "greedy": "greedy",
    "margin": "gold - foil",
}
"""The measures that every report shows, by their key in the document, with their heading."""
WIDTH = 14


def likelihood(evaluation: Evaluation) -> LikelihoodSummary | None:
    """Return the likelihoods of all panels; None for a run that measured answers only."""
    scope = evaluation.measured.scope
    if scope.signal == "answers":
        return None
    measured = evaluation.measured.likelihoods.values()
    panels = []
    for panel in evaluation.likelihood:
        change = None
        if panel.change is not None:
            change = LikelihoodChanges(
                pairs=panel.change.pairs,
                nll=_estimate(panel.change.nll),
                gain=_estimate(panel.change.gain),
                evidence=_estimate(panel.change.evidence),
                nll_error=panel.change.nll_error,
            )
        panels.append(
            LikelihoodPanel(
                family=panel.family,
                length=panel.length,
                **_estimates(panel.pooled),
                change=change,
                findings=_findings(panel),
            )
        )
    return LikelihoodSummary(
        signal="both" if scope.signal == "both" else "likelihood",
        confidence=1 - ESTIMATE_ALPHA,
        nll_clip=NLL_CLIP,
        difference_clip=DIFFERENCE_CLIP,
        least_evidence_gain=LEAST_EVIDENCE_GAIN,
        tokens=LikelihoodTokens(
            computed=sum(item.computed_tokens for item in measured),
            reused=sum(item.reused_tokens for item in measured),
        ),
        panels=tuple(panels),
        cases={
            case_id: CaseLikelihood(**_estimates(result))
            for panel in evaluation.likelihood
            for case_id, result in panel.cases.items()
        },
    )


def has_no_answers(document: JsonReport) -> bool:
    """Return True for a run that measured nothing but likelihoods."""
    return document.likelihood is not None and document.likelihood.signal == "likelihood"


def texts(entry: CaseLikelihood | LikelihoodChanges) -> list[tuple[str, str]]:
    """Return value and interval of every measure of a panel or case as texts; a hyphen for what is undefined."""
    shown = []
    for key in MEASURES:
        estimate: MeanEstimate | None = getattr(entry, key, None)
        if estimate is None:
            shown.append(("-", ""))
            continue
        is_share = key in ("recovery", "greedy")
        form = "{:.1f}" if is_share else "{:+.2f}" if key == "margin" else "{:.2f}"
        low, high = (f"{end:.0f}" if is_share else f"{end:.2f}" for end in estimate.interval)
        shown.append((form.format(estimate.mean), f"{low} to {high}"))
    return shown


def _estimates(result: LikelihoodEstimates) -> dict[str, Any]:
    return {
        "samples": result.samples,
        "planned": result.planned,
        "clipped": result.clipped,
        "nll": _estimate(result.nll),
        "nll_after_first": _estimate(result.nll_after_first),
        "query": _estimate(result.query),
        "evidence": _estimate(result.evidence),
        "gain": _estimate(result.gain),
        "gain_after_first": _estimate(result.gain_after_first),
        "recovery": None if result.recovery is None else _points(result.recovery),
        "greedy": _points(result.greedy),
        "margin": None if result.margin is None else _estimate(result.margin),
    }


def _findings(panel: PanelLikelihood) -> tuple[str, ...]:
    """Return what the numbers alone do not say, one sentence each."""
    lines, change, margin = [], panel.change, panel.pooled.margin
    if margin is not None and margin.low <= 0:
        lines.append("gold answers are not told from distractors, so a gain may be fluency and not retrieval")
    if change is not None and change.evidence.low > LEAST_CHANGE:
        lines.append(
            f"short contexts have suffered: the loss on the evidence alone rose by {change.evidence.mean:.2f} nats, "
            "so a rise of recovery means nothing"
        )
    if change is not None and (change.nll.low > LEAST_CHANGE or change.nll.high < -LEAST_CHANGE):
        lines.append(
            f"the loss of the gold answers changed by {change.nll.mean:+.2f} nats against the baseline, "
            "by calibration, format or retrieval: answers decide which"
        )
    return tuple(lines)


def _points(estimate: Estimate) -> MeanEstimate:
    return _estimate(Estimate(*map(to_points, astuple(estimate))))


def _estimate(estimate: Estimate) -> MeanEstimate:
    return MeanEstimate(
        mean=estimate.mean,
        interval=(estimate.low, estimate.high),
        model_interval=(estimate.model_low, estimate.model_high),
    )


def _terminal(report: JsonReport) -> list[Line]:
    """Return lines with their markup: the measures of every panel with their intervals below, and the findings."""
    section = report.likelihood
    if section is None:
        return []
    lines: list[Line] = [(CAPTION, {"bold": True}), (_row("", MEASURES.values()), {})]
    for panel in section.panels:
        values = texts(panel)
        lines += [
            (_row(f"{panel.family} {format_length(panel.length).upper()}", [value for value, _ in values]), {}),
            (_row(f"  {panel.samples} samples", [interval for _, interval in values]), {}),
        ]
        if panel.change is not None:
            means = {"nll": panel.change.nll, "gain": panel.change.gain, "evidence": panel.change.evidence}
            changes = ", ".join(f"{name} {estimate.mean:+.2f}" for name, estimate in means.items() if estimate)
            lines.append((f"  against the baseline, {panel.change.pairs} pairs: {changes}", {}))
        lines += [(f"  {finding}", {"yellow": True}) for finding in panel.findings]
    tokens = section.tokens
    return [*lines, (f"{tokens.computed:,} tokens computed for likelihoods, {tokens.reused:,} reused", {})]


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:<{WIDTH}}" + "".join(f" {cell:>{WIDTH - 1}}" for cell in cells)


def _markdown(document: JsonReport) -> str:
    """Return the likelihoods of gold answers, pooled by family and length; empty without any."""
    section = document.likelihood
    if section is None or not section.panels:
        return ""
    rows = [
        (f"{panel.family} {short_length(panel.length)}", *(value for value, _ in texts(panel)), str(panel.samples))
        for panel in section.panels
    ]
    findings = [
        f"- {panel.family} {short_length(panel.length)}: {markdown_text(finding, 240)}"
        for panel in section.panels
        for finding in panel.findings
    ]
    table = markdown_table(("", *MEASURES.values(), "samples"), rows)
    return "\n\n".join((CAPTION, table, *(["\n".join(findings)] if findings else [])))


def _page(document: JsonReport, _: Details) -> dict[str, Any]:
    """Return the rows of panels, each followed by its cases, and the findings; None for a run of answers only."""
    section = document.likelihood
    if section is None:
        return {"likelihood": None}
    rows = []
    for panel in section.panels:
        rows.append(_page_row("mean", _name(panel), panel))
        if panel.change is not None:
            rows.append({"kind": "mean", "name": "change", "texts": texts(panel.change), "samples": panel.change.pairs})
        for case in document.cases:
            family = case.category if case.suite == "helmet" else case.suite
            entry = section.cases.get(case.id)
            if entry is not None and (family, case.length) == (panel.family, panel.length):
                rows.append(_page_row("task", case.task, entry))
    shown = {
        "caption": CAPTION,
        "headings": list(MEASURES.values()),
        "rows": rows,
        "findings": [f"{_name(panel)}: {finding}" for panel in section.panels for finding in panel.findings],
    }
    return {"likelihood": shown}


def _page_row(kind: str, name: str, entry: CaseLikelihood) -> dict[str, Any]:
    return {"kind": kind, "name": name, "texts": texts(entry), "samples": entry.samples}


def _name(panel: LikelihoodPanel) -> str:
    return f"{panel.family} at {short_length(panel.length)}"


LIKELIHOOD = Section(terminal=_terminal, markdown=_markdown, page=_page)
