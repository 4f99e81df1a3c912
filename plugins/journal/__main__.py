"""`python -m plugins.journal DIR`: list what a journal holds; `--prune 30d`: delete what is older than that."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fixtures.cli import CommandParser, report_wrong_use
from plugins.journal.errors import JournalError
from plugins.journal.housekeeping import SubjectDirectory, delete, is_journal, left_over, shelves

UNIT_SECONDS = {"d": 86_400, "h": 3_600}
COLUMNS = (("model", 26), ("checkpoint", 10), ("engine", 16), ("cases", 5), ("samples", 7), ("size", 8), ("written", 7))


class CommandError(ValueError):
    """Wrong use: one line that names the argument, its value and what to give."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 4 with one line where the arguments or the directory cannot be used."""
    parser = CommandParser(prog="python -m plugins.journal", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="what was given to pytest as --journal")
    parser.add_argument("--prune", metavar="30d", help="delete what was not written for so long (30d, 12h; 0d: all)")
    parser.add_argument("--model", metavar="NAME", help="only this model")
    parser.add_argument("--dry-run", action="store_true", help="say what --prune would delete, delete nothing")
    given = parser.parse_args(arguments)
    directory: Path = given.directory
    try:
        if given.dry_run and given.prune is None:
            raise CommandError("--dry-run: nothing to try; give --prune 30d too")
        least_seconds = None if given.prune is None else parse_age(given.prune)
        if not directory.is_dir():
            raise CommandError(f"DIR: {directory} is no directory; give what pytest was given as --journal")
        if not is_journal(directory):
            raise CommandError(f"DIR: {directory} is no journal; give what pytest was given as --journal")
        found = _of_model(shelves(directory), given.model)
        if least_seconds is None:
            _list(found)
        else:
            _prune(directory, found, least_seconds, dry_run=given.dry_run)
    except (CommandError, JournalError) as error:
        return report_wrong_use(str(error))
    except OSError as error:
        return report_wrong_use(
            f"DIR: cannot use {error.filename or directory} ({error.strerror}); look at its permissions"
        )
    return 0


def parse_age(text: str) -> int:
    """Seconds of an age as people write it; raises CommandError."""
    match = re.fullmatch(r"([0-9]{1,6})([dh])", text.strip().lower())
    if match is None:
        raise CommandError(f"--prune: cannot read {text!r}; write 30d or 12h, or 0d for everything")
    return int(match[1]) * UNIT_SECONDS[match[2]]


def _of_model(found: list[SubjectDirectory], model: str | None) -> list[SubjectDirectory]:
    if model is None:
        return found
    chosen = [shelf for shelf in found if model in (shelf.subject.model, Path(shelf.subject.model).name)]
    if not chosen:
        names = ", ".join(sorted({_plain(shelf.subject.model) for shelf in found})) or "none"
        raise CommandError(f"--model: nothing of {model!r} here; there is: {names}")
    return chosen


def _list(found: list[SubjectDirectory]) -> None:
    rows = [tuple(name for name, _ in COLUMNS)]
    rows += [(*_cells(shelf), "in use" if shelf.busy else "") for shelf in found]
    for row in rows:
        cells = [_fit(cell, width, text=n < 3) for n, (cell, (_, width)) in enumerate(zip(row, COLUMNS, strict=False))]
        sys.stdout.write("  ".join([*cells, *row[len(COLUMNS) :]]).rstrip() + "\n")
    samples, size = sum(shelf.samples for shelf in found), sum(shelf.size_bytes for shelf in found)
    sys.stdout.write(f"{_count(len(found), 'subject')}, {_count(samples, 'sample')}, {_size(size)}\n")


def _prune(directory: Path, found: list[SubjectDirectory], least_seconds: int, *, dry_run: bool) -> None:
    freed = 0
    for shelf in found:
        if shelf.idle_seconds < least_seconds:
            continue
        model, checkpoint, engine, _, _, size, written = _cells(shelf)
        name = f"{model} {checkpoint} {engine} ({_count(shelf.samples, 'sample')}, {size}, written {written} ago)"
        if shelf.busy:
            sys.stdout.write(f"kept {name}: in use\n")
        elif shelf.foreign:
            sys.stdout.write(f"kept {name}: {shelf.folder} holds files that are no journal's\n")
        elif dry_run or delete(directory, shelf.folder):
            sys.stdout.write(f"{'would delete' if dry_run else 'deleted'} {name}\n")
            freed += shelf.size_bytes
        else:
            sys.stdout.write(f"kept {name}: in use\n")
    workers = left_over(directory)
    for file in workers if not dry_run else ():
        file.unlink(missing_ok=True)
    gone = f", {_count(len(workers), 'file')} of workers that are gone" if workers else ""
    sys.stdout.write(f"{'would free' if dry_run else 'freed'} {_size(freed)}{gone}\n")


def _cells(shelf: SubjectDirectory) -> tuple[str, ...]:
    subject = shelf.subject
    engine = "/".join(subject.execution[key] for key in ("engine", "dtype") if key in subject.execution)
    return (
        _plain(subject.model), _plain(subject.fingerprint)[:10], _plain(engine), str(shelf.cases), str(shelf.samples),
        _size(shelf.size_bytes), _age(shelf.idle_seconds),
    )  # fmt: skip


def _fit(cell: str, width: int, *, text: bool) -> str:
    """Text to the left, its end kept where it is too long: checkpoints differ there; numbers to the right."""
    return (cell if len(cell) <= width else ".." + cell[2 - width :]).ljust(width) if text else cell.rjust(width)


def _plain(text: str) -> str:
    """Names come from files: nothing in them steers a terminal or breaks its encoding."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text)


def _size(size_bytes: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


if __name__ == "__main__":
    sys.exit(main())
