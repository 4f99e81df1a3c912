"""`longctx tasks`: list all tasks with their categories, metrics and lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fixtures.cli import CommandParser, print_line
from fixtures.lengths import format_length
from fixtures.tasks import SUITES, TASKS
from fixtures.tasks.task import Task
from fixtures.versions import sample_version

COLUMNS = ("suite", "category", "task", "metric", "version", "lengths of the paper")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for every task, and return 0."""
    parser = CommandParser(prog="longctx tasks", description="List all tasks with the lengths of their papers.")
    parser.add_argument("--suite", choices=SUITES, help="list the tasks of this suite only")
    suite = parser.parse_args(arguments).suite
    rows = [COLUMNS, *(_row(task) for task in TASKS.values() if suite in (None, task.suite))]
    for line in aligned(rows):
        print_line(line)
    return 0


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(task: Task) -> tuple[str, ...]:
    lengths = ",".join(format_length(length) for length in task.lengths)
    return (task.suite, task.category, task.name, task.metric, sample_version(task.name, task.metric), lengths)
