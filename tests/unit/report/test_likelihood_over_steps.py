"""The likelihoods of gold answers over training steps: in the page of a history and in dashboards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plugins.report.document import document
from plugins.report.history import Report, history
from plugins.report.html.step_curves import steps_page
from plugins.report.scalars import scalars
from tests.helpers.reports import run_summary

GAINS = (0.1, 0.9, 2.5)


def estimate(mean: float) -> dict[str, Any]:
    ends = [mean - 0.05, mean + 0.05]
    return {"mean": mean, "interval": ends, "model_interval": ends}


def report_of(step: int, gain: float | None) -> Report:
    """Return a report with likelihoods, or one as written before there were any."""
    content = document(run_summary(suite="ruler", lengths=(4096,), samples=2))
    del content["likelihood"]
    if gain is not None:
        values = {name: estimate(1.0) for name in ("nll", "evidence", "greedy", "margin")}
        panel = {"family": "ruler", "length": 4096, "gain": estimate(gain), "recovery": None, **values}
        content["likelihood"] = {"panels": [panel]}
    return Report(step=step, path=Path(f"step-{step}.json"), document=content)


def test_the_page_of_steps_draws_gains_and_leaves_gaps_for_old_reports() -> None:
    reports = [report_of(step, gain) for step, gain in enumerate((GAINS[0], None, *GAINS[1:]))]
    over_steps = history(reports)
    (track,) = over_steps.likelihoods
    assert (track.name, track.values) == ("ruler gain at 4096", (0.1, None, 0.9, 2.5))
    page = steps_page(over_steps)
    assert "ruler gain at 4K" in page
    assert "2.45 to 2.55" in page


def test_dashboards_get_the_pooled_measures() -> None:
    values = scalars(report_of(0, 0.9).document)
    assert values["likelihood/ruler/gain/4k"] == 0.9
    assert "likelihood/ruler/recovery/4k" not in values
    assert not any(name.startswith("likelihood") for name in scalars(report_of(0, None).document))
