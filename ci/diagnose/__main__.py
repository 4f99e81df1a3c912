"""Compare a good and a bad checkpoint of one architecture, and name the parts in which they differ.

    longctx diagnose runs/a/step-2000 runs/a/step-9000

The files are compared: config, generation config, chat template, the tokenizer by what it does, and every tensor:
missing, NaN, zero, scaled, transposed, rows or heads permuted, a copy of another layer, or changed far more than the
others of its kind. The files are streamed and no model is loaded. A difference is no cause yet: a tensor may stand out
and cost nothing.

Exit codes: 0, 4 wrong use.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from longctx.ci.diagnose.words import static_conclusion, static_lines
from longctx.fixtures import heavy_imports
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import expanded
from longctx.fixtures.tokenization.load import TokenizerError

with heavy_imports.exempt_from_garbage_collection():
    from longctx.fixtures.diagnosis.static import DiagnosisError, StaticComparison, compare_files

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
    given = parser.parse_args(arguments)
    try:
        return _diagnose(given)
    except (CheckpointError, DiagnosisError, TokenizerError) as error:
        return report_wrong_use(str(error))
    except OSError as error:
        return report_wrong_use(f"--out: cannot use {error.filename} ({error.strerror}); name files that can be used")


def _diagnose(given: argparse.Namespace) -> int:
    good, bad = read_checkpoint(given.good, option="GOOD"), read_checkpoint(given.bad, option="BAD")
    if good.fingerprint == bad.fingerprint:
        raise DiagnosisError(f"BAD: {given.bad} holds the same checkpoint as GOOD; give the one that is worse")
    out = expanded(given.out)
    out.mkdir(parents=True, exist_ok=True)
    static = compare_files(good, bad, _progress)
    for line in [*static_lines(static), static_conclusion(static)]:
        print_line(line)
    write_file(out / "diagnosis.json", _document(good.path, bad.path, static))
    return 0


def _document(good: str, bad: str, static: StaticComparison) -> bytes:
    """Return the JSON document with everything that was found."""
    changed = [msgspec.to_builtins(change) for change in static.tensors]
    content = {
        "schema": SCHEMA,
        "good": good,
        "bad": bad,
        "conclusion": static_conclusion(static),
        "settings": [msgspec.to_builtins(change) for change in static.settings],
        "tensors": [
            {key: value for key, value in change.items() if value not in ("", None, [], 0)} for change in changed
        ],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"


def _progress(line: str) -> None:
    """Show how far the comparison is, on a terminal only."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
