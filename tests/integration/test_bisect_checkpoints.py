"""The benchmark of bisects on real checkpoints counts costs from reports, and plants the loss at the right step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bisect_checkpoints import (
    MAX_LOADS,
    SearchResult,
    Usage,
    is_within_limits,
    link_checkpoints,
    table,
    usage_by_checkpoint,
)
from longctx.fixtures.records.report import JsonReport
from tests.helpers.report_records import report_of

GOOD = SearchResult(
    points=10, number=0, edge=9, named=9, right=True, lost=10.0, samples=1500, checkpoints=9, loads=3, processes=8
)  # fmt: skip
LINEAR = 16_000


def comparison(model: str, baseline: str, samples: int, *, second: int, only: Sequence[str] = ()) -> JsonReport:
    """Return the part of a suite's report that the benchmark reads."""
    return report_of({
        "run": {"started": f"2026-01-01T00:00:{second:02}+00:00", "options": {"only_samples": only}},
        "model": {"fingerprint": model},
        "regression": {"baseline": {"fingerprint": baseline}},
        "cases": [{"samples": samples}],
    })  # fmt: skip


def test_a_checkpoint_counts_with_its_longest_comparison() -> None:
    reports = [comparison("bad", "good", 250, second=0), comparison("middle", "good", 40, second=1)]
    assert usage_by_checkpoint(reports) == {
        "good": Usage(samples=250, loads=1), "bad": Usage(samples=250, loads=1), "middle": Usage(samples=40, loads=1)
    }  # fmt: skip


def test_telling_samples_count_once_and_for_the_measured_checkpoint_only() -> None:
    first, more = (comparison("middle", "good", count, second=count, only=["case:1"]) for count in (8, 16))
    usage = usage_by_checkpoint([comparison("bad", "good", 80, second=0), first, more])
    assert (usage["good"], usage["middle"]) == (Usage(samples=80, loads=1), Usage(telling=16, loads=2))


def test_weights_are_loaded_again_only_for_samples_that_no_earlier_comparison_had() -> None:
    """List the reports in another order than that in which the runs started."""
    edge, step = comparison("bad", "middle", 60, second=2), comparison("middle", "good", 40, second=1)
    shorter = comparison("middle", "good", 30, second=3)
    endpoints = comparison("bad", "good", 250, second=0)
    usage = usage_by_checkpoint([edge, shorter, step, endpoints])
    assert usage["middle"] == Usage(samples=60, loads=2)
    assert usage["bad"] == usage["good"] == Usage(samples=250, loads=1)


def test_a_chain_is_good_before_its_edge_and_bad_from_there_on(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    for _ in range(2):
        link_checkpoints(chain, tmp_path / "pool", "0.3", checkpoints=3, edge=3)
    links = sorted(chain.iterdir())
    assert [link.name for link in links] == ["step-0001", "step-0002", "step-0003"]
    assert all(link.is_symlink() for link in links)
    specs = [json.loads((link / "calibration.json").read_text())["spec"] for link in links]
    assert specs == ["full-step=1", "full-step=2", "full-blind=0.3-step=3"]


@pytest.mark.parametrize(
    "broken", [replace(GOOD, right=False), replace(GOOD, samples=1700), replace(GOOD, loads=MAX_LOADS + 1)]
)
def test_an_exceeded_limit_is_reported(broken: SearchResult) -> None:
    assert is_within_limits([GOOD], LINEAR)
    assert not is_within_limits([broken], LINEAR)
    assert table([GOOD], LINEAR)[-1].endswith("ok")
    assert table([broken], LINEAR)[-1].endswith("EXCEEDED")


def test_one_step_of_forty_may_be_missed_at_ten_points_and_none_at_thirty() -> None:
    chains = [GOOD] * 39 + [replace(GOOD, right=False)]
    assert is_within_limits(chains, LINEAR)
    assert not is_within_limits([replace(result, points=30) for result in chains], LINEAR)
