"""The comparison with --baseline: its part of the report, and the lines that reports show."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records.report import (
    CaseComparison,
    ComparedModel,
    JsonReport,
    RegressionSummary,
    ReportDifference,
    ReportEndings,
)
from longctx.plugins.config.run_facts import Baseline, RunFacts
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.charts import difference_class
from longctx.plugins.report.sections.suites import mean_of_all
from longctx.plugins.report.tables import (
    Cell,
    Note,
    Row,
    Table,
    Tone,
    counted,
    notes,
    short_length,
    shown_interval,
    shown_number,
    tested_lengths,
)
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation

MOST_DROPPED = 10
MOST_DIFFERENCES = 6


def regression(
    evaluation: Evaluation, run: RunFacts, execution: Mapping[str, str] | None, report_file: Path | None
) -> RegressionSummary | None:
    """Return the comparison with the baseline; None without one. A difference is the model's score minus its score.

    `execution` is the execution path of a baseline that was run; `report_file` is the file of the JSON report.
    """
    baseline = run.baseline
    if baseline is None:
        return None
    source = None if baseline.checkpoint is None else baseline.checkpoint.source
    thresholds = run.thresholds.regression
    execution = execution or baseline.execution
    return RegressionSummary(
        baseline=ComparedModel(
            name=baseline.name,
            fingerprint=baseline.fingerprint,
            source=source,
            engine=execution.get("engine") or "hf",
            execution=dict(execution) or None,
        ),
        scores=_baseline_scores(evaluation.measured),
        drop=thresholds.drop,
        false_discoveries=thresholds.false_discoveries,
        cases={case_id: diagnosis.comparison for case_id, diagnosis in evaluation.diagnoses.items()},
        differences=baseline.differences,
        endings=evaluation.endings,
        cause=_cause_command(evaluation, run.checkpoint.path, baseline, report_file),
    )


def _cause_command(evaluation: Evaluation, model: str, baseline: Baseline, report_file: Path | None) -> str | None:
    """Return the command that looks for the cause of the loss of the case with most worse samples.

    None if no case or gate is worse than the baseline, if no such case has gold answers, or without both checkpoints.
    """
    good = baseline.path if baseline.checkpoint is None else baseline.checkpoint.path
    if good is None or not (os.path.isdir(good) and os.path.isdir(model)):
        return None
    has_lost = any(verdict.kind == "regression" and verdict.verdict == "fail" for verdict in evaluation.verdicts)
    lost = {}
    for case_id, diagnosis in evaluation.diagnoses.items():
        compared = diagnosis.comparison
        is_worse = compared.dropped or (has_lost and compared.worse > compared.better)
        if is_worse and evaluation.measured.results[case_id].case.has_gold:
            lost[case_id] = compared.worse
    if not lost:
        return None
    words = ["longctx", "diagnose", str(absolute(good)), str(absolute(model))]
    if report_file is not None:
        words += ["--report", str(absolute(report_file))]
    return shlex.join([*words, "--case", max(lost, key=lost.__getitem__)])


def _baseline_scores(measured: Measured) -> dict[str, dict[str, float]]:
    """Return the baseline's mean over the tasks of each family, by length in tokens, on the pairs that were measured.

    A length at which a case has no pair is left out.
    """
    panels: dict[tuple[str, int], list[float | None]] = {}
    for case in measured.scope.cases:
        result = measured.results.get(case.id)
        mean = fmean(result.baseline) if result is not None and result.baseline else None
        panels.setdefault((case.family, case.length), []).append(mean)
    scores: dict[str, dict[str, float]] = {}
    for (family, length), means in panels.items():
        mean = mean_of_all(means)
        if mean is not None:
            scores.setdefault(family, {})[str(length)] = to_points(mean)
    return scores


def comparison_notes(report: JsonReport) -> list[Note]:
    """Return the changed samples, the differences of the checkpoints, and how far their answers compare."""
    regression = report.regression
    if regression is None:
        ended, known = report.run.ended_answers, report.run.answers_to_the_end
        counts = f"of {known} answers computed to their end, {ended} end by themselves"
        return notes("endings", [counts] if ended < known else [])
    baseline = regression.baseline
    shown = [Note(name="baseline", text=f"{baseline.name}: {_changes_text(regression)}")]
    if regression.differences is not None:
        is_same = report.model.fingerprint == baseline.fingerprint
        shown += notes("differs", [difference_text(regression.differences, is_same=is_same)])
    if regression.endings is not None:
        tone: Tone = "bad" if regression.endings.lost else ""
        shown.append(Note(name="endings", text=endings_text(regression.endings), tone=tone))
    if report.model.execution and baseline.execution:
        differing = _differing_settings(report.model.execution, baseline.execution)
        texts = [f"the baseline's answers were computed otherwise: {differing}"] if differing else []
        shown += notes("otherwise", texts, "warning")
    return shown


def _changes_text(regression: RegressionSummary) -> str:
    worse = better = pairs = 0
    dropped = []
    for case_id, case in regression.cases.items():
        worse += case.worse
        better += case.better
        pairs += case.pairs
        if case.dropped:
            dropped.append(case_id)
    shown_worse = counted(dropped, MOST_DROPPED) or "none"
    return f"{worse:,} worse, {better:,} better of {pairs:,} pairs; cases shown to be worse: {shown_worse}"


def _differing_settings(model: Mapping[str, str], baseline: Mapping[str, str]) -> str:
    texts = []
    for name in {**model, **baseline}:
        theirs, ours = baseline.get(name, "unset"), model.get(name, "unset")
        if theirs != ours:
            texts.append(f"{name} {theirs}, not {ours}")
            # The settings of two engines cannot be compared.
            if name == "engine":
                return texts[-1]
    return "; ".join(texts)


def endings_text(endings: ReportEndings) -> str:
    """Return how many answers ended by themselves, and the places of end tokens if the model has lost some."""
    counts = (
        f"of {endings.pairs} answers computed to their end, {endings.model} end by themselves, {endings.baseline} of "
        "the baseline's"
    )
    if not endings.lost:
        return counts
    return (
        f"{counts}: the model ends fewer; look at its end tokens (eos_token_id, chat template, their rows of the "
        "embeddings)"
    )


def difference_text(differences: Sequence[ReportDifference], *, is_same: bool) -> str:
    """Return in one line what differs between the files of two checkpoints, which may be the same one."""
    if is_same:
        return "the model is the baseline itself"
    if not differences:
        return "no difference from the baseline but, at most, in the values of the weights"
    named = [_shown_difference(difference) for difference in differences[:MOST_DIFFERENCES]]
    rest = [f"{len(differences) - len(named)} more"] if len(differences) > len(named) else []
    return f"other than in the baseline: {'; '.join([*named, *rest])}"


def _shown_difference(difference: ReportDifference) -> str:
    part, name = difference.part, difference.name
    ours, theirs = difference.model, difference.baseline
    if part == "weights" and theirs is None:
        return f"weights {name}" + (f": {ours}" if ours else "")
    subject = " ".join(filter(None, (part, name)))
    if ours is None and theirs is None:
        return subject
    return f"{subject} is {ours or 'missing'}, not {theirs or 'missing'}"


def difference_tables(document: JsonReport) -> list[Table]:
    """Return the differences from the baseline by task and length, a table for each suite."""
    lengths, regression = tested_lengths(document), document.regression
    if regression is None:
        return []
    ids: dict[str, dict[str, dict[int, str]]] = {}
    for case in document.cases:
        ids.setdefault(case.suite, {}).setdefault(case.task, {})[case.length] = case.id
    tables = []
    for suite, tasks in ids.items():
        rows = []
        for task, by_length in tasks.items():
            compared = {length: regression.cases.get(by_length.get(length, "")) for length in lengths}
            cells = [_difference_cell(case, task, length) for length, case in compared.items()]
            rows.append(Row(name=task, cells=tuple(cells)))
        columns = tuple(map(short_length, lengths))
        tables.append(Table(name=suite.upper(), corner="task", columns=columns, rows=tuple(rows)))
    return tables


def _difference_cell(case: CaseComparison | None, task: str, length: int) -> Cell:
    if case is None or case.difference is None:
        return Cell()
    pairs = f"{case.worse} worse, {case.better} better of {case.pairs} pairs"
    if case.no_vote:
        pairs += f"; {case.no_vote}"
    return Cell(
        text=shown_number(case.difference, signed=True) + (" =" if case.no_vote else ""),
        style=difference_class(case.difference) + (" bad" if case.dropped else ""),
        title=f"interval {shown_interval(case.interval, signed=True)}; {pairs}",
        task=task,
        length=length,
    )
