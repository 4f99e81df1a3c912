"""Verdicts on what was lost against a baseline, pair by pair, and the hypotheses that are rejected together."""

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike

from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.sequential import NonInferiority, Pairs, analyze_pairs
from longctx.plugins.evidence.statistics import Decision, benjamini_hochberg, paired_evidence, paired_interval
from tests.helpers.queues import case
from tests.helpers.scores import paired_differences


def decided(differences: ArrayLike, *, drop: float, alpha: float = 0.01, population: int) -> Decision | None:
    """Return the verdict on the first pairs of one task."""
    task = case("vt", 1024, population)
    queue = ClusteredQueue([SampleRef(task.id, index) for index in range(population)], {task.id: task})
    known = np.asarray(differences, dtype=np.float64)
    pairs = Pairs(queue=queue, differences=known, baseline=np.ones(known.size), changes=np.abs(known))
    return analyze_pairs(NonInferiority(drop=drop, alpha=alpha), pairs).decision


def test_the_same_answers_pass_and_soon() -> None:
    decision = decided(np.zeros(6500), drop=0.02, population=6500)
    assert decision is not None
    assert decision.verdict == "pass"
    assert decision.stopping_time < 1000


def test_a_drop_is_found_and_an_unchanged_model_is_not_blamed() -> None:
    for seed in range(20):
        worse = decided(paired_differences(0.1, 0.05, 6500, seed), drop=0.02, population=6500)
        assert worse is not None
        assert worse.verdict == "fail"
        equal = decided(paired_differences(0.1, 0.0, 6500, seed), drop=0.02, population=6500)
        assert equal is None or equal.verdict == "pass"


@pytest.mark.parametrize("flips", [0.0, 0.02, 0.05])
def test_the_interval_excludes_what_a_verdict_has_refuted(flips: float) -> None:
    """As soon as a pass refutes a loss of 3 points, the interval of the same error is above it, and not before."""
    differences, strata = paired_differences(flips, 0.0, 1200, 3), Strata.single(1300)
    non_inferior, _ = paired_evidence(differences, strata, drop=0.03)
    passed = int((non_inferior >= math.log(100)).argmax()) + 1
    before, after = (paired_interval(differences[:looks], strata, alpha=0.02)[0] for looks in (passed - 1, passed))
    assert before < -0.03 <= after


def test_with_all_pairs_at_hand_the_nearer_side_is_known() -> None:
    """Three quarters of the drop is a fail; with one pair less it is open, and with a smaller loss it passes."""
    lost = [-0.15] * 8
    assert decided(lost, drop=0.2, population=8) == Decision(verdict="fail", stopping_time=8)
    assert decided(lost[1:], drop=0.2, population=8) is None
    assert decided([*lost[1:], -0.149], drop=0.2, population=8) == Decision(verdict="pass", stopping_time=8)


def test_the_smallest_p_values_are_rejected_together() -> None:
    assert benjamini_hochberg([0.04, 0.02, 0.5, 0.03], 0.05) == (False, False, False, False)
    assert benjamini_hochberg([0.03, 0.01, 0.5, 0.02], 0.05) == (True, True, False, True)
    assert benjamini_hochberg([], 0.05) == ()
