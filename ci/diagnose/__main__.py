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

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures import heavy_imports
from longctx.fixtures.cli import CommandParser, report_wrong_use
from longctx.fixtures.outside_files import absolute


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 4 after one line."""
    parser = CommandParser(prog="longctx diagnose", description=__doc__)
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
        default=32,
        help="with --case, most samples to look at (default: 32)",
    )
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="with --case, the seed of the samples (0)")
    parser.add_argument("--device", metavar="NAME", default="auto", help="with --case: auto, cpu, cuda or cuda:1")
    parser.add_argument(
        "--dtype", metavar="NAME", default="auto", help="with --case: auto, bfloat16, float16 or float32"
    )
    given = parser.parse_args(arguments)
    # They import torch, which takes seconds; --help and a wrong option do not need it.
    with heavy_imports.exempt_from_garbage_collection():
        from longctx.ci.diagnose.steps import USE_ERRORS, diagnose
    try:
        return diagnose(given, _command(parser, given))
    except USE_ERRORS as error:
        return report_wrong_use(str(error))


def _command(parser: argparse.ArgumentParser, given: argparse.Namespace) -> str:
    words = ["longctx", "diagnose", str(absolute(given.good)), str(absolute(given.bad))]
    for name in ("case", "report", "samples", "seed", "device", "dtype"):
        value = getattr(given, name)
        if value != parser.get_default(name):
            words += [f"--{name}", str(absolute(value) if name == "report" else value)]
    return shlex.join(words)
