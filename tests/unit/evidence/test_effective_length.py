"""The paper's Tables 3 and 13, reproduced from their per-length scores."""

import json
from typing import Any

import pytest

from longctx.plugins.evidence.effective_length import (
    average,
    contiguous_effective_length,
    effective_length,
    effective_length_label,
    weighted_average,
)
from tests.helpers.paths import TABLES as TABLE_FILES

TABLES = [json.loads(path.read_text()) for path in sorted(TABLE_FILES.glob("ruler_*.json"))]
ROWS = [(table, row) for table in TABLES for row in table["rows"]]


def curve(table: dict[str, Any], row: dict[str, Any]) -> dict[int, float]:
    return dict(zip(table["lengths"], row["scores"], strict=True))


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{t['source'][-12:]}-{r['model']}" for t, r in ROWS])
def test_the_paper_prints_what_we_compute(table: dict[str, Any], row: dict[str, Any]) -> None:
    scores = curve(table, row)
    label = effective_length_label(scores, table["thresholds"][row["kind"]])
    printed = row["effective"].replace("K", "")
    tokens = printed[:1] * (printed[0] in "<>") + str(int(printed.strip("<>")) * 1024)
    assert label == tokens
    # The paper's own means come from unrounded cells.
    assert average(scores) == pytest.approx(row["avg"], abs=0.0501)
    assert weighted_average(scores, rising=True) == pytest.approx(row["wavg_inc"], abs=0.1)
    assert weighted_average(scores, rising=False) == pytest.approx(row["wavg_dec"], abs=0.1)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["source"])
@pytest.mark.parametrize(("rank", "rising"), [("rank_inc", True), ("rank_dec", False)])
def test_ranks_follow_from_the_weighted_averages(table: dict[str, Any], rank: str, rising: bool) -> None:
    for kind in table["thresholds"]:
        rows = [row for row in table["rows"] if row["kind"] == kind]
        ordered = sorted(rows, key=lambda row: -weighted_average(curve(table, row), rising=rising))
        assert [row[rank] for row in ordered] == list(range(1, len(rows) + 1))


def test_a_score_equal_to_the_threshold_does_not_pass() -> None:
    assert effective_length({4096: 85.6}, 85.6) is None
    assert effective_length_label({4096: 85.6}, 85.6) == "<4096"


def test_a_dip_shows_as_two_different_effective_lengths() -> None:
    dip = {1024: 90.0, 2048: 80.0, 4096: 90.0, 8192: 10.0}
    assert (effective_length(dip, 85.6), contiguous_effective_length(dip, 85.6)) == (4096, 1024)
    assert effective_length_label(dip, 85.6) == "4096"


def test_a_summary_of_nothing_raises() -> None:
    with pytest.raises(ValueError, match="no scores"):
        average({})
