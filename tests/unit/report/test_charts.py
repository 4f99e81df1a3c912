"""Charts of a page: one scale, readable colours, marks inside their frame, evidence at its bar with the verdict."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.records import FailureKind
from plugins.gates.evidence_curves import curves
from plugins.gates.thresholds import Gate
from plugins.report.charts import SHADES, difference_class, floor_of, line, shade, shade_rules
from plugins.report.details import details
from plugins.report.document import document
from plugins.report.html.views import failures, score_charts
from tests.helpers.pages import page_of, read
from tests.helpers.queues import judge as judge_of
from tests.helpers.queues import scope_of, thresholds
from tests.helpers.reports import run_summary
from tests.unit.gates.test_regression import MANY


def test_every_kind_of_failure_has_its_place_and_colour() -> None:
    run = run_summary(samples=60, suite="ruler", lengths=(4096, 131072))
    found = document(run)
    seen = {kind for case in found["cases"] for kind in case["failures"]}
    assert seen == set(get_args(FailureKind))
    for each in failures(found):
        assert sum(each["counts"].values()) == each["total"]
        assert sum(width for _, _, width in each["parts"]) == pytest.approx(300, abs=0.1)
    text = page_of(run)
    style = next(content for kind, content in read(text).raw if kind == "style")
    for kind in seen:
        name = f"k-{kind.replace(' ', '-')}"
        assert f'<rect class="{name}"' in text
        assert f".{name}{{fill:" in style


def test_charts_side_by_side_have_one_scale() -> None:
    run = run_summary(samples=20, suite="ruler")
    drawn = score_charts(document(run), details(run))
    assert len(drawn) == 5
    assert len({chart.line.ticks_y for chart in drawn}) == 1
    assert (floor_of([99.0, None, 53.0]), floor_of([99.0, 51.0]), floor_of([None])) == (50, 0, 0)


LEVEL = Gate(
    name="level", kind="level", aspect=None, category=None, tasks=(), above=70.0, blocking=True, lengths=(),
    at_least=None, rising=False,
)  # fmt: skip


@pytest.mark.parametrize("share", [0.95, 0.4])
def test_evidence_reaches_its_bar_where_the_verdict_was_reached(share: float) -> None:
    scope = scope_of(MANY)
    found = judge_of(thresholds(LEVEL), scope, dict.fromkeys(scope.lengths, share))
    verdicts = {verdict.name: verdict for verdict in found.verdicts()}
    drawn = curves(found)
    assert drawn.keys() == verdicts.keys()
    for name, (curve,) in drawn.items():
        assert curve.decided == verdicts[name].samples == curve.seen[-1] < curve.of
        winner, loser = (curve.above, curve.below) if share > 0.7 else (curve.below, curve.above)
        assert winner[-1] >= curve.bar - 0.01 > loser[-1]
        assert not curve.exact


def test_evidence_of_a_comparison_reaches_its_bar() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096,), paired=True)
    (curve,) = run.evaluation.curves["regression at 4k"]
    (verdict,) = [each for each in run.evaluation.verdicts if each.kind == "regression"]
    assert (curve.decided is None) == (verdict.verdict == "inconclusive")
    assert curve.of == 200 * 13


def test_a_run_of_single_samples_has_a_page() -> None:
    """A task alone in its panel has one piece of evidence, which is all of it."""
    run = run_summary(samples=1, suite="ruler", lengths=(4096,))
    drawn = run.evaluation.curves
    assert "tracing at 4k" not in drawn
    assert len(drawn["mean at 4k"]) == 1
    assert "tracing" in page_of(run)


@given(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=30))
def test_marks_stay_within_the_chart(scores: list[float | None]) -> None:
    labels = [str(at) for at in range(len(scores))]
    drawn = line(labels, scores, [None if each is None else (each, each) for each in scores], threshold=50.0)
    assert len(drawn.points) == sum(score is not None for score in scores)
    assert all(0 <= point.x <= 360 and 20 <= point.y <= 190 for point in drawn.points)
    known = [
        (point.y, score)
        for point, score in zip(drawn.points, [score for score in scores if score is not None], strict=True)
    ]
    assert sorted(known, key=lambda each: (each[1], -each[0])) == sorted(known, key=lambda each: (-each[0], each[1]))


def test_numbers_are_readable_on_every_colour() -> None:
    """WCAG's 4.5 to 1, and steps that grow lighter one after the other."""
    rules = re.findall(r"\.s(\d+)\{background:#(\w{6});color:#(\w+)\}", shade_rules())
    assert [int(step) for step, _, _ in rules] == list(range(SHADES + 1))
    lights = []
    for _, background, ink in rules:
        channels = [int(background[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert (1.05 / (light + 0.05) if ink == "fff" else (light + 0.05) / 0.05) >= 4.5
        lights.append(light)
    assert lights == sorted(lights)
    assert (shade(0), shade(99.9), shade(100)) == (0, SHADES - 1, SHADES)
    assert [difference_class(points) for points in (0, -0.4, -3, 12, -50)] == ["d0", "d0", "w2", "b4", "w5"]
