"""Gates on the worst phase: their tests, and their verdicts in the evaluation of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import PHASES, Case
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.haystacks import Haystacks
from longctx.plugins.evidence.phases import decide_phases, spread
from longctx.plugins.thresholds.records import CATEGORIES
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import Evaluation, evaluate
from tests.helpers.queues import LEVEL, case, result, scope_of, thresholds

ROWS, MODULUS = 80, 4
SWEEP = Case(
    id="test_phases[n1_mod4-1024]", suite=PHASES, category="retrieval", task="n1_mod4", length=1024,
    samples=ROWS * MODULUS, source="archive", generation_tokens=8, group=MODULUS,
)  # fmt: skip
GATE = replace(LEVEL, name="phases", kind="worst_phase", tasks=("n1_mod4",), within=15.0, moduli=(4,))


def evaluated(*means: float, has_baseline: bool = False) -> Evaluation:
    """Evaluate a run in which a sample at residue r is right in `means[r]` of the rows, beside a case of RULER."""
    scores = [float(row < means[residue] * ROWS) for row in range(ROWS) for residue in range(MODULUS)]
    plain = case("n1", samples=4)
    scope = scope_of((plain, SWEEP), lengths=(1024,), has_baseline=has_baseline)
    families = {"n1": "ruler", "n1_mod4": PHASES} | {name: name for name in CATEGORIES}
    scope = replace(scope, task_families=families)
    known = {SWEEP.id: result(SWEEP, *scores), plain.id: result(plain, 1.0, 1.0, 1.0, 0.0)}
    return evaluate(thresholds(GATE), Measured(scope=scope, results=known))


def test_a_phase_that_scores_lower_fails_the_gate() -> None:
    (verdict,) = evaluated(1.0, 1.0, 1.0, 0.3).verdicts
    assert (verdict.name, verdict.kind, verdict.verdict, verdict.length) == (
        "phases at 1k",
        "worst_phase",
        "fail",
        1024,
    )
    assert verdict.interval is not None
    assert 15 < verdict.interval[0] < (verdict.measured or 0)
    assert verdict.samples < verdict.of == ROWS * MODULUS
    assert " mod 4 at 1K: 100.0, phase 3: " in verdict.reason
    assert f"points apart (at least {verdict.interval[0]:.1f}), 15 allowed" in verdict.reason


def test_phases_that_score_alike_pass_the_gate() -> None:
    (verdict,) = evaluated(1.0, 1.0, 1.0, 1.0).verdicts
    assert (verdict.verdict, verdict.measured) == ("pass", 0.0)
    assert verdict.interval is not None
    assert verdict.interval[1] <= 15
    assert verdict.reason.startswith("phase 0 mod 4 at 1K: 100.0, phase 1: 100.0; 0.0 points apart (at most ")


def test_phases_that_are_not_told_apart_leave_the_gate_undecided() -> None:
    (verdict,) = evaluated(1.0, 0.9, 0.85, 0.85).verdicts
    assert verdict.verdict == "inconclusive"
    assert "points apart (between " in verdict.reason
    assert verdict.samples == verdict.of


def test_a_baseline_is_not_compared_on_phases() -> None:
    names = [verdict.name for verdict in evaluated(1.0, 1.0, 1.0, 1.0, has_baseline=True).verdicts]
    assert names == ["regression at 1k", "phases at 1k"]


@settings(max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(8, 60),
    st.sampled_from(((2,), (8,), (2, 4))),
    st.sampled_from((0.1, 0.3)),
    st.sampled_from((1, 3)),
)
def test_a_decision_follows_from_the_bounds(
    seed: int, needles: int, moduli: tuple[int, ...], within: float, rows_per_haystack: int
) -> None:
    random = np.random.default_rng(seed)
    # Phases that score alike, and phases that do not.
    rows = (random.random((needles, 8)) < random.choice((0.05, 0.5, 0.95, 1.0), size=8)).astype(float)
    haystacks = shared_by(rows_per_haystack, needles)
    decision = decide_phases(rows, haystacks, moduli, within, alpha=0.01, min_observations=8)
    result_of_all = spread(rows, haystacks, moduli, within, alpha=0.01)
    most = max(np.ptp(rows.reshape(len(rows), -1, modulus).mean(axis=(0, 1))) for modulus in moduli)
    assert result_of_all.at_least <= most + 1e-9
    assert result_of_all.at_most >= most - 1e-3
    if decision is None:
        assert result_of_all.at_least <= within
        assert result_of_all.at_most >= within - 1e-3
    elif decision.verdict == "fail":
        assert result_of_all.at_least >= within - 1e-3
    else:
        assert result_of_all.at_most <= within + 1e-3


def test_one_phase_at_the_limit_is_rarely_a_wrong_verdict() -> None:
    random = np.random.default_rng(7)
    means = np.array([0.6, 0.4, 0.6, 0.6])
    words = []
    for _ in range(100):
        shared, own = random.random((60, 1)), random.random((60, 4))
        copies = random.random((60, 4)) < np.sqrt(0.3)
        rows = (np.where(copies, shared, own) < means).astype(float)
        decision = decide_phases(rows, shared_by(1, 60), (4,), 0.2, alpha=0.01, min_observations=8)
        words.append(decision and decision.verdict)
    assert sum(word is not None for word in words) <= 4


def test_needles_on_one_haystack_count_once() -> None:
    alike = np.tile([1.0, 0.0, 1.0, 1.0], (64, 1))
    settled = decide_phases(alike, shared_by(1, 64), (4,), 0.15, alpha=0.01, min_observations=8)
    assert settled is not None
    assert settled.verdict == "fail"
    assert decide_phases(alike, shared_by(16, 64), (4,), 0.15, alpha=0.01, min_observations=8) is None
    on_many = np.tile([1.0, 0.0, 1.0, 1.0], (1024, 1))
    found = decide_phases(on_many, shared_by(16, 1024), (4,), 0.15, alpha=0.01, min_observations=8)
    assert found is not None
    assert found.stopping_time > settled.stopping_time


def test_phases_of_correlated_haystacks_are_rarely_told_apart_wrongly() -> None:
    random = np.random.default_rng(11)
    words = []
    for _ in range(60):
        haystacks = shared_by(16, 256)
        shared = random.random((16, 8))[haystacks.of_cluster]
        copies = random.random((256, 8)) < np.sqrt(0.6)
        rows = (np.where(copies, shared, random.random((256, 8))) < 0.6).astype(float)
        decision = decide_phases(rows, haystacks, (8,), 0.15, alpha=0.01, min_observations=8)
        words.append(decision and decision.verdict)
    assert words.count("fail") <= 3


def shared_by(rows: int, needles: int) -> Haystacks:
    """Return haystacks of so many consecutive needles each."""
    of_cluster = np.arange(needles) // rows
    return Haystacks(of_cluster=of_cluster, sizes=np.bincount(of_cluster))


def test_columns_are_residues_whatever_the_order_of_the_queue() -> None:
    refs = [SampleRef(SWEEP.id, row * MODULUS + residue) for row in (3, 0, 2) for residue in range(MODULUS)]
    queue = ClusteredQueue(refs, {SWEEP.id: SWEEP})
    scores = {ref: ref.sample_index / 100 for ref in refs[:-1]}
    assert queue.weighted_rows(scores).tolist() == [[0.12, 0.13, 0.14, 0.15], [0.0, 0.01, 0.02, 0.03]]


def test_no_rows_are_refused() -> None:
    assert decide_phases(np.empty((0,)), shared_by(1, 8), (4,), 0.1, alpha=0.01, min_observations=8) is None
    with pytest.raises(ValueError, match="no rows"):
        spread(np.empty((0,)), shared_by(1, 8), (4,), 0.1, alpha=0.01)
