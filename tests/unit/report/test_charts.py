"""Charts: one scale, readable colours, points inside the frame, and evidence that agrees with the verdict."""

from __future__ import annotations

import re
from typing import get_args
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.records import FailureKind
from longctx.plugins.report.charts.line_charts import Series, line_svg, lowest_of, score_charts, score_line
from longctx.plugins.report.charts.svg import SHADES, difference_class, element, shade, shade_rules
from longctx.plugins.report.document import document
from longctx.plugins.report.sections.failures import failure_table
from longctx.plugins.report.sections.ruler import ruler_series
from longctx.plugins.thresholds.records import Gate
from longctx.plugins.verdicts.evaluation import curves
from tests.helpers.pages import page_of
from tests.helpers.queues import evaluator_of, scope_of, thresholds
from tests.helpers.reports import run_summary
from tests.unit.verdicts.test_regression import MANY


@given(st.text(st.characters(exclude_categories=["C"]), max_size=30))
def test_text_and_attributes_of_an_element_are_escaped(text: str) -> None:
    root = ElementTree.fromstring(element("text", text, aria_label=text, x=1.0, y=None))
    assert (root.text or "") == text
    assert {name: " ".join(value.split()) for name, value in root.attrib.items()} == {
        "aria-label": " ".join(text.split()),
        "x": "1",
    }


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


def test_charts_side_by_side_have_one_scale() -> None:
    charts = score_charts(ruler_series(run_summary(samples=20, suite="ruler").evaluation), ["4K", "8K", "16K", "32K"])
    assert len(charts) == 5
    assert len({chart.line.y_ticks for chart in charts}) == 1
    assert (lowest_of([99.0, None, 53.0]), lowest_of([99.0, 51.0]), lowest_of([None])) == (50, 0, 0)


LEVEL = Gate(
    name="level", kind="level", aspect=None, category=None, tasks=(), above=70.0, blocking=True, lengths=(),
    at_least=None, rising=False,
)  # fmt: skip


@pytest.mark.parametrize("share", [0.95, 0.4])
def test_evidence_reaches_the_limit_where_the_verdict_was_reached(share: float) -> None:
    scope = scope_of(MANY)
    evaluator = evaluator_of(thresholds(LEVEL), scope, dict.fromkeys(scope.lengths, share))
    verdicts = {verdict.name: verdict for verdict in evaluator.verdicts()}
    by_name = curves(evaluator)
    assert by_name.keys() == verdicts.keys()
    for name, (curve,) in by_name.items():
        assert curve.decided == verdicts[name].samples == curve.seen[-1] < curve.of
        winner, loser = (curve.above, curve.below) if share > 0.7 else (curve.below, curve.above)
        assert winner[-1] >= curve.bar - 0.01 > loser[-1]
        assert not curve.exact


def test_evidence_of_a_comparison_reaches_the_limit_where_it_was_decided() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096,), paired=True)
    (curve,) = run.evaluation.curves["regression at 4k"]
    (verdict,) = [verdict for verdict in run.evaluation.verdicts if verdict.kind == "regression"]
    assert (curve.decided is None) == (verdict.verdict == "undecided")
    assert curve.of == 200 * 13


def test_a_run_of_single_samples_has_a_page() -> None:
    """A panel of one task has a single cluster then, which leaves nothing to test."""
    run = run_summary(samples=1, suite="ruler", lengths=(4096,))
    by_name = run.evaluation.curves
    assert "tracing at 4k" not in by_name
    assert len(by_name["mean at 4k"]) == 1
    assert "tracing" in page_of(run)


@given(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=30))
def test_points_lie_within_the_chart_and_higher_scores_above_lower_ones(scores: list[float | None]) -> None:
    intervals = tuple(None if score is None else (score, score) for score in scores)
    series = Series(name="s", values=tuple(scores), intervals=intervals, threshold=50.0)
    chart = score_line(series, [str(index) for index in range(len(scores))])
    known = [score for score in scores if score is not None]
    assert len(chart.points) == len(known)
    assert all(0 <= point.x <= 360 and 20 <= point.y <= 190 for point in chart.points)
    pairs = [(point.y, score) for point, score in zip(chart.points, known, strict=True)]
    assert sorted(pairs, key=lambda pair: (pair[1], -pair[0])) == sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def test_a_line_chart_marks_failing_and_undecided_points_and_draws_every_run_of_intervals() -> None:
    series = Series(
        name="s", values=(90.0, 60.0, None, 40.0), intervals=((80, 100), (50, 70), None, (30, 50)),
        threshold=55.0, verdicts=("pass", "undecided", None, "fail"),
    )  # fmt: skip
    chart = score_line(series, ["4K", "8K", "16K", "32K"])
    drawing = ElementTree.fromstring(line_svg(chart, "a < b"))
    assert drawing.attrib["aria-label"] == "a < b"
    assert [mark.attrib["class"] for mark in drawing.findall("circle")] == ["mark", "mark open"]
    assert [mark.attrib["class"] for mark in drawing.findall("path")] == ["mark fail"]
    corners = [len(band.attrib["points"].split()) for band in drawing.findall("polygon")]
    assert corners == [4, 4]
    assert len(drawing.findall("line[@class='threshold']")) == 1
    assert [text.text for text in drawing.findall("text[@class='value']")] == ["90.0", "60.0", "40.0"]


def test_numbers_are_readable_on_every_colour() -> None:
    """The contrast is at least 4.5 to 1, as WCAG asks, and every shade is lighter than the one before."""
    rules = re.findall(r"\.s(\d+)\{background:#(\w{6});color:#(\w+)\}", shade_rules())
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
