"""The likelihoods of gold answers (--signal): their part of the report, and the lines that reports show."""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

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
from longctx.plugins.evidence.likelihood_estimates import DIFFERENCE_CLIP, LEAST_EVIDENCE_GAIN, NLL_CLIP
from longctx.plugins.report.tables import Cell, Note, Row, Table, notes, short_length
from longctx.plugins.verdicts.evaluation import Evaluation
from longctx.plugins.verdicts.likelihood_gates import PanelLikelihood

# A smaller change against the baseline, in nats, is no finding: rounding alone causes as much.
LEAST_CHANGE = 0.05
IN_POINTS = ("recovery", "greedy")
MEASURES: Mapping[str, str] = {
    "nll": "nll",
    "gain": "gain",
    "recovery": "recovery",
    "evidence": "evidence",
    "greedy": "greedy",
    "margin": "gold - foil",
}
"""The measures that every report shows, by their key in the document, with their heading."""


def likelihood(evaluation: Evaluation) -> LikelihoodSummary | None:
    """Return the likelihoods of all panels; None for a run that measured answers only."""
    scope = evaluation.measured.scope
    if scope.signal == "answers":
        return None
    measured = evaluation.measured.likelihoods.values()
    panels = []
    cases: dict[str, CaseLikelihood] = {}
    for panel in evaluation.likelihood:
        cases |= panel.cases
        place: dict[str, Any] = {"family": panel.family, "length": panel.length}
        pooled = structs.asdict(panel.pooled) | place
        panels.append(LikelihoodPanel(**pooled, change=panel.change, findings=_findings(panel)))
    return LikelihoodSummary(
        signal="both" if scope.signal == "both" else "likelihood",
        confidence=1 - ESTIMATE_ALPHA,
        nll_clip=NLL_CLIP,
        difference_clip=DIFFERENCE_CLIP,
        least_evidence_gain=LEAST_EVIDENCE_GAIN,
        tokens=LikelihoodTokens(
            computed=sum(item.computed_tokens for item in measured), reused=sum(item.reused_tokens for item in measured)
        ),
        panels=tuple(panels),
        cases=cases,
    )


def likelihood_tables(document: JsonReport) -> list[Table]:
    """Return a table of all panels, each with its change against the baseline; none for a run of answers only."""
    section = document.likelihood
    if section is None:
        return []
    rows = []
    for panel in section.panels:
        rows.append(_row(f"{panel_name(panel)}, {panel.samples} samples", panel))
        if panel.change is not None:
            rows.append(_row(f"change, {panel.change.pairs} pairs", panel.change))
    columns = tuple(MEASURES.values())
    return [Table(name="Likelihood of gold answers", corner="panel", columns=columns, rows=tuple(rows))]


def finding_notes(document: JsonReport) -> list[Note]:
    section = document.likelihood
    if section is None:
        return []
    shown = [Note(name="likelihood", text="of gold answers, in nats per token. It screens; answers decide")]
    for panel in section.panels:
        shown += notes("", [f"{panel_name(panel)}: {finding}" for finding in panel.findings], "warning")
    return shown


def panel_name(panel: LikelihoodPanel) -> str:
    return f"{panel.family} {short_length(panel.length)}"


def _row(name: str, entry: CaseLikelihood | LikelihoodChanges) -> Row:
    cells = []
    for key in MEASURES:
        estimate: MeanEstimate | None = getattr(entry, key, None)
        if estimate is None:
            cells.append(Cell())
            continue
        low, high = estimate.interval
        if key in IN_POINTS:
            cells.append(Cell(text=f"{estimate.mean:.1f}", interval=f"{low:.0f} to {high:.0f}"))
        else:
            is_signed = key == "margin" or isinstance(entry, LikelihoodChanges)
            text = f"{estimate.mean:+.2f}" if is_signed else f"{estimate.mean:.2f}"
            cells.append(Cell(text=text, interval=f"{low:.2f} to {high:.2f}"))
    return Row(name=name, kind="mean", cells=tuple(cells))


def _findings(panel: PanelLikelihood) -> tuple[str, ...]:
    """Return the findings that the numbers alone do not show, one per sentence."""
    lines, change, margin = [], panel.change, panel.pooled.margin
    loss, evidence = (change.nll, change.evidence) if change is not None else (None, None)
    if margin is not None and margin.low <= 0:
        lines.append("gold answers are not told from distractors, so a gain may be fluency and not retrieval")
    if evidence is not None and evidence.low > LEAST_CHANGE:
        lines.append(
            f"short contexts have suffered: the loss on the evidence alone rose by {evidence.mean:.2f} nats, "
            "so a rise of recovery means nothing"
        )
    if loss is not None and (loss.low > LEAST_CHANGE or loss.high < -LEAST_CHANGE):
        lines.append(
            f"the loss of the gold answers changed by {loss.mean:+.2f} nats against the baseline, "
            "by calibration, format or retrieval: answers decide which"
        )
    return tuple(lines)
