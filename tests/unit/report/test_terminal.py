"""The terminal's summary: its columns, and that HELMET's means and the differences agree with the other reports."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from longctx.fixtures.lengths import parse_length
from longctx.plugins.report.document import document
from longctx.plugins.report.markdown import markdown
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
    assert f"with its {100 * written.helmet.confidence:g} % confidence interval" in page_text
    heatmap = {row[0]: row[1:] for row in tables["HELMET: score by task and length"][1:]}
    rows = markdown_rows(markdown(written, holds=False))
    terminal = {line.split()[1]: line.split()[2:] for line, _ in terminal_summary(written) if line.startswith("= ")}
    helmet, keys = written.helmet, [str(length) for length in run.run.options.lengths]
    for name, scores in (*helmet.categories.items(), ("HELMET average", helmet.average)):
        row = [shown(scores[key]) for key in keys]
        assert "-" not in row
        assert heatmap[name if name in heatmap else f"{name} mean"] == row
        assert rows[name] == row
        assert terminal[name.split()[0]] == row
    for suite in ("ruler", "helmet"):
        table = tables[f"{suite.upper()}: difference from the baseline by task and length"]
        cells = {row[0]: row[1:] for row in table[1:]}
        for case in (case for case in written.cases if case.suite == suite):
            difference = written.regression.cases[case.id].difference
            column = keys.index(str(case.length))
            assert float(cells[case.task][column].rstrip(" ▼=")) == pytest.approx(difference, abs=0.051)
    worse = sum(pair.worse for pair in written.regression.cases.values())
    assert f"{worse} worse" in markdown(written, holds=False)


def test_the_mean_of_a_baseline_stands_below_that_of_the_same_tasks() -> None:
    """Also where some tasks were deselected, and RULER's mean is unknown."""
    written = document(run_summary(samples=4, lengths=(4096,), paired=True))
    selected = ("vt", "cwe")
    kept = tuple(case for case in written.cases if case.task in selected)
    unknown = replace(written.ruler, scores={"4096": None})
    lines = [line for line, _ in terminal_summary(replace(written, cases=kept, ruler=unknown, helmet=None))]
    own = lines[lines.index(next(line for line in lines if line.startswith("  baseline "))) - 1]
    mean = sum(case.score or 0.0 for case in kept) / len(kept)
    assert own.split() == ["=", "these", "tasks", shown(mean)]


def test_cases_that_fill_little_of_their_length_are_named_and_a_page_tells_every_fill() -> None:
    run = run_summary(samples=4, suite="ruler", lengths=(4096,))
    written = document(run)
    first, second, *rest = written.cases
    questions = replace(second, id=f"test_questions[{second.task}-4k]", fill=(10.0, 5.0))
    cases = (replace(first, fill=(57.4, 40.2)), questions, *(replace(case, fill=(98.0, 97.0)) for case in rest))
    lines = [line for line, _ in terminal_summary(replace(written, cases=cases))]
    assert [line for line in lines if "filled" in line] == [
        f"filled in the median (at least): {first.task} at 4K 57 % (40 %)"
    ]
    assert page_of(run).count("% in the median, ") == sum(case.fill is not None for case in written.cases) > 0


# More lengths than fit on a line beside the longest names; a user's own tasks may have longer ones.
MANY_LENGTHS = tuple(2**exponent for exponent in range(12, 23))
LONG_NAME = "name_of_a_task__" * 4


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("lengths", [MANY_LENGTHS[:8], MANY_LENGTHS])
def test_lines_are_at_most_100_columns_wide_and_every_score_stands_under_its_length(
    lengths: tuple[int, ...], paired: bool
) -> None:
    written = document(run_summary(texts=NASTY, samples=2, lengths=lengths, paired=paired))
    gates = [replace(gate, name=f"{gate.name} {LONG_NAME}", blocking=True) for gate in written.gates]
    cases = [replace(case, task=LONG_NAME) if case.task == "vt" else case for case in written.cases]
    written = replace(written, gates=tuple(gates), cases=tuple(cases))
    lines = [text for text, _ in terminal_summary(written)]
    assert max(map(len, lines)) <= 100
    scores = table_cells(lines)
    for case in written.cases:
        name = case.task if case.task != LONG_NAME else f"...{LONG_NAME[-36:]}"
        assert scores[name, case.length].removeprefix("~") == shown(case.score)
    text = "".join("".join(lines).split())
    for gate in written.gates:
        assert "".join(f"{gate.name}: {gate.reason}".split()) in text


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


@pytest.mark.parametrize(("verdict", "fails", "is_named"), [
    ("fail", True, True), ("inconclusive", False, True), ("not measured", True, True), ("not measured", False, False),
])  # fmt: skip
def test_gates_are_named_to_be_selected_again_unless_their_cases_were_deselected(
    verdict: str, fails: bool, is_named: bool
) -> None:
    written = document(run_summary(samples=20, suite="ruler"))
    gates = [replace(gate, verdict=verdict, fails=fails) for gate in written.gates if gate.blocking]
    written = replace(written, gates=tuple(gates))
    assert any(text.startswith("id  ") for text, _ in terminal_summary(written)) == is_named
