"""`longctx journal DIR`: list the contents of a journal; `--prune 30d`: delete older subjects."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.heartbeat import SILENT_SECONDS, WORKER_NAME, WORKERS, is_worker_dead
from longctx.plugins.journal.subjects import (
    SubjectDirectory,
    delete_subject,
    is_journal,
    subject_directories,
)

UNIT_SECONDS = {"d": 86_400, "h": 3_600}
TEXT_COLUMNS = 3
COLUMNS = (("model", 26), ("checkpoint", 10), ("engine", 16), ("cases", 5), ("samples", 7), ("size", 8), ("written", 7))

# The name of a model keeps so many characters in a narrow terminal.
LEAST_MODEL = 14


class _CommandError(ValueError):
    """Wrong use: one line with the argument, its value and a correct example."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns exit code 0, or 4 after one line about a wrong argument or an unusable directory."""
    parser = CommandParser(prog="longctx journal", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory of --journal")
    parser.add_argument("--prune", metavar="30d", help="delete subjects not written for this time (30d, 12h; 0d: all)")
    parser.add_argument("--model", metavar="NAME", help="only this model")
    parser.add_argument("--dry-run", action="store_true", help="show the deletions of --prune without making them")
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    try:
        if options.dry_run and options.prune is None:
            raise _CommandError("--dry-run: has no effect without --prune; add --prune 30d")
        least_seconds = None
        if options.prune is not None:
            age = re.fullmatch(r"([0-9]{1,6})([dh])", options.prune.strip().lower())
            if age is None:
                raise _CommandError(f"--prune: cannot read {options.prune!r}; write 30d or 12h, or 0d for everything")
            least_seconds = int(age[1]) * UNIT_SECONDS[age[2]]
        if not os.path.isdir(directory):
            raise _CommandError(f"DIR: {directory} is not a directory; give the directory of --journal")
        if not is_journal(directory):
            raise _CommandError(f"DIR: {directory} is not a journal; give the directory of --journal")
        subjects = subject_directories(directory)
        if options.model is not None:
            models = ", ".join(sorted({_printable(item.subject.model) for item in subjects})) or "none"
            subjects = [
                item for item in subjects if options.model in (item.subject.model, Path(item.subject.model).name)
            ]
            if not subjects:
                raise _CommandError(f"--model: no results of {options.model!r} here; the journal has: {models}")
        if least_seconds is None:
            _list(subjects)
        else:
            _prune(directory, subjects, least_seconds, dry_run=options.dry_run)
    except (_CommandError, JournalError) as error:
        return report_wrong_use(str(error))
    except OSError as error:
        return report_wrong_use(
            f"DIR: cannot use {error.filename or directory} ({error.strerror}); check its permissions"
        )
    return 0


def _list(subjects: list[SubjectDirectory]) -> None:
    widths = [width for _, width in COLUMNS]
    if sys.stdout.isatty():
        others = sum(widths) - widths[0] + len("  ") * (len(widths) - 1)
        widths[0] = max(LEAST_MODEL, min(widths[0], shutil.get_terminal_size().columns - others))
    rows = [tuple(name for name, _ in COLUMNS)]
    rows += [(*_cells(item), "in use" if item.busy else "") for item in subjects]
    for row in rows:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=False)):
            # Text is on the left, numbers on the right. Long text keeps its end, where checkpoints differ.
            text = cell if len(cell) <= width else ".." + cell[2 - width :]
            cells.append(text.ljust(width) if number < TEXT_COLUMNS else cell.rjust(width))
        print_line("  ".join([*cells, *row[len(COLUMNS) :]]).rstrip())
    samples, size = sum(item.samples for item in subjects), sum(item.size_bytes for item in subjects)
    print_line(f"{_count(len(subjects), 'subject')}, {_count(samples, 'sample')}, {_size(size)}")


def _prune(directory: Path, subjects: list[SubjectDirectory], least_seconds: int, *, dry_run: bool) -> None:
    freed_bytes = 0
    for item in subjects:
        if item.idle_seconds < least_seconds:
            continue
        model, checkpoint, engine, _, _, size, written = _cells(item)
        name = f"{model} {checkpoint} {engine} ({_count(item.samples, 'sample')}, {size}, written {written} ago)"
        if item.has_foreign_files and not item.busy:
            print_line(f"kept {name}: {item.folder} contains files that are not the journal's")
        elif item.busy or not (dry_run or delete_subject(directory, item.folder)):
            print_line(f"kept {name}: in use")
        else:
            print_line(f"{'would delete' if dry_run else 'deleted'} {name}")
            freed_bytes += item.size_bytes
    # The files of dead workers, and temporary files of interrupted writes.
    files = (directory / WORKERS).glob("*.json*") if (directory / WORKERS).is_dir() else ()
    own = (file for file in files if WORKER_NAME.fullmatch(file.name.lstrip(".").partition(".json")[0]))
    leftovers = [file for file in sorted(own) if file.is_file() and is_worker_dead(file, SILENT_SECONDS)]
    for file in leftovers if not dry_run else ():
        file.unlink(missing_ok=True)
    workers = f", {_count(len(leftovers), 'file')} of dead workers" if leftovers else ""
    print_line(f"{'would free' if dry_run else 'freed'} {_size(freed_bytes)}{workers}")


def _cells(item: SubjectDirectory) -> tuple[str, ...]:
    subject = item.subject
    engine = "/".join(subject.execution[key] for key in ("engine", "dtype") if key in subject.execution)
    age = f"{max(0, int(item.idle_seconds))} s"
    for unit, length in (("min", 60), ("h", 3_600), ("d", 86_400)):
        if item.idle_seconds >= length:
            age = f"{int(item.idle_seconds // length)} {unit}"
    return (
        _printable(subject.model), _printable(subject.fingerprint)[:10], _printable(engine), str(item.cases),
        str(item.samples), _size(item.size_bytes), age,
    )  # fmt: skip


def _printable(text: str) -> str:
    """Replace characters that could control a terminal or break its encoding: names come from files."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)


def _size(size_bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    sys.exit(main())
