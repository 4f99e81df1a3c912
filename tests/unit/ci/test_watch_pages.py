"""The index page of a watch says first what is wrong since when, and carries a comparison of any two checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from longctx.ci.checkpoint_dirs import StepReader
from longctx.ci.suite_options import SuiteOptions
from longctx.ci.watch.alert_text import AlertText
from longctx.ci.watch.alerts import find_alerts
from longctx.ci.watch.history import Change, Search, Verdict, WatchedCheckpoint
from longctx.ci.watch.pages import WatchedRun, write_index
from longctx.fixtures.records.report import report_data
from tests.helpers.browser import CHROMIUM, DRIVER, browser
from tests.helpers.report_records import report_of
from tests.helpers.watched import measured

SUITE = SuiteOptions(given=(), checks_engine=False, seed_by_step=False, confidence=0.99, drop_points=2)


def write_page(
    folder: Path,
    verdicts: Sequence[Verdict],
    scores: Sequence[float],
    *,
    counts_gpus: bool = False,
    samples: Sequence[int] = (24,) * 9,
    suspected: Sequence[int] = (),
) -> str:
    """Write the index of checkpoints with these verdicts and scores, and return it."""
    measurements = []
    for number, (verdict, score) in enumerate(zip(verdicts, scores, strict=True), 1):
        report = folder / f"step-{number}.json"
        case = {"id": "test_ruler[vt-4k]", "task": "vt", "length": 4096, "score": score, "samples": samples[number - 1]}
        change = round(score - scores[0], 1)
        gate = {
            "name": "regression at 4k", "kind": "regression", "blocking": True, "verdict": "pass", "reason": "",
            "fails": False, "measured": change, "interval": [change - 1, change + 1], "required": -2.0,
        }  # fmt: skip
        document = report_of({"cases": [case], "gates": [gate], "run": {"options": {"journal": "j"}}})
        report.write_text(json.dumps(report_data(document)))
        measurements.append(
            WatchedCheckpoint(
                step=number, checkpoint=f"/run a/step-{number}", fingerprint="f", verdict=verdict, exit_code=0,
                failed=() if verdict == "pass" else (f"lost <b>{number}</b>",), report=str(report), baseline=None,
                effective_length=None, gpu_seconds=90.0, ended="now", scores={"ruler 4k": score},
                anchor="step 1" if number > 1 else None, is_suspected=number in suspected,
                changes={"ruler 4k": Change(points=score - scores[0], pairs=24)} if number > 1 else {},
            )
        )  # fmt: skip
    run = WatchedRun(
        directory=Path("/run a"),
        anchor=1,
        options=("--lengths", "4k"),
        counts_gpus=counts_gpus,
        alerts=(),
        alert_text=AlertText(folder=folder, suite=SUITE, steps=StepReader()),
        summary=("measured",),
    )
    return write_index(folder, measurements, run).read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        (["pass", "pass"], 'pass"><b>No checkpoint fails, up to step 2<'),
        (["pass", "fail", "fail"], 'fail"><b>FAIL since step 2; the last accepted one is step 1<'),
        (["pass", "pass", "error"], 'fail"><b>ERROR at step 3; the last accepted one is step 2<'),
        (["pass", "fail", "inconclusive"], 'open"><b>Step 2 failed; step 3 does not<'),
        (["fail", "fail"], 'fail"><b>FAIL since step 1<'),
        (["pass", "gone", "pass", "gone"], 'pass"><b>No checkpoint fails, up to step 3<'),
        (["pass", "gone", "fail"], 'fail"><b>FAIL at step 3; the last accepted one is step 1<'),
        ([], 'open"><b>Nothing measured<'),
    ],
)
def test_the_page_begins_with_what_is_wrong_since_when(tmp_path: Path, verdicts: list[Verdict], headline: str) -> None:
    page = write_page(tmp_path, verdicts, [90.0] * len(verdicts))
    assert f'<p class="verdict {headline}/b>' in page
    assert "/run a, " in page
    if any(verdict in ("fail", "error") for verdict in verdicts):
        assert "<span>lost &lt;b&gt;" in page


def test_the_page_shows_alerts_with_their_state(tmp_path: Path) -> None:
    known = [measured(1, vt=0), measured(2, vt=0), measured(4, vt=-40), measured(5, vt=-40)]
    found = Search(
        good="f2", bad="f4", cases=tuple(known[0].cases), exit_code=0, line="found", first=3, last=3, last_good=2,
        probability=0.9995, checkpoints=1,
    )  # fmt: skip

    def texts(*searches: Search) -> str:
        alerts, text = find_alerts(known, searches), AlertText(folder=tmp_path, suite=SUITE, steps=StepReader())
        run = WatchedRun(
            directory=Path("/run"), anchor=1, options=(), alerts=alerts, alert_text=text, counts_gpus=False, summary=()
        )  # fmt: skip
        page = write_index(tmp_path, known, run).read_text(encoding="utf-8")
        return re.sub("(<[^>]*>)+", "|", page.partition('<p class="verdict')[2])

    begun = texts()
    assert "FAIL since step 4; the last accepted one is step 2|vt-4k lost 40.0 points at step 4|first seen " in begun
    assert "first seen 2026-11-20 10:00 UTC: |what failed, and what to do|" in begun
    assert "|Alert, open: vt-4k lost 40.0 points at step 4|" in begun.replace("\n", "")
    assert "FAIL since step 3 (99.9 % sure); step 2 is good|vt-4k lost 40.0 points at step 3|" in texts(found)
    known.append(measured(6, vt=0))
    closed = texts(found)
    assert "Step 5 failed; step 6 does not|vt-4k lost 40.0 points at step 3; closed by step 6|" in closed
    assert "|Alert, closed by step 6: vt-4k lost 40.0 points at step 3|" in closed.replace("\n", "")
    assert "first seen" not in closed


def test_a_suspected_loss_is_no_failure_but_named_first(tmp_path: Path) -> None:
    page = write_page(tmp_path, ["pass", "inconclusive", "pass"], [90.0] * 3, suspected=[2])
    assert 'open"><b>No checkpoint fails, up to step 3; a loss is suspected at step 2</b>' in page
    assert page.count("a loss is suspected, but not shown") == 1


def test_the_cost_is_in_gpu_minutes_only_where_gpus_are_counted(tmp_path: Path) -> None:
    assert "GPU minutes" not in write_page(tmp_path, ["pass"], [90.0])
    assert '<td data-unit="GPU minutes">1.5</td>' in write_page(tmp_path, ["pass"], [90.0], counts_gpus=True)


def test_the_comparison_begins_at_the_first_failure(tmp_path: Path) -> None:
    data = data_of(write_page(tmp_path, ["pass", "pass", "pass", "fail"], [90.0, 92.0, 90.0, 40.0]))
    assert data["chosen"] == [2, 3]
    assert data["noise"] == {"test_ruler[vt-4k]": pytest.approx(2**0.5)}
    assert data["checkpoints"][3]["cases"] == {"test_ruler[vt-4k]": [40.0, 24]}
    assert data["checkpoints"][3]["checkpoint"] == "'/run a/step-4'"


def test_noise_is_that_of_scores_on_the_same_samples(tmp_path: Path) -> None:
    """An early verdict rests on other samples, whose mean says nothing about those of the others."""
    scores, samples = [90.0, 40.0, 92.0, 90.0], [500, 38, 500, 500]
    data = data_of(write_page(tmp_path, ["pass"] * 4, scores, samples=samples))
    assert data["noise"] == {"test_ruler[vt-4k]": pytest.approx(2**0.5)}


def test_the_page_draws_the_values_of_gates_over_the_steps(tmp_path: Path) -> None:
    page = write_page(tmp_path, ["pass", "gone", "pass"], [75.8, 20.0, 70.8])
    assert 'aria-label="regression at 4k: 1 0.0, 3 -5.0"' in page
    assert "requires -2" in page


def test_one_checkpoint_is_not_compared(tmp_path: Path) -> None:
    page = write_page(tmp_path, ["pass"], [90.0])
    assert 'id="data"' not in page
    assert "<script" not in page


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs Chromium and chromedriver")
def test_two_checkpoints_are_compared_in_a_browser(tmp_path: Path) -> None:
    write_page(tmp_path, ["pass", "pass", "pass", "fail"], [90.0, 92.0, 90.0, 40.0])
    with browser(tmp_path) as tab:
        for width in (420, 1440):
            tab.show(tmp_path / "index.html", width=width)
            shown = "return document.getElementById('rows').textContent"
            assert tab.run(shown) == "vt-4k90.0 (24)40.0 (24)-50.0±1.4"
            command = tab.run("return document.getElementById('command').textContent")
            assert command.startswith("longctx run --lengths 4k --model '/run a/step-4' --baseline ")
            tab.run(
                "const select = document.getElementById('filters').elements.namedItem('after');"
                "select.value = 1; select.dispatchEvent(new Event('change'));"
            )
            assert tab.run(shown) == "vt-4k90.0 (24)92.0 (24)+2.0±1.4"
            # A row's link compares its checkpoint with the one that is chosen.
            tab.run("document.querySelector('a[href=\"#compare-3\"]').click()")
            assert tab.run(shown) == "vt-4k90.0 (24)90.0 (24)+0.0±1.4"
            assert tab.run("return document.documentElement.scrollWidth <= window.innerWidth")
        assert tab.console() == []
