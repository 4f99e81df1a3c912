"""Compare a good and a bad checkpoint of one architecture, and name the parts in which they differ.

    longctx diagnose runs/a/step-2000 runs/a/step-9000

The files are compared first: config, generation config, chat template, the tokenizer by what it does, and every tensor:
missing, NaN, zero, scaled, transposed, rows or heads permuted, a copy of another layer, or changed far more than the
others of its kind. The files are streamed and no model is loaded. A difference is no cause yet: a tensor may stand out
and cost nothing.

    longctx diagnose runs/a/step-2000 runs/a/step-9000 --case 'test_ruler[niah_multikey_1-4k]'

With --case, parts are exchanged between the two models. A part is named as the cause only if GOOD's part restores the
gold answers that BAD lost, and BAD's part makes GOOD lose them. The same command continues after it was stopped.

    longctx diagnose runs/a/step-2000 runs/a/step-9000 --report out/report.json

With --report, a JSON report of BAD's run against GOOD, the case and the samples come from its journal.

Exit codes: 0; 1 nothing carries the loss alone; 4 wrong use, or no loss to explain.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from longctx.ci.diagnose.report import Diagnosis
from longctx.ci.diagnose.telling import read_alarm
from longctx.ci.diagnose.words import candidate_line, cause_lines, static_conclusion, static_lines
from longctx.fixtures import heavy_imports
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.lengths import LengthError, parse_length
from longctx.fixtures.outside_files import absolute, expanded
from longctx.fixtures.records.errors import EngineError
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import CannotFit, Task
from longctx.fixtures.tokenization.load import TokenizerError

with heavy_imports.exempt_from_garbage_collection():
    from longctx.fixtures.diagnosis.cause import FEWEST_TELLING, find_cause
    from longctx.fixtures.diagnosis.exchange import Exchanger
    from longctx.fixtures.diagnosis.settings import DiagnosisError
    from longctx.fixtures.diagnosis.static import compare_files

DEFAULTS = {"samples": 32, "seed": 0, "device": "auto", "dtype": "auto"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 after one line."""
    parser = CommandParser(
        prog="longctx diagnose", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("good", metavar="GOOD", help="directory of the checkpoint that is right")
    parser.add_argument("bad", metavar="BAD", help="directory of the checkpoint that is worse")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("out/diagnose"),
        help="folder for diagnosis.json and diagnosis.html (default: out/diagnose)",
    )  # fmt: skip
    parser.add_argument(
        "--case",
        metavar="ID",
        help="also find the cause of a loss on this case, such as 'test_ruler[niah_multikey_1-4k]'",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE",
        help="the same on samples that the journal of this JSON report knows GOOD to answer better than BAD",
    )  # fmt: skip
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        default=DEFAULTS["samples"],
        help="with --case, most samples to look at (default: 32)",
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="with --case, the seed of the samples (0)")
    parser.add_argument("--device", metavar="NAME", default="auto", help="with --case: auto, cpu, cuda or cuda:1")
    parser.add_argument(
        "--dtype", metavar="NAME", default="auto", help="with --case: auto, bfloat16, float16 or float32"
    )
    given = parser.parse_args(arguments)
    try:
        return _diagnose(given)
    except (CheckpointError, CannotFit, DiagnosisError, EngineError, TokenizerError) as error:
        return report_wrong_use(str(error))
    except OSError as error:
        return report_wrong_use(f"--out: cannot use {error.filename} ({error.strerror}); name files that can be used")


def _diagnose(given: argparse.Namespace) -> int:
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
    static = compare_files(good, bad, _progress)
    for line in [*static_lines(static), static_conclusion(static)]:
        print_line(line)
    diagnosis = Diagnosis(good=good.path, bad=bad.path, case=case, command=_command(given), static=static, alarm=alarm)
    diagnosis.write(out)
    if task is None:
        return 0
    exchanger = Exchanger(
        good, bad, task, length,
        seed=alarm.seed if alarm else given.seed, chat=alarm.chat if alarm else "auto", folder=out,
        settings={"device": given.device, "dtype": given.dtype, "attention": "auto"},
    )  # fmt: skip
    cause = find_cause(
        exchanger, static,
        order=[flip.index for flip in alarm.flips] if alarm else range(given.samples),
        known="report" if alarm else "case",
        note=lambda found: print_line(candidate_line(found)),
    )  # fmt: skip
    diagnosis = replace(diagnosis, cause=cause, computed_tokens=exchanger.computed_tokens)
    for line in cause_lines(cause, static, exchanger.computed_tokens):
        print_line(line)
    diagnosis.write(out)
    return 0 if cause.culprits else 1


def _command(given: argparse.Namespace) -> str:
    """Return the command that repeats the diagnosis."""
    words = ["longctx", "diagnose", str(absolute(given.good)), str(absolute(given.bad))]
    for name in ("case", "report", "samples", "seed", "device", "dtype"):
        value = getattr(given, name)
        if value != DEFAULTS.get(name):
            words += [f"--{name}", str(absolute(value) if name == "report" else value)]
    return shlex.join(words)


def _read_case(case: str) -> tuple[Task, int]:
    """Return the task and the length of a case's id."""
    found = re.fullmatch(r"\w+\[(\w+)-(\w+)\]", case)
    if found is None or found[1] not in TASKS:
        raise DiagnosisError(
            f"--case: {case!r} is no case of a task of longctx tasks; write test_ruler[niah_multikey_1-4k]"
        )
    try:
        return TASKS[found[1]], parse_length(found[2])
    except LengthError as error:
        raise DiagnosisError(f"--case: {error}") from error


def _progress(line: str) -> None:
    """Show how far the comparison is, on a terminal only."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
