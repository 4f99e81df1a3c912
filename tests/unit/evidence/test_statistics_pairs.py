"""Verdicts on what was lost against a baseline, pair by pair, and the evidence that is left at the end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.evidence.e_process import log_evidence
from longctx.plugins.evidence.statistics import (
    Decision,
    benjamini_hochberg,
    decide_paired,
    log_evidence_below,
    paired_evidence,
    paired_interval,
)
from tests.helpers.scores import paired_differences

DIFFERENCES = st.lists(st.sampled_from((-1.0, -0.25, 0.0, 0.5, 1.0)), min_size=1, max_size=60)


def test_the_same_answers_pass_and_soon() -> None:
    decision = decide_paired(np.zeros(6500), drop=0.02, alpha=0.01, population=6500, min_observations=26)
    assert decision is not None
    assert decision.verdict == "pass"
    assert decision.stopping_time < 1000


def test_a_drop_is_found_and_an_unchanged_model_is_not_blamed() -> None:
    for seed in range(20):
        worse = decide_paired(
            paired_differences(0.1, 0.05, 6500, seed), drop=0.02, alpha=0.01, population=6500, min_observations=26
        )
        assert worse is not None
        assert worse.verdict == "fail"
        equal = decide_paired(
            paired_differences(0.1, 0.0, 6500, seed), drop=0.02, alpha=0.01, population=6500, min_observations=26
        )
        assert equal is None or equal.verdict == "pass"


@pytest.mark.parametrize("flips", [0.0, 0.02, 0.05])
def test_the_interval_excludes_what_a_verdict_has_refuted(flips: float) -> None:
    """As soon as a pass refutes a loss of 3 points, the interval of the same error is above it, and not before."""
    differences = paired_differences(flips, 0.0, 1200, 3)
    non_inferior, _ = paired_evidence(differences, drop=0.03, population=1300)
    passed = int((non_inferior >= math.log(100)).argmax()) + 1
    before, after = (
        paired_interval(differences[:looks], alpha=0.02, population=1300)[0] for looks in (passed - 1, passed)
    )
    assert before < -0.03 <= after


def test_with_all_pairs_at_hand_the_nearer_side_is_known() -> None:
    """Three quarters of the drop is a fail; with one pair less it is open, and with a smaller loss it passes."""
    lost = [-0.15] * 40

    def decided(differences: list[float]) -> Decision | None:
        return decide_paired(differences, drop=0.2, alpha=0.01, population=40, min_observations=40)

    assert decided(lost) == Decision(verdict="fail", stopping_time=40)
    assert decided(lost[1:]) is None
    assert decided([*lost[1:], -0.149]) == Decision(verdict="pass", stopping_time=40)


def test_a_population_of_pairs_is_decided_rightly() -> None:
    """Two losses of different size, seen in random orders: wrong in no more than a share alpha of them."""
    rng = np.random.default_rng(0)
    wrong = 0
    for mean, verdict in ((-0.3, "fail"), (-0.1, "pass")):
        lost = np.array([-1.0] * round(-100 * mean) + [0.0] * round(100 + 100 * mean))
        for _ in range(200):
            known = decide_paired(rng.permutation(lost), drop=0.266, alpha=0.05, population=100)
            assert known is not None
            wrong += known.verdict != verdict
    assert wrong <= 20


@settings(deadline=None)
@given(DIFFERENCES)
def test_evidence_at_the_end_is_the_last_look(differences: list[float]) -> None:
    scores = [(difference + 1) / 2 for difference in differences]
    assert log_evidence_below(scores, 0.45, population=99) == pytest.approx(
        float(log_evidence(1 - np.array(scores), 0.55, population=99)[-1]), abs=1e-9
    )


def test_evidence_at_the_end_forgets_what_was_refuted_on_the_way() -> None:
    """False discovery rates hold for evidence at a stop; its running maximum is no e-value."""
    recovered = [0.0] * 10 + [1.0] * 40
    assert log_evidence_below(recovered[:10], 0.5, population=None) > math.log(20)
    assert log_evidence_below(recovered, 0.5, population=None) < 0
    assert log_evidence_below([], 0.5, population=8) == 0.0


def test_the_smallest_p_values_are_rejected_together() -> None:
    assert benjamini_hochberg([0.04, 0.02, 0.5, 0.03], 0.05) == (False, False, False, False)
    assert benjamini_hochberg([0.03, 0.01, 0.5, 0.02], 0.05) == (True, True, False, True)
    assert benjamini_hochberg([], 0.05) == ()
