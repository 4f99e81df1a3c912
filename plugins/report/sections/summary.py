"""The topics of a short report, which the terminal and Markdown show alike."""

from collections.abc import Sequence

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.sections.comparison import comparison_notes
from longctx.plugins.report.sections.engine import cost_notes, invariance_table, notes_of
from longctx.plugins.report.sections.gates import gate_table, run_verdict, seed_role, warning_texts
from longctx.plugins.report.sections.likelihood import finding_notes, likelihood_tables
from longctx.plugins.report.sections.ruler import model_notes
from longctx.plugins.report.sections.scores import lowest_table, score_notes, score_tables
from longctx.plugins.report.sections.suites import frontier_notes, question_notes
from longctx.plugins.report.tables import Note, Table, notes

MOST_PASSING, LOWEST_CASES = 6, 5
Topic = Table | Sequence[Note]


def topics(document: JsonReport) -> list[Topic]:
    """Return tables and notes in the order in which they are shown, below or above the verdict."""
    verdict = document.verdict or run_verdict(document)
    is_pass = verdict.word == "pass"
    # Advice and examples stand where they may change a decision.
    advice = [] if is_pass or not document.gates else [*warning_texts(document), seed_role(document)]
    shown: list[Topic] = [model_notes(document)]
    if document.likelihood is None or document.likelihood.signal == "both":
        shown += [*score_tables(document), score_notes(document)]
    shown += [notes_of(document), finding_notes(document), *likelihood_tables(document)]
    shown += [frontier_notes(document), question_notes(document), comparison_notes(document)]
    shown.append(lowest_table(document, 0 if is_pass else LOWEST_CASES))
    shown += [cost_notes(document), invariance_table(document.invariance or ())]
    return [*shown, gate_table(document, MOST_PASSING), notes("advice", advice)]
