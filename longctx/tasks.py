"""`longctx tasks`: list all tasks with what they ask; with --details also metrics, versions, sizes and sources."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import itemgetter
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
# Questions that are written for each seed, and those of files that are not here.
UNLIMITED, UNKNOWN = "any", "?"
# The source of what this project writes or ships.
HERE = "this project"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for every task, and return 0; return 4 after one line for an unusable tasks file."""
    parser = CommandParser(prog="longctx tasks", description="List all tasks of this project and of tasks files.")
    parser.add_argument("--details", action="store_true", help="show metrics, versions, sizes and sources too")
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
    chosen = [row for row in rows if options.suite in (None, row[0])]
    for line in aligned([COLUMNS, *chosen]) if options.details else _short_lines(chosen):
        print_line(line)
    return 0


def _short_lines(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield lines of at most 100 columns: each suite with its lengths, and what each of its tasks asks for."""
    shown: list[tuple[str, ...]] = []
    for suite, group in itertools.groupby(rows, key=itemgetter(0)):
        tasks = [*group]
        lengths = dict.fromkeys(length for row in tasks for length in row[-1].split(","))
        shown += [(f"{suite}, at {' '.join(lengths)} tokens",), ("category", "task", "asks for")]
        shown += [(row[1], row[2], _asks(*row[:3])) for row in tasks]
        shown.append(("",))
    table = aligned([row for row in shown if len(row) > 1])
    yield from (row[0] if len(row) == 1 else f"  {next(table)}" for row in shown)
    yield "longctx tasks --details shows metrics, versions, sizes and sources; select with --tasks, -k or -m"


def _asks(suite: str, category: str, task: str) -> str:
    starts = [text for start, text in ASKS.items() if task.startswith(start)]
    return starts[0] if starts and suite in ("ruler", "longbench2") else ASKS.get(category, "")


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table with columns of one width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
