"""The likelihoods of gold answers over training steps: in the page of a history and in dashboards."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from longctx.fixtures.records.report_parts import LikelihoodPanel, LikelihoodSummary, LikelihoodTokens, MeanEstimate
from longctx.plugins.report.document import document
from longctx.plugins.report.history import StepReport, likelihood_tracks, steps_page
from longctx.plugins.report.scalars import scalars
from tests.helpers.reports import run_summary

GAINS = (0.1, 0.9, 2.5)


def estimate(mean: float) -> MeanEstimate:
    ends = (mean - 0.05, mean + 0.05)
    return MeanEstimate(mean=mean, interval=ends, model_interval=ends)


def report_of(step: int, gain: float | None) -> StepReport:
    """Return a report with likelihoods, or one as written before there were any."""
    content = document(run_summary(suite="ruler", lengths=(4096,), samples=2))
    if gain is not None:
        one = estimate(1.0)
        panel = LikelihoodPanel(
            family="ruler", length=4096, samples=2, planned=2, clipped=0, nll=one, nll_after_first=one, query=one,
            evidence=one, gain=estimate(gain), gain_after_first=one, recovery=None, greedy=one, margin=one,
            change=None, findings=(),
        )  # fmt: skip
        likelihood = LikelihoodSummary(
            signal="both", confidence=0.95, nll_clip=10.0, difference_clip=5.0, least_evidence_gain=0.3,
            tokens=LikelihoodTokens(computed=0, reused=0), panels=(panel,), cases={},
        )  # fmt: skip
        content = replace(content, likelihood=likelihood)
    return StepReport(step=step, path=Path(f"step-{step}.json"), document=content)


def test_the_page_of_steps_draws_gains_and_leaves_gaps_for_old_reports() -> None:
    reports = [report_of(step, gain) for step, gain in enumerate((GAINS[0], None, *GAINS[1:]))]
    (track,) = likelihood_tracks(reports)
    assert (track.name, track.values) == ("ruler gain at 4K", (0.1, None, 0.9, 2.5))
    page = steps_page(reports)
    assert "ruler gain at 4K" in page
    assert "2.45 to 2.55" in page


def test_dashboards_get_the_pooled_measures() -> None:
    values = scalars(report_of(0, 0.9).document)
    assert values["likelihood/ruler/gain/4k"] == 0.9
    assert "likelihood/ruler/recovery/4k" not in values
    assert not any(name.startswith("likelihood") for name in scalars(report_of(0, None).document))
