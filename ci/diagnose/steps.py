"""The work of `longctx diagnose` after its options are read: the files, then the exchange of parts, then the report."""

import argparse
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from longctx.ci.bisect.journal_stats import Flip, flipped, stored_answers
from longctx.ci.diagnose.report import Diagnosis, candidate_line, cause_lines, static_conclusion, static_lines
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.cli import print_line
from longctx.fixtures.diagnosis.cause import FEWEST_TELLING, find_cause
from longctx.fixtures.diagnosis.exchange import Exchanger
from longctx.fixtures.diagnosis.static import compare_files
from longctx.fixtures.lengths import LengthError, parse_length
from longctx.fixtures.outside_files import expanded
from longctx.fixtures.records.errors import DiagnosisError, EngineError
from longctx.fixtures.records.report import ReportFileError, read_report_file
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import CannotFit, Task
from longctx.fixtures.tokenization.load import TokenizerError
from longctx.fixtures.tokenization.prompts import ChatMode

# Wrong use, or checkpoints that cannot be compared; the message of each is one line.
USE_ERRORS = (CheckpointError, CannotFit, DiagnosisError, EngineError, TokenizerError)
# Options that change the prompts and that a diagnosis does not take, with their defaults.
OTHER_PROMPTS = {
    "data_dir": None, "prompts": None, "length_tokenizer": None, "thinking_budget": 0, "demonstrations": 2,
}  # fmt: skip


def diagnose(given: argparse.Namespace, command: str) -> int:
    """Compare the checkpoints, exchange parts if there is a case, and write the report; return 0, or 1 without a cause.

    `command` repeats the diagnosis. Raises one of USE_ERRORS.
    """
    good, bad = read_checkpoint(given.good, option="GOOD"), read_checkpoint(given.bad, option="BAD")
    if good.fingerprint == bad.fingerprint:
        raise DiagnosisError(f"BAD: {given.bad} holds the same checkpoint as GOOD; give the one that is worse")
    if given.samples < FEWEST_TELLING:
        raise DiagnosisError(f"--samples: {given.samples} is too few; use {FEWEST_TELLING} or more")
    alarm = None
    if given.report is not None:
        alarm = _read_alarm(given.report, good.fingerprint, bad.fingerprint, given.case)
    case = alarm.case if alarm else given.case
    task, length = (None, 0) if case is None else _read_case(case)
    out = expanded(given.out)
    out.mkdir(parents=True, exist_ok=True)
    exchanger = None if task is None else Exchanger(
        good, bad, task, length,
        seed=alarm.seed if alarm else given.seed, chat=alarm.chat if alarm else "auto", folder=out,
        device=given.device, dtype=given.dtype,
    )  # fmt: skip
    static = compare_files(good, bad, _progress)
    for line in [*static_lines(static), static_conclusion(static)]:
        print_line(line)
    flips = alarm.flips if alarm else ()
    diagnosis = Diagnosis(good=good.path, bad=bad.path, case=case, command=command, static=static, flips=flips)
    diagnosis.write(out)
    if exchanger is None:
        return 0
    cause = find_cause(
        exchanger, static,
        order=[flip.index for flip in flips] or range(given.samples),
        known="report" if alarm else "case",
        note=lambda candidate: print_line(candidate_line(candidate)),
    )  # fmt: skip
    diagnosis = replace(diagnosis, cause=cause)
    for line in cause_lines(cause, static):
        print_line(line)
    diagnosis.write(out)
    return 0 if cause.culprits else 1


def _read_case(case: str) -> tuple[Task, int]:
    match = re.fullmatch(r"\w+\[(\w+)-(\w+)\]", case)
    if match is None or match[1] not in TASKS:
        raise DiagnosisError(
            f"--case: {case!r} is no case of a task of longctx tasks; write test_ruler[niah_multikey_1-4k]"
        )
    try:
        return TASKS[match[1]], parse_length(match[2])
    except LengthError as error:
        raise DiagnosisError(f"--case: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alarm:
    """The result of one case in the report of a failed run."""

    case: str
    seed: int
    chat: ChatMode
    """The value of --chat."""
    flips: tuple[Flip, ...]
    """The samples that GOOD answers better, in the order of their index."""


def _read_alarm(file: Path, good: str, bad: str, case: str | None) -> _Alarm:
    """Return the telling samples of a report of BAD; `good` and `bad` are fingerprints.

    Without a case it is the one with the most of them. Raises DiagnosisError with one line.
    """
    try:
        report = read_report_file(expanded(file))
    except ReportFileError as error:
        raise DiagnosisError(f"--report: {error}") from error
    options = report.run.options
    if set_otherwise := [name for name, default in OTHER_PROMPTS.items() if options.get(name, default) != default]:
        raise DiagnosisError(
            f"--report: {file} was measured with --{set_otherwise[0].replace('_', '-')}, and a diagnosis has the "
            "shipped prompts; leave --report out and give --case"
        )
    names = [outcome.id for outcome in report.cases if case in (None, outcome.id) and outcome.task in TASKS]
    if not names:
        raise DiagnosisError(f"--report: {file} has no case {case or 'of a shipped task'}; name one of its cases")
    answers = [stored_answers(report, fingerprint, names) for fingerprint in (good, bad)]
    flips = [flip for flip in flipped(*answers) if flip.before > flip.after]
    by_case = {name: [flip for flip in flips if flip.case == name] for name in names}
    chosen = max(names, key=lambda name: len(by_case[name]))
    if not by_case[chosen]:
        raise DiagnosisError(
            f"--report: the journal {report.run.journal} has no sample that GOOD answers better than BAD; give the "
            "report of BAD's run against GOOD, or leave --report out"
        )
    ordered = sorted(by_case[chosen], key=lambda flip: (flip.after - flip.before, flip.index))
    return _Alarm(case=chosen, seed=report.run.seed, chat=options.get("chat", "auto"), flips=tuple(ordered))


def _progress(line: str) -> None:
    """Show how far the comparison is, on a terminal only."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()
