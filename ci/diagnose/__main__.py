"""Compare a good and a bad checkpoint of one architecture, and name the parts in which they differ.

    longctx diagnose runs/a/step-2000 runs/a/step-9000

The files are compared first: config, generation config, chat template, the tokenizer by what it does, and every tensor:
missing, NaN, zero, scaled, transposed, rows or heads permuted, a copy of another layer, or changed far more than the
others of its kind. The files are streamed and no model is loaded. A difference is no cause yet: a tensor may stand out
and cost nothing.

    longctx diagnose runs/a/step-2000 runs/a/step-9000 --case 'test_ruler[niah_multikey_1-4k]'

With --case, parts are exchanged between the two models. A part is named as the cause only if GOOD's part restores the
gold answers that BAD lost, and BAD's part makes GOOD lose them. The same command continues after it was stopped.

Exit codes: 0; 1 nothing carries the loss alone; 4 wrong use, or no loss to explain.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from longctx.ci.diagnose.words import candidate_line, cause_lines, conclusion, static_conclusion, static_lines
from longctx.fixtures import heavy_imports
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.lengths import LengthError, parse_length
from longctx.fixtures.outside_files import expanded
from longctx.fixtures.records.errors import EngineError
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.task import CannotFit, Task
from longctx.fixtures.tokenization.load import TokenizerError

with heavy_imports.exempt_from_garbage_collection():
    from longctx.fixtures.diagnosis.cause import FEWEST_TELLING, Cause, find_cause
    from longctx.fixtures.diagnosis.exchange import Exchanger
    from longctx.fixtures.diagnosis.settings import DiagnosisError
    from longctx.fixtures.diagnosis.static import StaticComparison, compare_files

SCHEMA = "longctx-diagnosis/1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 after one line."""
    parser = CommandParser(
        prog="longctx diagnose", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("good", metavar="GOOD", help="directory of the checkpoint that is right")
    parser.add_argument("bad", metavar="BAD", help="directory of the checkpoint that is worse")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("out/diagnose"),
        help="folder for diagnosis.json (default: out/diagnose)",
    )  # fmt: skip
    parser.add_argument(
        "--case",
        metavar="ID",
        help="also find the cause of a loss on this case, such as 'test_ruler[niah_multikey_1-4k]'",
    )
    parser.add_argument(
        "--samples", type=int, metavar="N", default=32, help="with --case, most samples to look at (default: 32)"
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
    out = expanded(given.out)
    out.mkdir(parents=True, exist_ok=True)
    task, length = (None, 0) if given.case is None else _read_case(given.case)
    if given.samples < FEWEST_TELLING:
        raise DiagnosisError(f"--samples: {given.samples} is too few; use {FEWEST_TELLING} or more")
    static = compare_files(good, bad, _progress)
    for line in [*static_lines(static), static_conclusion(static)]:
        print_line(line)
    write_file(out / "diagnosis.json", _document(good.path, bad.path, static, None))
    if task is None:
        return 0
    settings = {"device": given.device, "dtype": given.dtype, "attention": "auto"}
    exchanger = Exchanger(good, bad, task, length, seed=given.seed, folder=out, settings=settings)
    cause = find_cause(exchanger, static, samples=given.samples, note=lambda found: print_line(candidate_line(found)))
    for line in cause_lines(cause, static, exchanger.computed_tokens):
        print_line(line)
    write_file(out / "diagnosis.json", _document(good.path, bad.path, static, cause))
    return 0 if cause.culprits else 1


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


def _document(good: str, bad: str, static: StaticComparison, cause: Cause | None) -> bytes:
    """Return the JSON document with everything that was found."""
    changed = [msgspec.to_builtins(change) for change in static.tensors]
    content: dict[str, object] = {
        "schema": SCHEMA,
        "good": good,
        "bad": bad,
        "conclusion": static_conclusion(static) if cause is None else conclusion(cause, static),
        "settings": [msgspec.to_builtins(change) for change in static.settings],
        "tensors": [
            {key: value for key, value in change.items() if value not in ("", None, [], 0)} for change in changed
        ],
    }
    if cause is not None:
        content["cause"] = msgspec.to_builtins(cause)
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def _progress(line: str) -> None:
    """Show how far the comparison is, on a terminal only."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
