"""What terminal, Markdown and page say of a run: means, gates, the baseline, the quantization."""

import re
import shlex
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec import structs

from longctx.fixtures.cli import print_line
from longctx.fixtures.lengths import parse_length
from longctx.fixtures.records.report import ReportDifference, WrongExample
from longctx.plugins.report.document import document, quantization
from longctx.plugins.report.html.page import page
from longctx.plugins.report.markdown import markdown, markdown_text
from longctx.plugins.report.sections.comparison import comparison_notes, difference_text
from longctx.plugins.report.sections.engine import cost_text
from longctx.plugins.report.sections.scores import lowest_table
from longctx.plugins.report.sections.summary import MOST_PASSING
from longctx.plugins.report.terminal import terminal_summary
from tests.helpers.pages import page_of, tables_of
from tests.helpers.reports import NASTY, markdown_rows, run_summary, shown


def test_helmet_means_and_differences_are_the_same_in_all_reports() -> None:
    """For a made-up run of both suites with a baseline."""
    run = run_summary(samples=10, paired=True)
    written, page_text = document(run), page_of(run)
    tables = tables_of(page_text)
    assert written.helmet is not None
    assert written.regression is not None
    heatmap = {row[0]: row[1:] for row in tables["HELMET: score by task and length"][1:]}
    rows = markdown_rows(markdown(written))
    terminal = {line[2:22].strip(): line[22:].split() for line, _ in terminal_summary(written) if line.startswith("= ")}
    helmet, keys = written.helmet, [str(length) for length in run.run.options.lengths]
    for name, scores in (*helmet.categories.items(), ("HELMET average", helmet.average)):
        row = [shown(scores[key]) for key in keys]
        assert "-" not in row
        shown_name = name if "HELMET" in name else f"{name} mean"
        assert heatmap[shown_name] == rows[shown_name] == terminal[shown_name] == row
    for suite in ("ruler", "helmet"):
        table = tables[f"{suite.upper()}: difference from the baseline by task and length"]
        cells = {row[0]: row[1:] for row in table[1:]}
        for case in (case for case in written.cases if case.suite == suite):
            difference = written.regression.cases[case.id].difference
            column = keys.index(str(case.length))
            assert float(cells[case.task][column].rstrip(" ▼=")) == pytest.approx(difference, abs=0.051)
    worse = sum(pair.worse for pair in written.regression.cases.values())
    assert f"{worse} worse" in markdown(written)


def test_a_wrong_answer_to_a_users_question_is_shown_with_it() -> None:
    report = document(run_summary(samples=6, suite="ruler", lengths=(4096,)))
    assert report.verdict is not None
    report = structs.replace(report, verdict=structs.replace(report.verdict, word="fail"))
    case = report.cases[0]
    example = WrongExample(
        index=3, question="When does\nit end?", failure="wrong", expected=("31 May",), got="never", depth=None
    )
    own_case = structs.replace(case, score=0.0, source="own", failures={"wrong": 1}, examples=(example,))
    cases = (own_case, *report.cases[1:])
    for own in (structs.replace(report, cases=cases), structs.replace(report, cases=cases[:1])):
        (row,) = lowest_table(own, 1).rows
        assert [cell.text for cell in row.cells] == ["0.0", "1 wrong", "When does it end?", "31 May", "never"]
        assert "| When does it end? | 31 May | never |" in markdown(own)


def test_answers_that_do_not_end_are_counted_without_a_baseline_too() -> None:
    written = document(run_summary(samples=4))
    assert written.run.answers_to_the_end == written.run.ended_answers > 0
    assert comparison_notes(written) == []
    fewer = structs.replace(written, run=structs.replace(written.run, ended_answers=1))
    line = f"of {written.run.answers_to_the_end} answers computed to their end, 1 end by themselves"
    assert [(note.name, note.text) for note in comparison_notes(fewer)] == [("endings", line)]


def test_a_category_of_helmet_without_a_score_names_the_data_sets_that_it_lacks() -> None:
    run = run_summary(samples=4, suite="helmet", lengths=(4096,))
    written = document(run)
    assert written.helmet is not None
    helmet = structs.replace(
        written.helmet,
        categories={**written.helmet.categories, "rag": {"4096": None}},
        missing={"rag": {"4096": {"nq": "gone <away>", "tqa": "not selected"}}},
    )
    written = structs.replace(written, helmet=helmet)
    text = page(written, run)
    line = "categories without a score: rag at 4K lacks nq: gone <away>"
    assert line in " ".join(text.strip() for text, _ in terminal_summary(written))
    assert line.replace("<", "&lt;").replace(">", "&gt;") in text


def test_the_mean_of_a_baseline_stands_below_the_tasks_of_which_it_is() -> None:
    """Also where some tasks were deselected, and RULER's mean is unknown."""
    written = document(run_summary(samples=4, lengths=(4096,), paired=True))
    kept = tuple(case for case in written.cases if case.task in ("vt", "cwe"))
    unknown = structs.replace(written.ruler, scores={"4096": None})
    lines = [line for line, _ in terminal_summary(structs.replace(written, cases=kept, ruler=unknown, helmet=None))]
    place = next(number for number, line in enumerate(lines) if line.startswith("  baseline "))
    assert written.regression is not None
    assert lines[place].split() == ["baseline", shown(written.regression.scores["ruler"]["4096"])]
    assert any(line.startswith("cwe ") for line in lines[:place])


def test_cases_that_fill_little_of_their_length_are_named() -> None:
    run = run_summary(samples=4, suite="ruler", lengths=(4096,))
    written = document(run)
    first, second, *rest = written.cases
    questions = structs.replace(second, id=f"test_questions[{second.task}-4k]", fill=(10.0, 5.0))
    cases = (
        structs.replace(first, fill=(57.4, 40.2)),
        questions,
        *(structs.replace(case, fill=(98.0, 97.0)) for case in rest),
    )
    lines = [line for line, _ in terminal_summary(structs.replace(written, cases=cases))]
    (line,) = [line for line in lines if "filled" in line]
    assert line.endswith(f" filled in the median (at least): {first.task} at 4K 57 % (40 %)")


# More lengths than fit on a line beside the longest names; a user's own tasks may have longer ones.
MANY_LENGTHS = tuple(2**exponent for exponent in range(12, 23))
LONG_NAME = "name_of_a_task__" * 4


@pytest.mark.parametrize(("lengths", "paired"), [(MANY_LENGTHS[:8], True), (MANY_LENGTHS, False)])
def test_lines_are_at_most_100_columns_wide_and_every_score_stands_under_its_length(
    lengths: tuple[int, ...], paired: bool
) -> None:
    written = document(run_summary(texts=NASTY, samples=2, suite="ruler", lengths=lengths, paired=paired))
    gates = [structs.replace(gate, name=f"{gate.name} {LONG_NAME}", blocking=True) for gate in written.gates]
    cases = [structs.replace(case, task=LONG_NAME) if case.task == "vt" else case for case in written.cases]
    written = structs.replace(written, gates=tuple(gates), cases=tuple(cases))
    lines = [text for text, _ in terminal_summary(written)]
    assert max(map(len, lines)) <= 100
    scores = table_cells(lines)
    for case in written.cases:
        name = case.task if case.task != LONG_NAME else f"...{LONG_NAME[-36:]}"
        assert scores[name, case.length].removeprefix("~") == shown(case.score)
    text = "".join("".join(lines).split())
    # Some gates that pass are counted.
    for gate in (gate for gate in written.gates if gate.verdict != "pass"):
        assert "".join(f"{gate.name}: {gate.verdict}: {gate.reason}".split()) in text


# What CI takes as a command wherever a line starts with it or holds it.
COMMANDS = (
    "::error::x",
    " ::add-mask::x",
    "##[error]x",
    "##vso[task.complete]x",
    "##VSO[x]",
    "a\n::stop-commands::x",
)


@pytest.mark.parametrize("columns", [40, 80, 100])
def test_no_answer_is_a_command_to_ci(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a line is broken just before it."""
    texts = tuple(f"{'word ' * count}{command}" for command in COMMANDS for count in range(4))
    written = document(run_summary(texts=texts, samples=len(texts), suite="ruler", lengths=(4096, 32768)))
    gates = tuple(structs.replace(gate, reason=" ".join(texts)) for gate in written.gates)
    for line, _ in terminal_summary(structs.replace(written, gates=gates), columns):
        assert len(line) <= columns
        print_line(line)
    for line in capsys.readouterr().out.splitlines():
        assert not line.lstrip().startswith("::")
        assert not re.search(r"##(vso)?\[", line, re.IGNORECASE)


def table_cells(lines: list[str]) -> dict[tuple[str, int], str]:
    """Return the cells of the summary's tables by task and length, matched by the columns at which they end."""
    cells: dict[tuple[str, int], str] = {}
    length_at: dict[int, int] = {}
    for line in lines:
        if line.startswith("score "):
            matches = re.finditer(r"\b\d+[KM]?\b", line)
            length_at = {match.end(): parse_length(match[0].lower()) for match in matches}
        elif length_at and line:
            by_length = {length_at.get(match.end()): match[0] for match in re.finditer(r"\S+", line)}
            name = line.split()[0]
            cells |= {(name, length): cell for length, cell in by_length.items() if length is not None}
        else:
            length_at = {}
    return cells


def rendered(text: str) -> str:
    """Return the HTML of Markdown in GitHub's dialect, with tables and raw HTML."""
    return str(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))


@given(st.text(st.characters(), max_size=40) | st.text("|`*_[]()<>&#@~\\!-\n$:/w.", max_size=20))
def test_plain_text_has_no_markup(text: str) -> None:
    html = rendered(f"| a | b |\n| --- | --- |\n| {markdown_text(text, 60)} | end |\n")
    assert html.count("<td>") == 2
    assert re.sub(r"</?(table|thead|tbody|tr|th|td)>", "", html).count("<") == 0
    words = " ".join(text.split())
    if text.isascii() and text.isprintable():
        cell = unescape(re.sub(r"<[^>]*>", "", html.split("<td>")[1].split("</td>")[0]))
        assert " ".join(cell.split()) == words


@pytest.mark.parametrize("answer", NASTY, ids=range(len(NASTY)))
def test_no_answer_breaks_a_table(answer: str) -> None:
    run = run_summary(texts=(answer,), samples=4, suite="ruler", lengths=(4096, 32768), model=answer[:50])
    written = document(run)
    text = markdown(written)
    text.encode("utf-8")
    page = rendered(text)
    assert not re.search(r"<(script|img|a |b>|em>|del>)", page)
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        widths = {row.count("<td>") + row.count("<th>") for row in table.split("</tr>")[:-1]}
        assert len(widths) == 1
    assert page.count("<table>") == 4
    assert len(text) < 10_000


def test_failing_gates_come_first_and_the_rest_are_counted() -> None:
    written = document(run_summary(samples=20, paired=True))
    text = markdown(written)
    rows = text.partition("| gate |")[2].partition("\n\n")[0].splitlines()[2:]
    blocking = [gate for gate in written.gates if gate.blocking]
    assert len(blocking) > MOST_PASSING
    assert "fail" in rows[0]
    counted = [row for row in rows if row.startswith(("| more |", "| reported only |"))]
    counts = [int(count) for count in re.findall(r"(\d+) [a-z]", "\n".join(counted))]
    assert sum(counts) + len(rows) - len(counted) == len(written.gates)
    assert re.search(r"runs/step\\_500: \d+ worse, \d+ better of 2,720 pairs", text)
    # GitHub refuses a comment that is longer.
    assert len(text) < 65_536


OTHERWISE = "the baseline's answers were computed otherwise: dtype float32, not bfloat16; version unset, not 2"


@pytest.mark.parametrize(("baseline", "line"), [
    ({"engine": "hf", "dtype": "float32"}, OTHERWISE), ({"engine": "hf", "dtype": "bfloat16", "version": "2"}, ""),
    ({"engine": "vllm", "quantization": "none"}, "the baseline's answers were computed otherwise: engine vllm, not hf"),
    (None, ""),
])  # fmt: skip
def test_settings_of_the_baseline_are_shown_only_where_they_differ(baseline: dict[str, str] | None, line: str) -> None:
    run = run_summary(samples=2, suite="ruler", lengths=(4096,), paired=True)
    model = {"engine": "hf", "dtype": "bfloat16", "version": "2"}
    run = replace(run, execution=model, baseline_execution=baseline)
    texts = [note.text for note in comparison_notes(document(run)) if "computed otherwise" in note.text]
    assert texts == ([line] if line else [])


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (None, ""),
        ((), "no difference from the baseline but, at most, in the values of the weights"),
        (({"part": "config", "name": "a.b", "model": "5.0", "baseline": "1.0"},), "config a.b is 5.0, not 1.0"),
        (({"part": "config", "name": "a", "model": "1"},), "config a is 1, not missing"),
        (({"part": "tokenizer", "name": "x.json b", "baseline": "1"},), "tokenizer x.json b is missing, not 1"),
        (({"part": "chat template"}, {"part": "dtype", "model": "a", "baseline": "b"}), "template; dtype is a, not b"),
        (({"part": "weights", "name": "missing", "model": "2, such as n"},), "weights missing: 2, such as n"),
        (tuple({"part": "config", "name": f"k{at}"} for at in range(9)), "config k4; config k5; 3 more"),
    ],
)  # fmt: skip
def test_what_differs_from_the_baseline_is_one_line(found: tuple[dict[str, Any], ...] | None, line: str) -> None:
    run = run_summary(samples=2, suite="ruler", lengths=(4096,), paired=True)
    assert run.run.baseline is not None
    known = None if found is None else tuple(ReportDifference(**difference) for difference in found)
    run = replace(run, run=replace(run.run, baseline=replace(run.run.baseline, differences=known)))
    texts = [note.text for note in comparison_notes(document(run)) if note.name == "differs"]
    assert line in texts[0] if line else not texts


def test_one_checkpoint_is_its_own_baseline() -> None:
    assert difference_text((), is_same=True) == "the model is the baseline itself"


@pytest.mark.parametrize("paired", [False, True])
def test_only_a_baseline_explains_more_answers_than_samples(paired: bool) -> None:
    """Without one, several workers have answered some that no verdict needed."""
    shown = document(run_summary(samples=2, suite="ruler", lengths=(4096,), paired=paired))
    more = sum(case.samples for case in shown.cases) + 3
    text = cost_text(structs.replace(shown, run=structs.replace(shown.run, computed_samples=more)))
    assert f"{more} answered now" in text
    assert ("the baseline's too" in text) is paired


def test_a_loss_names_the_command_that_looks_for_its_cause(tmp_path: Path) -> None:
    """It has both checkpoints, this report and, of the cases with gold answers, the one with most worse samples."""
    run, good, bad = run_summary(samples=2, suite="ruler", lengths=(4096,), paired=True), tmp_path / "g", tmp_path / "b"
    assert run.run.baseline is not None
    assert run.run.baseline.checkpoint is not None
    baseline = replace(run.run.baseline, checkpoint=replace(run.run.baseline.checkpoint, path=str(good)))
    evaluation, worse = run.evaluation, {"qa_1": 9, "vt": 3}
    results = {
        case_id: replace(found, case=replace(found.case, has_gold=found.case.task != "qa_1"))
        for case_id, found in evaluation.measured.results.items()
    }
    diagnoses = {
        case_id: replace(
            found,
            comparison=structs.replace(
                found.comparison, dropped=True, worse=worse.get(results[case_id].case.task, 1), better=0
            ),
        )
        for case_id, found in evaluation.diagnoses.items()
    }
    run = replace(
        run,
        run=replace(run.run, checkpoint=replace(run.run.checkpoint, path=str(bad)), baseline=baseline),
        evaluation=replace(
            evaluation, diagnoses=diagnoses, measured=replace(evaluation.measured, results=results)
        ),
        files={"report_json": tmp_path / "report.json"},
    )  # fmt: skip
    assert (document(run).regression or pytest.fail("no comparison")).cause is None
    good.mkdir()
    bad.mkdir()
    report = document(run)
    words = ("longctx", "diagnose", good, bad, "--report", tmp_path / "report.json", "--case", "test_ruler[vt-4096]")
    command = shlex.join(map(str, words))
    assert (report.regression or pytest.fail("no comparison")).cause == command
    assert command.replace("'", "&#39;") in page_of(run)


@pytest.mark.parametrize(("declared", "name"), [
    ({"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
    ({"quant_method": "fp8"}, "fp8"), ({}, None),
])  # fmt: skip
def test_a_declared_quantization_has_a_name(declared: dict[str, Any], name: str | None) -> None:
    config = {"quantization_config": declared}
    assert quantization(config) == quantization({"text_config": config}) == name
