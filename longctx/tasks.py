"""`longctx tasks`: list all tasks with their categories, metrics, versions, sizes, sources and lengths."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fixtures.cli import CommandParser, print_line, report_wrong_use
from fixtures.corpora.rows import QuestionsError
from fixtures.lengths import format_length
from fixtures.tasks import SUITES, TASKS, find_tasks_files
from fixtures.tasks.questions.load import STANDARD_LENGTHS
from fixtures.tasks.questions.question_set import QuestionSet
from fixtures.tasks.questions.read_tasks import Definition, read_tasks, shipped_suites
from fixtures.tasks.task import Task
from fixtures.versions import sample_version

COLUMNS = ("suite", "category", "task", "metric", "version", "questions", "source", "lengths")
# Left out in a narrow terminal, this one first; a file or a pipe has all columns.
LESS_IMPORTANT = ("source", "questions", "version", "metric", "lengths")
# Questions that are written for each seed, and those of files that are not here.
UNLIMITED, UNKNOWN = "any", "?"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for every task, and return 0; return 4 after one line for an unusable tasks file."""
    parser = CommandParser(prog="longctx tasks", description="List all tasks of this project and of tasks files.")
    parser.add_argument("--suite", choices=(*SUITES, *shipped_suites()), help="list the tasks of this suite only")
    parser.add_argument("--tasks", metavar="FILE", help="list the tasks of these files only")
    options = parser.parse_args(arguments)
    try:
        rows = [] if options.tasks else [_row(task) for task in TASKS.values()]
        files = options.tasks if options.tasks else ",".join(shipped_suites())
        paths = [Path(path) for path in find_tasks_files(files, Path.cwd())]
        rows += [_question_row(definition) for path in paths for definition in read_tasks(path)]
    except QuestionsError as error:
        return report_wrong_use(str(error))
    table = [COLUMNS, *(row for row in rows if options.suite in (None, row[0]))]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in aligned(fitting(table, width)):
        print_line(line)
    return 0


def fitting(table: Sequence[Sequence[str]], width: int | None) -> Sequence[Sequence[str]]:
    """Return the table without the columns for which a terminal has no room; None leaves all of them."""
    columns = [list(column) for column in zip(*table, strict=True)]
    for name in LESS_IMPORTANT:
        widths = [2 + max(map(len, column)) for column in columns]
        if width is not None and sum(widths) - 2 > width:
            columns = [column for column in columns if column[0] != name]
    return list(zip(*columns, strict=True))


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(task: Task) -> tuple[str, ...]:
    lengths = ",".join(format_length(length) for length in task.lengths)
    version = sample_version(task.name, task.metric)
    questions = UNLIMITED if task.max_questions is None else str(task.max_questions)
    return (task.suite, task.category, task.name, task.metric, version, questions, "this project", lengths)


def _question_row(definition: Definition) -> tuple[str, ...]:
    file, dataset = definition.file, definition.dataset
    lengths = ",".join(dataset.lengths or map(format_length, STANDARD_LENGTHS))
    size, source = _size(definition), file.source or str(definition.path)
    version = str(dataset.version)
    return (file.suite, dataset.category, dataset.name, dataset.metric.name, version, size, source, lengths)


def _size(definition: Definition) -> str:
    """Return the number of questions, if the files are here or the definition tells it."""
    questions = QuestionSet(definition, data_dir=None)
    if questions.files.missing() is None:
        return str(len(questions))
    return str(definition.dataset.size or definition.dataset.source.rows or UNKNOWN)
