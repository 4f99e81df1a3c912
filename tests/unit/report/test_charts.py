"""Charts: readable colours, points inside the frame, and marks that agree with the verdict."""

import re
from typing import get_args
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.records import FailureKind
from longctx.plugins.report.charts import (
    HEIGHT,
    MOST_LINES,
    SHADES,
    WIDTH,
    Chart,
    Series,
    chart,
    difference_class,
    score_charts,
    shade,
)
from longctx.plugins.report.document import document
from longctx.plugins.report.html.page import environment, resource
from longctx.plugins.report.sections.scores import failure_table, setting_series
from tests.helpers.report_records import report_of
from tests.helpers.reports import run_summary


def test_every_kind_of_failure_is_counted_and_shaded_by_its_share() -> None:
    written = document(run_summary(samples=60, suite="ruler", lengths=(4096, 131072)))
    kinds = {kind for case in written.cases for kind in case.failures}
    table = failure_table(written)
    assert set(table.columns) == {"right", "all", *kinds} == {"right", "all", *get_args(FailureKind)}
    for row in table.rows:
        counts = {
            name: int(cell.text.replace(",", "") or 0) for name, cell in zip(table.columns, row.cells, strict=True)
        }
        total = counts.pop("all")
        assert sum(counts.values()) == total == 60 * 13
        styles = {name: cell.style for name, cell in zip(table.columns, row.cells, strict=True) if name in kinds}
        assert styles == {
            kind: difference_class(-100 * counts[kind] / total) if counts[kind] else "none" for kind in kinds
        }


def drawn(shown: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(environment().get_template("charts.html.j2").module.drawing(shown))  # type: ignore[attr-defined]


def texts(drawing: ElementTree.Element, style: str) -> list[str | None]:
    return [text.text for text in drawing.findall(f"text[@class='{style}']")]


def test_series_that_were_not_measured_have_no_chart() -> None:
    series = [Series(name=f"{value}", values=(value, None), intervals=(None, None)) for value in (99.0, None)]
    (shown,) = score_charts(series, ["4K", "8K"])
    assert texts(drawn(shown), "tick") == ["0", "25", "50", "75", "100", "4K", "8K"]


@given(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=30))
def test_points_lie_within_the_chart_and_higher_scores_above_lower_ones(scores: list[float | None]) -> None:
    intervals = tuple(None if score is None else (score, score) for score in scores)
    series = Series(name="s", values=tuple(scores), intervals=intervals, threshold=50.0)
    drawing = drawn(chart("s", [series], [str(index) for index in range(len(scores))]))
    points = [(float(mark.attrib["cx"]), float(mark.attrib["cy"])) for mark in drawing.findall("circle")]
    known = [score for score in scores if score is not None]
    assert len(points) == len(known)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    pairs = [(y, score) for (_, y), score in zip(points, known, strict=True)]
    assert sorted(pairs, key=lambda pair: (pair[1], -pair[0])) == sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def test_a_line_chart_marks_failing_and_undecided_points_and_draws_every_interval() -> None:
    series = Series(
        name="a < b", values=(90.0, 60.0, None, 40.0), intervals=((80, 100), (50, 70), None, (30, 50)),
        threshold=55.0, verdicts=("pass", "undecided", None, "fail"),
    )  # fmt: skip
    shown = chart(series.name, [series], ["4K", "8K", "16K", "32K"])
    assert [[cell.text for cell in row.cells] for row in shown.table.rows] == [["90.0"], ["60.0"], ["-"], ["40.0"]]
    drawing = drawn(shown)
    assert drawing.attrib["aria-label"] == "a < b"
    assert [mark.attrib["class"] for mark in drawing.findall("circle")] == ["mark", "mark open"]
    assert [mark.attrib["class"] for mark in drawing.findall("path")] == ["mark fail"]
    assert len(drawing.findall("line[@class='interval']")) == 3
    assert len(drawing.findall("line[@class='threshold']")) == 1
    assert texts(drawing, "value") == ["90.0", "60.0", "40.0"]


def test_numbers_are_readable_on_every_colour() -> None:
    """The contrast is at least 4.5 to 1, as WCAG asks, and every shade is lighter than the one before."""
    rules = re.findall(r"\.s(\d+) \{ background: #(\w{6}); color: #(\w+) \}", resource("style.css"))
    assert [int(number) for number, _, _ in rules] == list(range(SHADES + 1))
    luminances = []
    for _, background, ink in rules:
        channels = [int(background[start : start + 2], 16) / 255 for start in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert (1.05 / (luminance + 0.05) if ink == "fff" else (luminance + 0.05) / 0.05) >= 4.5
        luminances.append(luminance)
    assert luminances == sorted(luminances)
    assert (shade(0), shade(99.9), shade(100)) == (0, SHADES - 1, SHADES)
    assert [difference_class(points) for points in (0, -0.4, -3, 12, -50)] == ["d0", "d0", "w2", "b4", "w5"]


def test_a_sweep_has_a_chart_for_each_factor_with_a_line_and_a_name_for_each_setting() -> None:
    cases = []
    for name, category, scores in (
        ("keys_1", "keys", (100.0, 90.0)),
        ("keys_8", "keys", (None, 40.0)),
        ("vt", "hops", (5.0, 5.0)),
    ):
        for length, score in zip((4096, 8192), scores, strict=True):
            case = {"id": f"test_questions[{name}-{length}]", "category": category, "task": name}
            cases.append({**case, "length": length, "score": score})
    # A category with one task has nothing to compare, nor have tasks of the suites.
    cases.append({"id": "test_ruler[cwe-4k]", "category": "keys", "task": "cwe", "length": 4096, "score": 50.0})
    groups = setting_series(report_of({"cases": cases}))
    assert {name: [(one.name, one.values) for one in group] for name, group in groups.items()} == {
        "keys": [("keys_1", (100.0, 90.0)), ("keys_8", (None, 40.0))]
    }
    root = drawn(chart("keys", groups["keys"], ["4K", "8K"]))
    assert texts(root, "tick")[-2:] == ["keys_1", "keys_8"]
    assert [len(root.findall(f"circle[@class='dot l{number}']")) for number in range(3)] == [2, 1, 0]
    styles = resource("style.css")
    assert all(f".l{number}" in styles for number in range(MOST_LINES))
