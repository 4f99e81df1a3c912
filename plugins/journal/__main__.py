"""`longctx journal DIR`: list the contents of a journal; `--prune 30d`: delete older subjects."""

import re
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.plugins.journal.file_system import JournalError
from longctx.plugins.journal.heartbeat import WORKERS
from longctx.plugins.journal.subjects import SubjectDirectory, delete_subject, subject_directories

AGES_SECONDS = {"d": 86_400, "h": 3_600}
ROW = "{:10}  {:16}  {:>5}  {:>7}  {:>10}  {:>7}  {}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns exit code 0, or 4 after one line about a wrong argument or an unusable directory."""
    parser = CommandParser(prog="longctx journal", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory of --journal")
    parser.add_argument("--prune", metavar="30d", help="delete subjects not written for this time (30d, 12h; 0d: all)")
    parser.add_argument("--model", metavar="NAME", help="only this model")
    parser.add_argument("--dry-run", action="store_true", help="show the deletions of --prune without making them")
    options = parser.parse_args(arguments)
    directory: Path = options.directory
    if options.dry_run and options.prune is None:
        return report_wrong_use("--dry-run: has no effect without --prune; add --prune 30d")
    try:
        subjects = _subjects(directory, options.model)
        if options.prune is None:
            _list(subjects)
        else:
            _prune(subjects, _least_seconds(options.prune), is_dry=options.dry_run)
    except (ValueError, JournalError) as error:
        return report_wrong_use(str(error))
    return 0


def _least_seconds(prune: str) -> int:
    """Return the age from which --prune deletes; raise ValueError."""
    age = re.fullmatch(r"([0-9]{1,6})([dh])", prune.strip().lower())
    if age is None:
        raise ValueError(f"--prune: cannot read {prune!r}; write 30d or 12h, or 0d for everything")
    return int(age[1]) * AGES_SECONDS[age[2]]


def _subjects(directory: Path, model: str | None) -> list[SubjectDirectory]:
    """Return the subjects of a journal, or those of one model; raise ValueError."""
    subjects = subject_directories(directory) if directory.is_dir() else []
    if not (subjects or (directory / WORKERS).is_dir()):
        raise ValueError(f"DIR: {directory} is not a journal; give the directory of --journal")
    if model is None:
        return subjects
    named = [item for item in subjects if model in (item.subject.model, Path(item.subject.model).name)]
    if not named:
        models = ", ".join(sorted({item.subject.model for item in subjects})) or "none"
        raise ValueError(f"--model: no results of {model!r} here; the journal has: {models}")
    return named


def _list(subjects: list[SubjectDirectory]) -> None:
    print_line(ROW.format("checkpoint", "engine", "cases", "samples", "size", "written", "model"))
    for item in subjects:
        print_line(f"{_row(item)}{' (in use)' if item.busy else ''}")
        for line in item.damage:
            print_line(f"  {line}")
    samples = sum(item.samples for item in subjects)
    size_bytes = sum(item.size_bytes for item in subjects)
    print_line(f"subjects: {len(subjects)}, samples: {samples}, {_size(size_bytes)}")


def _row(item: SubjectDirectory) -> str:
    execution = item.subject.execution
    engine = "/".join(execution[key] for key in ("engine", "dtype") if key in execution)
    written = f"{item.idle_seconds / AGES_SECONDS['d']:.1f} d"
    checkpoint = item.subject.fingerprint[:10]
    return ROW.format(checkpoint, engine, item.cases, item.samples, _size(item.size_bytes), written, item.subject.model)


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 10**6:.2f} MB"


def _prune(subjects: list[SubjectDirectory], least_seconds: int, *, is_dry: bool) -> None:
    freed_bytes = 0
    for item in subjects:
        if item.idle_seconds < least_seconds:
            continue
        if item.busy or not (is_dry or delete_subject(item)):
            print_line(f"{'kept':12}  {_row(item)} (in use)")
            continue
        freed_bytes += item.size_bytes
        print_line(f"{'would delete' if is_dry else 'deleted':12}  {_row(item)}")
    print_line(f"{'would free' if is_dry else 'freed'} {_size(freed_bytes)}")
