"""`longctx journal DIR`: list the contents of a journal; `--prune 30d`: delete older subjects."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.heartbeat import WORKER_NAME, WORKERS, is_worker_dead
from longctx.plugins.journal.store import JudgeReplies
from longctx.plugins.journal.subjects import (
    SubjectDirectory,
    SubjectInUse,
    delete_subject,
    is_journal,
    subject_directories,
)

AGES = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
SIZES = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
WIDTHS = {"model": 26, "checkpoint": 10, "engine": 16, "cases": 5, "samples": 7, "size": 8, "written": 7}
TEXT_COLUMNS = ("model", "checkpoint", "engine")


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
        least_seconds = _least_seconds(options.prune, dry_run=options.dry_run)
        subjects = _subjects(directory, options.model)
        if least_seconds is None:
            _list(subjects)
            for line in JudgeReplies(directory, None).damage():
                print_line(line)
        else:
            _prune(directory, subjects, least_seconds, dry_run=options.dry_run)
    except (ValueError, JournalError) as error:
        return report_wrong_use(str(error))
    except OSError as error:
        return report_wrong_use(
            f"DIR: cannot use {error.filename or directory} ({error.strerror}); check its permissions"
        )
    return 0


def _least_seconds(prune: str | None, *, dry_run: bool) -> int | None:
    """Return the age from which --prune deletes, None without --prune; raise ValueError."""
    if prune is None:
        if dry_run:
            raise ValueError("--dry-run: has no effect without --prune; add --prune 30d")
        return None
    age = re.fullmatch(r"([0-9]{1,6})([dh])", prune.strip().lower())
    if age is None:
        raise ValueError(f"--prune: cannot read {prune!r}; write 30d or 12h, or 0d for everything")
    return int(age[1]) * AGES[age[2]]


def _subjects(directory: Path, model: str | None) -> list[SubjectDirectory]:
    """Return the subjects of a journal, or those of one model; raise ValueError."""
    if not os.path.isdir(directory):
        raise ValueError(f"DIR: {directory} is not a directory; give the directory of --journal")
    if not is_journal(directory):
        raise ValueError(f"DIR: {directory} is not a journal; give the directory of --journal")
    subjects = subject_directories(directory)
    if model is None:
        return subjects
    named = [item for item in subjects if model in (item.subject.model, Path(item.subject.model).name)]
    if not named:
        models = ", ".join(sorted({item.subject.model for item in subjects})) or "none"
        raise ValueError(f"--model: no results of {model!r} here; the journal has: {models}")
    return named


def _list(subjects: list[SubjectDirectory]) -> None:
    print_line(_row({name: name for name in WIDTHS}))
    for item in subjects:
        in_use = "  in use" if item.busy else ""
        print_line(_row(_cells(item)) + in_use)
        for line in item.damage:
            print_line(f"  {line}")
    samples = _count(sum(item.samples for item in subjects), "sample")
    size = _size(sum(item.size_bytes for item in subjects))
    print_line(f"{_count(len(subjects), 'subject')}, {samples}, {size}")


def _row(cells: Mapping[str, str]) -> str:
    """Return a row of the table: text on the left, numbers on the right; long text keeps its end, which differs."""
    parts = []
    for name, width in WIDTHS.items():
        cell = cells[name] if len(cells[name]) <= width else ".." + cells[name][2 - width :]
        parts.append(cell.ljust(width) if name in TEXT_COLUMNS else cell.rjust(width))
    return "  ".join(parts).rstrip()


def _prune(directory: Path, subjects: list[SubjectDirectory], least_seconds: int, *, dry_run: bool) -> None:
    freed_bytes = 0
    for item in subjects:
        if item.idle_seconds < least_seconds:
            continue
        cells = _cells(item)
        samples = _count(item.samples, "sample")
        name = f"{cells['model']} {cells['checkpoint']} {cells['engine']}"
        name += f" ({samples}, {cells['size']}, written {cells['written']} ago)"
        try:
            if item.busy:
                raise SubjectInUse
            if not dry_run:
                delete_subject(item)
        except SubjectInUse:
            print_line(f"kept {name}: in use")
            continue
        freed_bytes += item.size_bytes
        print_line(f"{'would delete' if dry_run else 'deleted'} {name}")
    leftovers = _files_of_dead_workers(directory)
    for file in leftovers if not dry_run else ():
        file.unlink(missing_ok=True)
    workers = f", {_count(len(leftovers), 'file')} of dead workers" if leftovers else ""
    print_line(f"{'would free' if dry_run else 'freed'} {_size(freed_bytes)}{workers}")


def _files_of_dead_workers(directory: Path) -> list[Path]:
    """Return the files of dead workers, and temporary files of their interrupted writes."""
    dead = []
    for file in sorted((directory / WORKERS).glob("*.json*")):
        name = file.name.lstrip(".").partition(".json")[0]
        if WORKER_NAME.fullmatch(name) and file.is_file() and is_worker_dead(file):
            dead.append(file)
    return dead


def _cells(item: SubjectDirectory) -> dict[str, str]:
    execution = item.subject.execution
    engine = [execution[key] for key in ("engine", "dtype") if key in execution]
    return {
        "model": item.subject.model,
        "checkpoint": item.subject.fingerprint[:10],
        "engine": "/".join(engine),
        "cases": str(item.cases),
        "samples": str(item.samples),
        "size": _size(item.size_bytes),
        "written": _age(int(item.idle_seconds)),
    }


def _age(seconds: int) -> str:
    for unit, length in AGES.items():
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return "0 s"


def _size(size_bytes: int) -> str:
    for unit, factor in SIZES:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
