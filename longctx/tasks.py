"""`longctx tasks`: list all tasks with what they ask."""

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.corpora.rows import QuestionsError
from longctx.fixtures.lengths import format_length
from longctx.fixtures.tasks import SUITES, TASKS, find_tasks_files, own_tasks
from longctx.fixtures.tasks.questions.read_tasks import shipped_suites
from longctx.fixtures.tasks.task import Task

ASKS = {
    "niah_single_1": "the number of a key, in repeated text", "niah_single_2": "the number of a key, in prose",
    "niah_single_3": "the UUID of a key, in prose", "niah_multikey_1": "the number of one of several keys",
    "niah_multikey_2": "a number in a text of nothing but keys",
    "niah_multikey_3": "a UUID in a text of nothing but keys",
    "niah_multivalue": "all numbers of one key", "niah_multiquery": "the numbers of several keys",
    "vt": "all variables with one value", "cwe": "the ten most common words",
    "fwe": "the three most frequent coded words",
    "qa_1": "a question about one of many passages", "qa_2": "a question about two of many passages",
    "longbench2_no_context": "the questions without their texts",
    # By category.
    "recall": "a value by its key, or needles", "rag": "a question about retrieved passages",
    "cite": "an answer that cites passages", "rerank": "passages by their relevance",
    "icl": "the label of a text, after many examples", "longqa": "a question about a long text",
    "summ": "a summary of a long text", "mrcr": "one of several like replies, word by word",
    "graphs": "the neighbours of a node in an edge list", "ladders": "needles of which ever more are alike",
    "association": "a fact that shares no word with its question", "counting": "how many lines have a property",
    "controls": "the same without what makes it long or hard", "tracking": "where things are after many moves",
    "routes": "a route, line by line", "procedures": "the result of a given procedure",
    "absence": "a question that the text may not answer", "lists": "a list after many operations",
    "positions": "a problem at one place of a long text", "keys": "a needle among N keys",
    "values": "N values of one key", "queries": "the numbers of N keys", "needle_types": "needles of other kinds",
    "hops": "variables over N assignments", "chains": "variables among N chains",
    "alpha": "frequent words, more or less clearly", "documents": "a question about one of N documents",
    "printed": "the same as RULER, worded as printed", "reworded": "the same as RULER, in other words",
    "qa": "a question about a text", "reasoning": "a question that takes several facts",
    "multi_document_qa": "a question about several documents", "few_shot": "the same as in many examples",
    "aggregation": "how many passages differ", "retrieval": "where a text or a number stands",
    "code": "the next line, a result or an error", "math": "a number that takes the whole text",
    "summarization": "a summary",
    "multiple_choice": "one of four answers about a long text",
}  # fmt: skip
"""What tasks ask, by the start of their names, or else by their category."""
COLUMNS = 80


class _Row(NamedTuple):
    suite: str
    category: str
    task: str
    lengths: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what all tasks ask, and return 0; return 4 after one line for an unusable tasks file."""
    parser = CommandParser(prog="longctx tasks", description="List all tasks of this project and of tasks files.")
    parser.add_argument("--suite", choices=(*SUITES, *shipped_suites()), help="list the tasks of this suite only")
    parser.add_argument(
        "--tasks-file", "--tasks", dest="tasks", metavar="FILE", help="list the tasks of these files only"
    )
    options = parser.parse_args(arguments)
    try:
        rows = _rows_of_files(options.tasks or ",".join(shipped_suites()))
    except QuestionsError as error:
        return report_wrong_use(str(error))
    if not options.tasks:
        rows = [*map(_row, TASKS.values()), *rows]
    chosen = [row for row in rows if options.suite in (None, row.suite)]
    for line in _lines(chosen):
        print_line(line)
    return 0


def _row(task: Task) -> _Row:
    return _Row(task.suite, task.category, task.name, tuple(map(format_length, task.lengths)))


def _rows_of_files(names: str) -> list[_Row]:
    return [_row(task) for task in own_tasks(find_tasks_files(names, Path.cwd()))]


def _lines(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield each suite with its lengths, and the names of the tasks that ask the same below what they ask for."""
    for suite, of_suite in itertools.groupby(rows, key=lambda row: row.suite):
        tasks = [*of_suite]
        lengths = dict.fromkeys(length for row in tasks for length in row.lengths)
        yield f"{suite}, at {' '.join(lengths)} tokens"
        for (category, asks), alike in itertools.groupby(tasks, key=lambda row: (row.category, _asks(row))):
            yield f"  {category}: {asks}" if asks else f"  {category}"
            names = " ".join(row.task for row in alike)
            yield from textwrap.wrap(
                names, COLUMNS, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
            )
        yield ""
    yield "select with --tasks, -k or -m"


def _asks(row: _Row) -> str:
    starts = [text for start, text in ASKS.items() if row.task.startswith(start)]
    return starts[0] if starts and row.suite in ("ruler", "longbench2") else ASKS.get(row.category, "")
