"""The comparison with --baseline: its part of the report, and what the reports show of it."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from statistics import fmean
from typing import Any

from msgspec import UNSET

from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records import CaseResult, RepeatedAnswers
from longctx.fixtures.records.report import CaseComparison, ComparedModel, JsonReport, RegressionSummary
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.charts.colours import difference_class
from longctx.plugins.report.formats import Line, both_ends, markdown_text, named_line, shown_number
from longctx.plugins.report.html.tables import Cell, Row, Table, score_table, tested_lengths
from longctx.plugins.report.made_of import source_of
from longctx.plugins.report.sections.section import Section
from longctx.plugins.report.summary import Details, RunSummary
from longctx.plugins.verdicts.evaluate import Measured

MOST_DROPPED = 10


def regression(summary: RunSummary) -> RegressionSummary | None:
    """Return the comparison with the baseline; None without one. A difference is the model's score minus its score."""
    evaluation, run = summary.evaluation, summary.run
    baseline = run.baseline
    if baseline is None:
        return None
    thresholds = run.thresholds.regression
    return RegressionSummary(
        baseline=ComparedModel(
            name=baseline.name,
            fingerprint=baseline.fingerprint,
            source=source_of(baseline.checkpoint),
            engine=baseline.execution.get("engine") or "hf",
            execution=dict(summary.baseline_execution or baseline.execution) or None,
        ),
        repeated=evaluation.measured.repeated or UNSET,
        scores=_baseline_scores(evaluation.measured),
        drop=thresholds.drop,
        false_discoveries=thresholds.false_discoveries,
        cases={
            case_id: CaseComparison(
                difference=diagnosis.difference,
                interval=diagnosis.difference_interval,
                worse=diagnosis.flips[0],
                better=diagnosis.flips[1],
                haystacks_worse=diagnosis.votes[0],
                haystacks_better=diagnosis.votes[1],
                no_vote=diagnosis.no_vote,
                pairs=diagnosis.pairs,
                detectable=diagnosis.detectable,
                dropped=diagnosis.dropped,
            )
            for case_id, diagnosis in evaluation.diagnoses.items()
        },
        cause=_cause_command(summary, baseline),
    )


def _cause_command(summary: RunSummary, baseline: Baseline) -> str | None:
    """Return the command that looks for the cause of the loss of the case with most worse samples.

    None if no case or gate is worse than the baseline, if no such case has gold answers, or without both checkpoints.
    """
    evaluation, model = summary.evaluation, summary.run.checkpoint.path
    good = baseline.path if baseline.checkpoint is None else baseline.checkpoint.path
    has_lost = any(verdict.kind == "regression" and verdict.verdict == "fail" for verdict in evaluation.verdicts)
    lost = {
        case_id: diagnosis.flips[0]
        for case_id, diagnosis in evaluation.diagnoses.items()
        if (diagnosis.dropped or (has_lost and diagnosis.flips[0] > diagnosis.flips[1]))
        and evaluation.measured.results[case_id].case.has_gold
    }
    if not lost or good is None or not (os.path.isdir(good) and os.path.isdir(model)):
        return None
    samples = [] if summary.json_file is None else ["--report", str(absolute(summary.json_file))]
    words = ["longctx", "diagnose", *map(str, map(absolute, (good, model)))]
    return shlex.join([*words, *samples, "--case", max(lost, key=lambda case_id: lost[case_id])])


def _baseline_scores(measured: Measured) -> dict[str, dict[str, float]]:
    """Return the baseline's mean over the tasks of each family, by length in tokens, on the pairs that were measured.

    A length at which a case has no pair is left out.
    """
    panels: dict[tuple[str, int], list[CaseResult | None]] = {}
    for case in measured.scope.cases:
        panels.setdefault((case.family, case.length), []).append(measured.results.get(case.id))
    scores: dict[str, dict[str, float]] = {}
    for (family, length), results in panels.items():
        means = [fmean(result.baseline) for result in results if result is not None and result.baseline]
        if len(means) == len(results):
            scores.setdefault(family, {})[str(length)] = to_points(fmean(means))
    return scores


def no_votes(document: JsonReport) -> str:
    """Return how many compared cases have no vote, and why; empty if all have one."""
    regression = document.regression
    if regression is None:
        return ""
    compared = [case for case in regression.cases.values() if case.pairs]
    reasons = Counter(case.no_vote for case in compared if case.no_vote)
    if not reasons:
        return ""
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"{reasons.total()} of {len(compared)} cases have no vote in the comparison: {counts}"


def _execution_difference(report: JsonReport) -> str:
    """Return the settings in which the baseline's answers were computed otherwise than the model's; empty for none."""
    model, baseline = report.model.execution, report.regression.baseline.execution if report.regression else None
    if not model or not baseline:
        return ""
    names = [name for name in {**model, **baseline} if model.get(name) != baseline.get(name)]
    values = (f"{name} {baseline.get(name, 'unset')}, not {model.get(name, 'unset')}" for name in names)
    return f"the baseline's answers were computed otherwise: {'; '.join(values)}" if names else ""


def _repeated_text(report: JsonReport) -> str:
    """Return how often the server's answers differ by themselves; empty where no server answered twice."""
    repeated = report.regression.repeated if report.regression else None
    if not isinstance(repeated, RepeatedAnswers):
        return ""
    return (
        f"{repeated.samples} samples answered twice by the server: {repeated.other_texts} other texts, "
        f"{repeated.other_scores} other scores, so at most {repeated.most:.1f} % of scores differ by themselves"
    )


def _terminal(report: JsonReport) -> list[Line]:
    notes = (_execution_difference(report), True), (_repeated_text(report), False)
    return [named_line("baseline", text, yellow=is_warning) for text, is_warning in notes if text]


def _markdown(document: JsonReport) -> str:
    """Return the comparison with the baseline as one sentence; empty without a baseline."""
    regression = document.regression
    if regression is None:
        return ""
    cases = regression.cases
    worse, better = sum(case.worse for case in cases.values()), sum(case.better for case in cases.values())
    pairs = sum(case.pairs for case in cases.values())
    dropped = [case_id for case_id, case in cases.items() if case.dropped]
    shown = ", ".join(markdown_text(case_id, 60) for case_id in dropped[:MOST_DROPPED]) or "none"
    more = f" and {len(dropped) - MOST_DROPPED} more" if len(dropped) > MOST_DROPPED else ""
    counts = f"Against {markdown_text(regression.baseline.name, 80)}: {worse} worse, {better} better of {pairs} pairs"
    without_vote = f"; {no_votes(document)}" if no_votes(document) else ""
    text = f"{counts}; cases shown to be worse: {shown}{more}{without_vote}"
    notes = (_execution_difference(document), _repeated_text(document))
    return "; ".join([text, *(markdown_text(note, 400) for note in notes if note)])


def _page(document: JsonReport, _: Details) -> dict[str, Any]:
    """Return the differences from the baseline: a table for each suite, and the totals; None without a baseline."""
    regression = document.regression
    if regression is None:
        return {"comparison": None}
    cases = regression.cases.values()
    shown = {
        "name": regression.baseline.name,
        "tables": [
            _difference_table(document, regression, suite)
            for suite in dict.fromkeys(case.suite for case in document.cases)
        ],
        "no_votes": no_votes(document),
        "notes": [note for note in (_execution_difference(document), _repeated_text(document)) if note],
        "worse": sum(case.worse for case in cases),
        "better": sum(case.better for case in cases),
        "pairs": sum(case.pairs for case in cases),
        "cause": regression.cause,
    }
    return {"comparison": shown}


def _difference_table(document: JsonReport, regression: RegressionSummary, suite: str) -> Table:
    lengths = tested_lengths(document)
    ids = {(case.task, case.length): case.id for case in document.cases}
    rows = []
    for task in dict.fromkeys(case.task for case in document.cases if case.suite == suite):
        cells = []
        for length in lengths:
            case = regression.cases.get(ids.get((task, length), ""))
            if case is None or case.difference is None:
                cells.append(Cell())
                continue
            pairs = f"{case.worse} worse, {case.better} better of {case.pairs} pairs"
            if case.no_vote:
                pairs += f"; {case.no_vote}: no vote"
            cells.append(
                Cell(
                    text=shown_number(case.difference, signed=True) + (" =" if case.no_vote else ""),
                    style=difference_class(case.difference) + (" bad" if case.dropped else ""),
                    title=f"interval {both_ends(case.interval, signed=True)}; {pairs}",
                    task=task,
                    length=length,
                )
            )
        rows.append(Row(name=task, cells=tuple(cells)))
    return score_table(suite.upper(), lengths, rows)


COMPARISON = Section(terminal=_terminal, markdown=_markdown, page=_page)
