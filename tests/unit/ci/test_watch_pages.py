"""The index page of a watch says first what is wrong since when."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from longctx.ci.checkpoint_dirs import StepReader
from longctx.ci.suite_options import SuiteOptions
from longctx.ci.watch.alert_text import AlertText, write_index
from longctx.ci.watch.alerts import find_alerts
from longctx.ci.watch.history import PanelScore, Search, Verdict, WatchedCheckpoint
from tests.helpers.pages import tables_of
from tests.helpers.report_records import report_data, report_of
from tests.helpers.watched import measured

SUITE = SuiteOptions(given=(), checks_engine=False, seed_by_step=False, confidence=0.99, drop_points=2)


def write_page(
    folder: Path,
    verdicts: Sequence[Verdict],
    scores: Sequence[float],
    *,
    counts_gpus: bool = False,
    suspected: Sequence[int] = (),
) -> str:
    """Write the index of checkpoints with these verdicts and scores, and return it."""
    measurements = []
    for number, (verdict, score) in enumerate(zip(verdicts, scores, strict=True), 1):
        report = folder / f"step-{number}.json"
        case = {"id": "test_ruler[vt-4k]", "task": "vt", "length": 4096, "score": score, "samples": 24}
        change = round(score - scores[0], 1)
        gate = {
            "name": "regression at 4k", "kind": "regression", "blocking": True, "verdict": "pass", "reason": "",
            "fails": False, "measured": change, "interval": [change - 1, change + 1], "required": -2.0,
        }  # fmt: skip
        document = report_of({"cases": [case], "gates": [gate], "run": {"options": {"journal": "j"}}})
        report.write_text(json.dumps(report_data(document)))
        measurements.append(
            WatchedCheckpoint(
                step=number, checkpoint=f"/run a/step-{number}", fingerprint=f"f{number}", verdict=verdict,
                failed=() if verdict == "pass" else (f"lost <b>{number}</b>",), report=str(report),
                gpu_seconds=90.0, ended="now", is_suspected=number in suspected,
                panels={"ruler 4k": PanelScore(score=score, samples=24)},
            )
        )  # fmt: skip
    text, alerts = AlertText(folder=folder, suite=SUITE, steps=StepReader()), find_alerts(measurements)
    index = write_index(Path("/run a"), text, measurements, alerts, ["measured"], counts_gpus=counts_gpus)
    return index.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        (["pass", "pass"], 'pass"><b>No checkpoint fails, up to step 2<'),
        (["pass", "fail", "fail"], 'fail"><b>FAIL since step 2; the last good one is step 1<'),
        (["pass", "pass", "error"], 'fail"><b>ERROR since step 3; the last good one is step 2<'),
        (["pass", "fail", "undecided"], 'open"><b>Step 2 failed; step 3 does not<'),
        (["fail", "fail"], 'fail"><b>FAIL since step 1<'),
        (["pass", "not measured", "pass", "not measured"], 'pass"><b>No checkpoint fails, up to step 3<'),
        (["pass", "not measured", "fail"], 'fail"><b>FAIL since step 3; the last good one is step 1<'),
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
        good="f2", bad="f4", cases=tuple(known[0].cases), line="found", first=3, last=3, last_good=2,
        probability=0.9995, checkpoints=1,
    )  # fmt: skip

    def texts(*searches: Search) -> str:
        alerts, text = find_alerts(known, searches), AlertText(folder=tmp_path, suite=SUITE, steps=StepReader())
        index = write_index(Path("/run"), text, known, alerts, (), counts_gpus=False)
        page = index.read_text(encoding="utf-8")
        assert "the last one measured 2026-11-20 10:00 UTC" in page
        return re.sub("(<[^>]*>)+", "|", page.partition('<p class="verdict')[2])

    begun = texts()
    assert "FAIL since step 4; the last good one is step 2|vt-4k lost 40.0 points at step 4|" in begun
    assert "|Alert, open: vt-4k lost 40.0 points at step 4|" in begun.replace("\n", "")
    assert "FAIL since step 3 (99.9 % sure); the last good one is step 2|vt-4k lost 40.0 points at step 3|" in texts(
        found
    )
    known.append(measured(6, vt=0))
    closed = texts(found)
    assert "Step 5 failed; step 6 does not|vt-4k lost 40.0 points at step 3; closed by step 6|" in closed
    assert "|Alert, closed by step 6: vt-4k lost 40.0 points at step 3|" in closed.replace("\n", "")


def test_a_suspected_loss_is_no_failure_but_named_first(tmp_path: Path) -> None:
    page = write_page(tmp_path, ["pass", "undecided", "pass"], [90.0] * 3, suspected=[2])
    assert 'open"><b>No checkpoint fails, up to step 3; a loss is suspected at step 2</b>' in page
    assert page.count("a loss is suspected, but not shown") == 1


def test_the_cost_is_in_gpu_minutes_only_where_gpus_are_counted(tmp_path: Path) -> None:
    assert "GPU minutes" not in write_page(tmp_path, ["pass"], [90.0])
    assert '<td data-unit="GPU minutes">1.5</td>' in write_page(tmp_path, ["pass"], [90.0], counts_gpus=True)


def test_the_page_draws_the_values_of_gates_over_the_steps(tmp_path: Path) -> None:
    page = write_page(tmp_path, ["pass", "not measured", "pass"], [75.8, 20.0, 70.8])
    rows = tables_of(page)["regression at 4k"]
    assert [(step, value.split()[0]) for step, value in rows[1:]] == [("1", "0.00"), ("3", "-5.00")]
    assert "requires -2" in page
