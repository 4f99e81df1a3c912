"""`longctx tasks`: list all tasks with their metrics, versions, sizes, sources and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.corpora.rows import QuestionsError
from longctx.fixtures.lengths import format_length
from longctx.fixtures.tasks import SUITES, TASKS, find_tasks_files
from longctx.fixtures.tasks.questions.compose import STANDARD_LENGTHS
from longctx.fixtures.tasks.questions.question_set import FileQuestionSet
from longctx.fixtures.tasks.questions.read_tasks import read_tasks, shipped_suites
from longctx.fixtures.tasks.ruler.configured import read_ruler
from longctx.fixtures.versions import sample_version

COLUMNS = ("suite", "category", "task", "metric", "version", "questions", "source", "lengths")
# Questions that are written for each seed, and those of files that are not here.
UNLIMITED, UNKNOWN = "any", "?"
# The source of what this project writes or ships.
HERE = "this project"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for every task, and return 0; return 4 after one line for an unusable tasks file."""
    parser = CommandParser(prog="longctx tasks", description="List all tasks of this project and of tasks files.")
    parser.add_argument("--suite", choices=(*SUITES, *shipped_suites()), help="list the tasks of this suite only")
    parser.add_argument(
        "--tasks-file", "--tasks", dest="tasks", metavar="FILE", help="list the tasks of these files only"
    )
    options = parser.parse_args(arguments)
    try:
        rows: list[tuple[str, ...]] = []
        for task in () if options.tasks else TASKS.values():
            lengths = ",".join(map(format_length, task.lengths))
            version = sample_version(task.name, task.metric)
            size = UNLIMITED if task.max_questions is None else str(task.max_questions)
            rows.append((task.suite, task.category, task.name, task.metric, version, size, HERE, lengths))
        files = options.tasks if options.tasks else ",".join(shipped_suites())
        paths = [Path(path) for path in find_tasks_files(files, Path.cwd())]
        for path in paths:
            place = str(path) if options.tasks else HERE
            for item in read_ruler(path):
                lengths = ",".join(map(format_length, item.task.lengths))
                rows.append((
                    item.task.suite, item.task.category, item.task.name, item.task.metric,
                    item.task.case_version(0).partition(".")[0], UNLIMITED, place, lengths,
                ))  # fmt: skip
        for definition in (definition for path in paths for definition in read_tasks(path)):
            file, dataset = definition.file, definition.dataset
            lengths = ",".join(dataset.lengths or map(format_length, STANDARD_LENGTHS))
            questions = FileQuestionSet(definition, data_dir=None)
            # The number of questions, if the files are here or the definition tells it.
            is_here = questions.files.missing() is None
            size = str(len(questions) if is_here else dataset.size or dataset.source.rows or UNKNOWN)
            version, source = str(dataset.version), file.source or str(definition.path)
            metric = dataset.metric.name
            rows.append((file.suite, dataset.category, dataset.name, metric, version, size, source, lengths))
    except QuestionsError as error:
        return report_wrong_use(str(error))
    chosen = [COLUMNS, *(row for row in rows if options.suite in (None, row[0]))]
    widths = [max(map(len, column)) for column in zip(*chosen, strict=True)]
    for row in chosen:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0
