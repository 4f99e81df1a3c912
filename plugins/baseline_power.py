"""Print what a comparison with --baseline can detect, before any model is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fixtures.lengths import format_length
from fixtures.records import Case
from plugins.config.baseline import Baseline, finished_journal
from plugins.config.run import Run
from plugins.controller import CONTROLLER
from plugins.gates.clusters import SampleRef
from plugins.gates.hypotheses import RULER, build_panels
from plugins.gates.panels import Panel
from plugins.gates.points import to_points
from plugins.gates.power import can_rule_out, detectable_case_loss, detectable_panel_loss
from plugins.journal import JournalError
from plugins.options import RUN

INDENT = 11
PRINTED = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    _print(session.config)


@pytest.hookimpl(trylast=True, optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    """Print the lines when the cases are known, which with workers only they collect."""
    _print(node.config)


def _print(config: pytest.Config) -> None:
    option, reporter = config.option, config.pluginmanager.get_plugin("terminalreporter")
    if RUN not in config.stash or hasattr(config, "workerinput") or reporter is None or PRINTED in config.stash:
        return
    # Under --plan the lines are part of the plan.
    cases = config.stash[CONTROLLER].selected
    if cases and not (option.plan or option.collectonly or option.preflight):
        config.stash[PRINTED] = True
        for line in power_lines(config.stash[RUN], cases):
            reporter.write_line(line)


def power_lines(run: Run, cases: Sequence[Case]) -> list[str]:
    """Return the lines about the comparison of these cases; none for a run without a baseline.

    Lengths that can detect the same loss share a line.
    """
    baseline = run.baseline
    if baseline is None:
        return []
    head = f"{baseline.name}"
    if baseline.limit:
        head = f"the report of {baseline.name} cannot be extended: {baseline.limit}"
    elif baseline.path is not None:
        extended = "its checkpoint answers the samples that are missing" if baseline.checkpoint else "it is complete"
        head = f"the report of {baseline.name}; {extended}"
    panels = build_panels(run.thresholds, run.scope(cases)).values()
    compared = [panel for panel in panels if panel.non_inferiority is not None]
    names: dict[str, list[str]] = {}
    for panel in compared:
        family = "" if panel.family == RULER else f"{panel.family} "
        names.setdefault(_detects(run, panel, baseline), []).append(f"{family}{format_length(panel.length)}")
    lines = [f"{', '.join(places)}: {text}" for text, places in names.items()]
    return [f"{'baseline':<{INDENT}}{head}", *(f"{'':<{INDENT}}{line}" for line in lines)]


def _detects(run: Run, panel: Panel, baseline: Baseline) -> str:
    """Return the number of pairs of one panel, and the losses that they detect."""
    assert panel.non_inferiority is not None
    queue = panel.queue(panel.cases)
    planned = len(queue.clusters)
    known = planned if baseline.path is None else _known_pairs(run, panel, baseline)
    available = known if baseline.checkpoint is None else planned
    loss = detectable_panel_loss(panel.non_inferiority, queue, available)
    case_loss = _case_loss(run, panel, queue.refs[: queue.sample_count(available)])
    losses = f"{_loss(loss, 'of the mean')}, {_loss(case_loss, 'of one case')}"
    text = f"{available:,} of {planned:,} pairs detect {losses}"
    if available < planned and not can_rule_out(panel.non_inferiority, queue, available):
        return f"underpowered for a loss of {run.thresholds.regression.drop:g} points: {text}"
    return text if known == available else f"{text}; {known:,} are known"


def _known_pairs(run: Run, panel: Panel, baseline: Baseline) -> int:
    """Return the number of clusters at the start of the queue on which the report's journal has results."""
    journal = finished_journal(baseline)
    try:
        journal.refresh()
    except JournalError:
        return 0
    scores: Mapping[SampleRef, float] = {
        ref: entry.score
        for ref in panel.order
        if (entry := journal.entries.get(run.key(panel.cases[ref.case_id], ref.sample_index))) is not None
    }
    return len(panel.queue(panel.cases).weighted_means(scores))


def _case_loss(run: Run, panel: Panel, refs: Sequence[SampleRef]) -> float | None:
    """Return the loss that the case with the fewest haystacks in pairs detects; None if it has none."""
    haystacks = {(ref.case_id, panel.cases[ref.case_id].haystack(ref.sample_index)) for ref in refs}
    counts = Counter(case_id for case_id, _ in haystacks)
    pairs = min((counts[case_id] for case_id in panel.cases), default=0)
    cases = len(run.scope(run.measurable).cases)
    return detectable_case_loss(pairs, cases=cases, false_discoveries=run.thresholds.regression.false_discoveries)


def _loss(loss: float | None, of: str) -> str:
    return f"no loss {of}" if loss is None else f"a loss of {to_points(loss):.1f} {of}"
