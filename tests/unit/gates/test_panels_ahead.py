"""What of a panel's queue is handed out: all that a verdict takes, and hardly more."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.gates import clusters
from plugins.gates.clusters import SampleRef
from plugins.gates.e_process import Floats
from plugins.gates.panels import ModelRole
from plugins.gates.sequential import ESTIMATE_CLUSTERS_AHEAD, MAX_CLUSTERS_AHEAD, Hypothesis, samples_until_verdict
from plugins.gates.statistics import interval, level_evidence
from tests.helpers.panels import SEEDS, TASKS, ids, panel_of, quickly, simulated_runs
from tests.helpers.queues import SimulatedRun, draw_scores


@quickly
@given(simulated_runs())
def test_one_worker_computes_nothing_that_does_not_count(work: SimulatedRun) -> None:
    assert work.evidence(work.run_alone())["model"] == work.journal["model"]
    if "baseline" in work.truth:
        assert work.evidence(work.status())["baseline"] == work.journal["baseline"]


@quickly
@given(simulated_runs(), st.integers(2, 20), st.integers(1, 8), SEEDS)
def test_many_workers_do_the_work_of_one_and_a_twentieth(
    work: SimulatedRun, workers: int, at_once: int, seed: int
) -> None:
    """However many take however much at a time, and whoever ends first."""
    random = Random(seed)
    held: list[list[tuple[ModelRole, SampleRef]]] = []
    while (next_samples := work.status().next_samples) or held:
        claimed = {task for batch in held for task in batch}
        free = [task for task in next_samples if task not in claimed]
        if free and len(held) < workers:
            held.append(free[:at_once])
        else:
            batch = held[random.randrange(len(held))]
            work.measure(*batch.pop(0))
            held = [batch for batch in held if batch]
    status = work.status()
    analyses = [*status.analyses.values(), *([status.comparison] if status.comparison else [])]
    spare = sum(int(0.05 * analysis.samples) for analysis in analyses)
    counted = work.evidence(status)
    assert all(len(work.journal[role]) - len(counted[role]) <= spare for role in work.truth)


@quickly
@given(simulated_runs(), st.integers(2, 6))
def test_workers_of_one_speed_waste_less_than_they_hold_for_each_question(work: SimulatedRun, workers: int) -> None:
    while next_samples := work.status().next_samples:
        for role, ref in next_samples[:workers]:
            work.measure(role, ref)
    counted = work.evidence(work.status())
    wasted = sum(len(work.journal[role]) - len(counted[role]) for role in work.truth)
    questions = sum(hypothesis.drives_sampling for hypothesis in work.panel.hypotheses) + (
        work.panel.non_inferiority is not None
    )
    assert wasted <= questions * (workers - 1)


@quickly
@given(simulated_runs(), st.integers(0, 40))
def test_what_is_wanted_is_new_and_in_the_order_of_the_queue(work: SimulatedRun, done: int) -> None:
    next_samples = work.run_alone(done).next_samples
    places = {ref: place for place, ref in enumerate(work.panel.order)}
    steps = [(places[ref], role != "model") for role, ref in next_samples]
    assert steps == sorted(set(steps))
    assert all(ref not in work.journal[role] for role, ref in next_samples)
    assert {role for role, _ in next_samples} <= set(work.truth)


def test_a_mean_that_is_soon_known_takes_no_more_with_many_workers() -> None:
    """Scores that hardly differ: then neither ones nor zeros would bring the estimate about soonest."""
    for seed in range(8):
        panel = panel_of(
            100, hypothesis := Hypothesis(case_ids=ids(*TASKS), threshold=None, precision=0.125), seed=seed
        )
        random = Random(seed)
        truth = {ref: min(1.0, max(0.0, random.gauss(0.3, 0.1))) for ref in panel.order}
        needed = panel.analyze(hypothesis, truth).samples
        for done in range(needed):
            scores = {ref: truth[ref] for ref in panel.order[:done]}
            next_samples = panel.status(scores).next_samples
            assert 0 < len(next_samples) <= needed - done + int(0.05 * needed)


def test_an_estimate_is_looked_ahead_with_few_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a millisecond or more, and a worker looks after every batch."""
    panel = panel_of(500, hypothesis := Hypothesis(case_ids=ids(*TASKS), threshold=None, precision=0.03))
    truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.5))
    scores = {ref: truth[ref] for ref in panel.order[:200]}
    panel.analyze(hypothesis, scores)
    claimed: list[int] = []

    def counted(values: Floats, **settings: Any) -> tuple[float, float]:
        claimed.append(len(values))
        return interval(values, **settings)

    monkeypatch.setattr(clusters, "interval", counted)
    assert len(panel.status(scores).next_samples) == ESTIMATE_CLUSTERS_AHEAD
    assert len(claimed) == 3


def test_a_verdict_that_rounding_holds_off_leaves_something_to_do() -> None:
    """Its evidence is summed otherwise in a longer array, and may there have reached what it just misses here."""
    edges = 0
    # Where there are too few for a twentieth to spare.
    for seed, done in product(range(40), range(8, 20)):
        panel = panel_of(400, tasks=TASKS[:1], seed=seed)
        truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.9), seed)
        queue, scores = panel.queue(panel.cases), {ref: truth[ref] for ref in panel.order[:done]}
        values = queue.weighted_means(scores)
        (here, _), (there, _) = (
            level_evidence(task, 0.6, population=400) for task in (values, np.append(values, np.ones(400 - done)))
        )
        if not here.max() <= here[-1] < there[done - 1]:
            continue
        # The logarithm of its alpha is rounded too.
        near = [float(np.exp(-there[done - 1])) * (1 + ulps * 2**-52) for ulps in range(6)]
        hypotheses = [Hypothesis(case_ids=frozenset(panel.cases), threshold=0.6, alpha=alpha) for alpha in near]
        analyses = [
            (hypothesis, analysis)
            for hypothesis in hypotheses
            if not (analysis := panel.analyze(hypothesis, scores)).is_settled
        ]
        edges += len(analyses)
        assert all(
            set(samples_until_verdict(hypothesis, queue, analysis, scores)) - scores.keys()
            for hypothesis, analysis in analyses
        )
    assert edges


def test_a_long_queue_is_handed_out_in_parts() -> None:
    panel = panel_of(400, Hypothesis(case_ids=ids(*TASKS), threshold=None))
    assert panel.status({}).next_samples == tuple(("model", ref) for ref in panel.order[:MAX_CLUSTERS_AHEAD])
    assert panel.status(dict.fromkeys(panel.order[:1000], 1.0)).next_samples[0] == ("model", panel.order[1000])
