"""The telling samples of an alarm: those that its journal knows GOOD to answer better than BAD."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from longctx.ci.bisect.journal_stats import Flip, JournalStats
from longctx.fixtures.diagnosis.settings import DiagnosisError
from longctx.fixtures.outside_files import expanded, read_outside
from longctx.fixtures.records.report import JsonReport, parse_report
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.prompts import ChatMode

# Options that change the prompts and that a diagnosis does not take.
OTHER_PROMPTS = ("data_dir", "prompts", "length_tokenizer", "thinking_budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The result of one case in the report of a failed run."""

    case: str
    seed: int
    chat: ChatMode
    """The value of --chat."""
    flips: tuple[Flip, ...]
    """The samples that GOOD answers better, in the order of their index."""


def read_alarm(file: Path, good: str, bad: str, case: str | None) -> Alarm:
    """Return the telling samples of a report of BAD; `good` and `bad` are fingerprints.

    Without a case it is the one with the most of them. Raises DiagnosisError with one line.
    """
    report = _report(file)
    options = report.run.options
    if set_otherwise := [name for name in OTHER_PROMPTS if options.get(name)]:
        raise DiagnosisError(
            f"--report: {file} was measured with --{set_otherwise[0].replace('_', '-')}, and a diagnosis has the "
            "shipped prompts; leave --report out and give --case"
        )
    names = [outcome.id for outcome in report.cases if case in (None, outcome.id) and outcome.task in TASKS]
    if not names:
        raise DiagnosisError(f"--report: {file} has no case {case or 'of a shipped task'}; name one of its cases")
    flips = [flip for flip in JournalStats(report, 0).flips(good, bad, names) if flip.before > flip.after]
    by_case = {name: [flip for flip in flips if flip.case == name] for name in names}
    chosen = max(names, key=lambda name: len(by_case[name]))
    if not by_case[chosen]:
        raise DiagnosisError(
            f"--report: the journal {report.run.journal} has no sample that GOOD answers better than BAD; give the "
            "report of BAD's run against GOOD, or leave --report out"
        )
    ordered = sorted(by_case[chosen], key=lambda flip: (flip.after - flip.before, flip.index))
    return Alarm(case=chosen, seed=report.run.seed, chat=options.get("chat", "auto"), flips=tuple(ordered))


def _report(file: Path) -> JsonReport:
    try:
        return parse_report(read_outside(expanded(file)))
    except OSError as error:
        raise DiagnosisError(
            f"--report: cannot read {file} ({error.strerror}); give a file of --report-json"
        ) from error
    except ValueError as error:
        raise DiagnosisError(f"--report: {file} is no report ({error}); give a file of --report-json") from error
