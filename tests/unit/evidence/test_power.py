"""The loss that a comparison detects: it agrees with simulated comparisons, and falls with the number of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.clusters import MIN_CLUSTERS, ClusteredQueue, SampleRef
from longctx.plugins.evidence.power import POWER, can_rule_out, detectable_case_loss, detectable_panel_loss
from longctx.plugins.evidence.sequential import NonInferiority
from longctx.plugins.evidence.statistics import decide_paired
from tests.helpers.queues import case

ALPHA = 0.01 / 6
MODEL = NonInferiority(drop=0.02, clear=0.01, alpha=ALPHA)
SAMPLES = NonInferiority(drop=0.02, clear=0.01, alpha=ALPHA, finite_population=True)
PLANNED = 500
TASKS = tuple(case(f"task{number}", 1024, PLANNED // 2) for number in range(2))
QUEUE = ClusteredQueue(
    [SampleRef(each.id, index) for index in range(PLANNED // 2) for each in TASKS], {each.id: each for each in TASKS}
)


@pytest.mark.parametrize("pairs", [60, 142, 400])
def test_a_detectable_loss_fails_about_as_often_as_promised(pairs: int) -> None:
    loss = detectable_panel_loss(MODEL, QUEUE, pairs)
    assert loss is not None
    rng = np.random.default_rng(pairs)
    verdicts = [
        decide_paired(
            -(rng.random(pairs) < loss).astype(float), drop=0.02, clear=0.01, alpha=ALPHA, min_observations=26
        )
        for _ in range(400)
    ]
    failed = sum(decision is not None and decision.verdict == "fail" for decision in verdicts) / len(verdicts)
    # A sequential test may fail before the last pair, so it fails somewhat more often.
    assert POWER - 0.07 < failed < POWER + 0.13


@settings(deadline=None)
@given(st.integers(MIN_CLUSTERS, PLANNED - 1))
def test_more_pairs_detect_no_larger_loss(pairs: int) -> None:
    for hypothesis in (MODEL, SAMPLES):
        fewer, more = (detectable_panel_loss(hypothesis, QUEUE, number) for number in (pairs, PLANNED))
        assert more is not None
        # The number of worse pairs is whole, so the loss may differ by one of them.
        assert fewer is None or 0 < more <= fewer + 1 / pairs <= 1 + 1 / pairs


def test_all_planned_samples_detect_every_loss_of_more_than_half_way() -> None:
    loss = detectable_panel_loss(SAMPLES, QUEUE, PLANNED)
    assert loss is not None
    assert 0.01 < loss <= 0.015 + 1 / PLANNED
    assert can_rule_out(SAMPLES, QUEUE, PLANNED)


def test_few_pairs_detect_nothing_and_rule_out_nothing() -> None:
    assert detectable_panel_loss(MODEL, QUEUE, 0) is None
    assert detectable_panel_loss(MODEL, QUEUE, 4) is None
    assert detectable_case_loss(3, cases=78, false_discoveries=0.05) is None
    # log(6 / 0.01) over the log of the largest gain of an equal pair, plus what the mixture of stakes costs.
    assert not can_rule_out(MODEL, QUEUE, 317)
    assert can_rule_out(MODEL, QUEUE, 400)


def test_a_case_among_many_needs_a_larger_loss() -> None:
    alone, among_many = (detectable_case_loss(100, cases=cases, false_discoveries=0.05) for cases in (1, 78))
    assert alone is not None
    assert among_many is not None
    assert alone < among_many
