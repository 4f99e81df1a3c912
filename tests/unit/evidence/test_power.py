"""The loss that a comparison detects: it agrees with simulated comparisons, and falls with the number of pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.clusters import MIN_CLUSTERS, ClusteredQueue, SampleRef
from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.sequential import POWER, NonInferiority, can_rule_out, detectable_panel_loss
from longctx.plugins.evidence.statistics import first_decision, paired_evidence
from tests.helpers.queues import case

ALPHA = 0.01 / 6
SAMPLES = NonInferiority(drop=0.02, alpha=ALPHA)
PLANNED = 500
TASKS = tuple(case(f"task{number}", 1024, PLANNED // 2) for number in range(2))
QUEUE = ClusteredQueue(
    [SampleRef(each.id, index) for index in range(PLANNED // 2) for each in TASKS], {each.id: each for each in TASKS}
)


@pytest.mark.parametrize("pairs", [60, 142])
def test_a_detectable_loss_fails_about_as_often_as_promised(pairs: int) -> None:
    loss = detectable_panel_loss(SAMPLES, QUEUE, pairs)
    assert loss is not None
    rng = np.random.default_rng(pairs)
    verdicts = []
    for _ in range(400):
        differences = -(rng.random(pairs) < loss).astype(float)
        evidence = paired_evidence(differences, Strata.single(PLANNED), drop=0.02)
        verdicts.append(first_decision(evidence, alpha=ALPHA, min_observations=26))
    failed = sum(decision is not None and decision.verdict == "fail" for decision in verdicts) / len(verdicts)
    # A sequential test may fail before the last pair, so it fails somewhat more often.
    assert POWER - 0.07 < failed < POWER + 0.13


@settings(deadline=None)
@given(st.integers(MIN_CLUSTERS, PLANNED - 1))
def test_more_pairs_detect_no_larger_loss(pairs: int) -> None:
    fewer, more = (detectable_panel_loss(SAMPLES, QUEUE, number) for number in (pairs, PLANNED))
    assert more is not None
    # The number of worse pairs is whole, so the loss may differ by one of them.
    assert fewer is None or 0 < more <= fewer + 1 / pairs <= 1 + 1 / pairs


def test_all_planned_samples_detect_every_loss_of_more_than_half_way() -> None:
    loss = detectable_panel_loss(SAMPLES, QUEUE, PLANNED)
    assert loss is not None
    assert 0.01 < loss <= 0.015 + 1 / PLANNED
    assert can_rule_out(SAMPLES, QUEUE, PLANNED)


def test_few_pairs_detect_nothing_and_rule_out_nothing() -> None:
    assert detectable_panel_loss(SAMPLES, QUEUE, 0) is None
    assert detectable_panel_loss(SAMPLES, QUEUE, 4) is None
    assert not can_rule_out(SAMPLES, QUEUE, 100)
    assert can_rule_out(SAMPLES, QUEUE, 400)
