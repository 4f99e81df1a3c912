"""The work of `longctx diagnose` after its options are read: the files, then the exchange of parts, then the report."""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import replace

from longctx.ci.diagnose.report import Diagnosis
from longctx.ci.diagnose.telling import read_alarm
from longctx.ci.diagnose.words import candidate_line, cause_lines, static_conclusion, static_lines
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.cli import print_line
from longctx.fixtures.diagnosis.cause import FEWEST_TELLING, find_cause
from longctx.fixtures.diagnosis.exchange import Exchanger
from longctx.fixtures.diagnosis.settings import DiagnosisError
from longctx.fixtures.diagnosis.static import compare_files
from longctx.fixtures.lengths import LengthError, parse_length
from longctx.fixtures.outside_files import expanded
from longctx.fixtures.records.errors import EngineError
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import CannotFit, Task
from longctx.fixtures.tokenization.load import TokenizerError

# Wrong use, or checkpoints that cannot be compared; the message of each is one line.
USE_ERRORS = (CheckpointError, CannotFit, DiagnosisError, EngineError, TokenizerError)


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
        alarm = read_alarm(given.report, good.fingerprint, bad.fingerprint, given.case)
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
    diagnosis = Diagnosis(good=good.path, bad=bad.path, case=case, command=command, static=static, alarm=alarm)
    diagnosis.write(out)
    if exchanger is None:
        return 0
    cause = find_cause(
        exchanger, static,
        order=[flip.index for flip in alarm.flips] if alarm else range(given.samples),
        known="report" if alarm else "case",
        note=lambda candidate: print_line(candidate_line(candidate)),
    )  # fmt: skip
    diagnosis = replace(diagnosis, cause=cause, computed_tokens=exchanger.computed_tokens)
    for line in cause_lines(cause, static, exchanger.computed_tokens):
        print_line(line)
    diagnosis.write(out)
    return 0 if cause.culprits else 1


def _read_case(case: str) -> tuple[Task, int]:
    """Return the task and the length of a case's id."""
    match = re.fullmatch(r"\w+\[(\w+)-(\w+)\]", case)
    if match is None or match[1] not in TASKS:
        raise DiagnosisError(
            f"--case: {case!r} is no case of a task of longctx tasks; write test_ruler[niah_multikey_1-4k]"
        )
    try:
        return TASKS[match[1]], parse_length(match[2])
    except LengthError as error:
        raise DiagnosisError(f"--case: {error}") from error


def _progress(line: str) -> None:
    """Show how far the comparison is, on a terminal only."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()
