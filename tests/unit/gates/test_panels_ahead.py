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
from tests.helpers.panels import SEEDS, TASKS, ids, panel_of, quickly, works
from tests.helpers.queues import Work, drawn


@quickly
@given(works())
def test_one_worker_computes_nothing_that_does_not_count(work: Work) -> None:
    assert work.counted(work.in_order())["model"] == work.journal["model"]
    if "baseline" in work.truth:
        assert work.counted(work.standing())["baseline"] == work.journal["baseline"]


@quickly
@given(works(), st.integers(2, 20), st.integers(1, 8), SEEDS)
def test_many_workers_do_the_work_of_one_and_a_twentieth(work: Work, workers: int, at_once: int, seed: int) -> None:
    """However many take however much at a time, and whoever ends first."""
    random = Random(seed)
    held: list[list[tuple[ModelRole, SampleRef]]] = []
    while (wanted := work.standing().next_samples) or held:
        taken = {each for batch in held for each in batch}
        free = [each for each in wanted if each not in taken]
        if free and len(held) < workers:
            held.append(free[:at_once])
        else:
            batch = held[random.randrange(len(held))]
            work.do(*batch.pop(0))
            held = [batch for batch in held if batch]
    found = work.standing()
    looks = [*found.analyses.values(), *([found.comparison] if found.comparison else [])]
    spare = sum(int(0.05 * look.samples) for look in looks)
    counted = work.counted(found)
    assert all(len(work.journal[who]) - len(counted[who]) <= spare for who in work.truth)


@quickly
@given(works(), st.integers(2, 6))
def test_workers_of_one_speed_waste_less_than_they_hold_for_each_question(work: Work, workers: int) -> None:
    while wanted := work.standing().next_samples:
        for who, element in wanted[:workers]:
            work.do(who, element)
    counted = work.counted(work.standing())
    wasted = sum(len(work.journal[who]) - len(counted[who]) for who in work.truth)
    questions = sum(rule.drives_sampling for rule in work.panel.hypotheses) + (work.panel.non_inferiority is not None)
    assert wasted <= questions * (workers - 1)


@quickly
@given(works(), st.integers(0, 40))
def test_what_is_wanted_is_new_and_in_the_order_of_the_queue(work: Work, done: int) -> None:
    wanted = work.in_order(done).next_samples
    places = {element: place for place, element in enumerate(work.panel.order)}
    steps = [(places[element], who != "model") for who, element in wanted]
    assert steps == sorted(set(steps))
    assert all(element not in work.journal[who] for who, element in wanted)
    assert {who for who, _ in wanted} <= set(work.truth)


def test_a_mean_that_is_soon_known_takes_no_more_with_many_workers() -> None:
    """Scores that hardly differ: then neither ones nor zeros would bring the estimate about soonest."""
    for seed in range(8):
        panel = panel_of(100, rule := Hypothesis(case_ids=ids(*TASKS), threshold=None, precision=0.125), seed=seed)
        random = Random(seed)
        truth = {element: min(1.0, max(0.0, random.gauss(0.3, 0.1))) for element in panel.order}
        needed = panel.analyze(rule, truth).samples
        for done in range(needed):
            scores = {element: truth[element] for element in panel.order[:done]}
            wanted = panel.status(scores).next_samples
            assert 0 < len(wanted) <= needed - done + int(0.05 * needed)


def test_an_estimate_is_looked_ahead_with_few_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a millisecond or more, and a worker looks after every batch."""
    panel = panel_of(500, rule := Hypothesis(case_ids=ids(*TASKS), threshold=None, precision=0.03))
    truth = drawn(panel, dict.fromkeys(panel.cases, 0.5))
    scores = {element: truth[element] for element in panel.order[:200]}
    panel.analyze(rule, scores)
    taken: list[int] = []

    def counted(values: Floats, **settings: Any) -> tuple[float, float]:
        taken.append(len(values))
        return interval(values, **settings)

    monkeypatch.setattr(clusters, "interval", counted)
    assert len(panel.status(scores).next_samples) == ESTIMATE_CLUSTERS_AHEAD
    assert len(taken) == 3


def test_a_verdict_that_rounding_holds_off_leaves_something_to_do() -> None:
    """Its evidence is summed otherwise in a longer array, and may there have reached what it just misses here."""
    edges = 0
    # Where there are too few for a twentieth to spare.
    for seed, done in product(range(40), range(8, 20)):
        panel = panel_of(400, tasks=TASKS[:1], seed=seed)
        truth = drawn(panel, dict.fromkeys(panel.cases, 0.9), seed)
        pool, scores = panel.queue(panel.cases), {element: truth[element] for element in panel.order[:done]}
        values = pool.weighted_means(scores)
        (here, _), (there, _) = (
            level_evidence(each, 0.6, population=400) for each in (values, np.append(values, np.ones(400 - done)))
        )
        if not here.max() <= here[-1] < there[done - 1]:
            continue
        # The logarithm of its alpha is rounded too.
        near = [float(np.exp(-there[done - 1])) * (1 + ulps * 2**-52) for ulps in range(6)]
        rules = [Hypothesis(case_ids=frozenset(panel.cases), threshold=0.6, alpha=alpha) for alpha in near]
        looks = [(rule, look) for rule in rules if not (look := panel.analyze(rule, scores)).is_settled]
        edges += len(looks)
        assert all(set(samples_until_verdict(rule, pool, look, scores)) - scores.keys() for rule, look in looks)
    assert edges


def test_a_long_queue_is_handed_out_in_parts() -> None:
    panel = panel_of(400, Hypothesis(case_ids=ids(*TASKS), threshold=None))
    assert panel.status({}).next_samples == tuple(("model", element) for element in panel.order[:MAX_CLUSTERS_AHEAD])
    assert panel.status(dict.fromkeys(panel.order[:1000], 1.0)).next_samples[0] == ("model", panel.order[1000])
