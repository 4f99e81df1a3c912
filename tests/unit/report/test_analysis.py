"""The analysis over many checkpoints: rank correlations with intervals, depths, and changes over steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.cli import main
from longctx.fixtures.records.report import report_data
from longctx.plugins.evidence.statistics import rank_correlation
from longctx.plugins.report.document import document
from longctx.plugins.thresholds.records import CATEGORIES
from tests.helpers.reports import run_summary

SCORES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=12)


@given(SCORES)
def test_a_rank_correlation_depends_on_ranks_only_and_lies_in_its_interval(pairs: Sequence[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = rank_correlation(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
        return
    assert found is not None
    # A perfect correlation of few pairs has the interval of one with two neighbours swapped.
    most = 1 - 12 / (found.pairs * (found.pairs**2 - 1))
    assert -1 <= found.low <= max(-most, min(most, found.value)) <= found.high <= 1
    assert rank_correlation([a**3 for a in first], second) == found
    turned = rank_correlation([-a for a in first], second)
    assert turned is not None
    assert turned.value == pytest.approx(-found.value)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))


def test_known_correlations() -> None:
    # Ranks 1 to 5 against 2, 1, 4, 3, 5: 1 - 6 * 4 / 120.
    found = rank_correlation([1, 2, 3, 4, 5], [20, 10, 40, 30, 50])
    assert found is not None
    assert found.value == pytest.approx(0.8)
    perfect = rank_correlation(range(20), range(20))
    assert perfect is not None
    assert perfect.value == pytest.approx(1)
    assert 0.9 < perfect.low < perfect.high < 1
    assert perfect.is_clear
    assert rank_correlation([1, 2, 3], [1, 2, 3]) is None


def report(step: int, ruler: float, categories: Mapping[str, float]) -> dict[str, Any]:
    data = report_data(document(run_summary(samples=2, lengths=(4096,), step=step)))
    depths = [{"depth": (tenth + 0.5) / 10, "score": 90.0 - 40 * (3 < tenth < 6), "samples": 3} for tenth in range(10)]
    data["model"] |= {"name": f"run/step_{step}", "fingerprint": f"f{step}"}
    data["run"]["started"] = f"2026-01-01T00:00:{step:02}"
    data["ruler"]["scores"] = {"4096": ruler, "8192": None}
    data["helmet"] |= {
        "categories": {name: {"8192": score} for name, score in categories.items()},
        "average": {"8192": sum(categories.values()) / len(categories)},
    }
    return data | {"cases": [data["cases"][0] | {"by_depth": depths}]}


def test_the_page_shows_what_goes_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(1, 13):
        zigzag = 10.0 * (step % 3)
        categories = {name: 50.0 + place for place, name in enumerate(CATEGORIES)}
        categories |= {"rag": 40 + step + zigzag, "cite": 30 + step + zigzag, "icl": 80.0 - step}
        (tmp_path / f"{step}.json").write_text(json.dumps(report(step, 50 + step, categories)))
    file = tmp_path / "analysis.html"
    assert main(["analysis", str(tmp_path), "--since", "3", "--out", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "## Rank correlation over 12 checkpoints" in lines
    assert any(line.startswith("| RULER | icl | -1.00 |") for line in lines)
    assert "## Changes from step 3 to 12" in lines
    assert "| icl | -9.0 |" in lines
    moved = lines[lines.index("Moved together from step to step (intervals without 0):") :]
    assert any(line.startswith("| rag | cite | +1.00 |") for line in moved)
    assert not any(line.startswith("| RULER") for line in moved)
    (depth,) = [line for line in lines if line.startswith("| 4k |")]
    assert depth.endswith("| +40.0 |")
    page = file.read_text(encoding="utf-8")
    assert "<td>-1.00</td><td>-1.00 to" in page
    # A curve for the one length, and the chart of each group of correlations.
    assert page.count('class="curve"') == 1
    for name in ("with HELMET", "with RULER", "between categories", "of measures that moved together"):
        assert page.count(f'aria-label="Rank correlation {name}') == 1
    # Five measures vary, and of their changes one pair goes together.
    assert page.count('class="whisker"') == 10 + 1


def test_one_checkpoint_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "1.json").write_text(json.dumps(report(1, 50, {"rag": 1.0})))
    assert main(["analysis", str(tmp_path)]) == 4
    assert "give reports of two or more" in capsys.readouterr().err


def test_reports_of_parts_of_the_suites_say_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(1, 6):
        written = report(step, 50 + step, {"rag": 40.0 + step})
        written["ruler"]["scores"] = {"4096": None}
        written["helmet"]["average"] = {"8192": None}
        (tmp_path / f"{step}.json").write_text(json.dumps(written))
    assert main(["analysis", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "not all reports have them at a common length: RULER, HELMET, " in text
    assert "two measures that all reports have" in text


def test_a_page_that_cannot_be_written_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        (tmp_path / f"{step}.json").write_text(json.dumps(report(step, 50, {"rag": 1.0})))
    assert main(["analysis", str(tmp_path), "--out", str(tmp_path / "none" / "page.html")]) == 4
    error = capsys.readouterr().err
    assert error.startswith("error: --out: cannot write")
    assert error.count("\n") == 1
