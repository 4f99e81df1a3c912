"""The samples offered to workers are those that the soonest verdicts need, and hardly more."""

from itertools import product
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.sequential import MAX_CLUSTERS_AHEAD, Hypothesis
from longctx.plugins.verdicts.panels import Comparison, ModelRole
from tests.helpers.panels import PAIRING, SEEDS, TASKS, fast_settings, ids, panel_of, simulated_runs
from tests.helpers.queues import SimulatedRun, draw_scores
from tests.helpers.scores import evidence_against


@fast_settings
@given(simulated_runs())
def test_one_worker_measures_no_sample_needlessly(run: SimulatedRun) -> None:
    assert run.evidence(run.run_alone())["model"] == run.journal["model"]
    if "baseline" in run.truth:
        assert run.evidence(run.status())["baseline"] == run.journal["baseline"]


@fast_settings
@given(simulated_runs(), st.integers(2, 20), st.integers(1, 8), SEEDS)
def test_many_workers_measure_at_most_a_twentieth_more_than_one(
    run: SimulatedRun, workers: int, at_once: int, seed: int
) -> None:
    """This holds for any batch size and any order of completion."""
    random = Random(seed)
    held: list[list[tuple[ModelRole, SampleRef]]] = []
    while (next_samples := run.status().next_samples) or held:
        claimed = {task for batch in held for task in batch}
        free = [task for task in next_samples if task not in claimed]
        if free and len(held) < workers:
            held.append(free[:at_once])
        else:
            batch = held[random.randrange(len(held))]
            run.measure(*batch.pop(0))
            held = [batch for batch in held if batch]
    status = run.status()
    analyses = [*status.analyses.values(), *status.comparisons.values()]
    spare = sum(int(0.05 * analysis.samples) for analysis in analyses)
    counted = run.evidence(status)
    assert all(len(run.journal[role]) - len(counted[role]) <= spare for role in run.truth)


def test_the_evidence_of_the_first_samples_is_the_same_in_a_longer_queue() -> None:
    """Else a test might decide on samples that are assumed to follow, and not on the finished ones."""
    for seed, done in product(range(40), range(8, 20)):
        panel = panel_of(400, tasks=TASKS[:1], seed=seed)
        truth = draw_scores(panel, dict.fromkeys(panel.cases, 0.9), seed)
        values = panel.queue(panel.cases).weighted_means({ref: truth[ref] for ref in panel.order[:done]})
        longer = evidence_against(np.append(values, np.ones(400 - done)), 0.6, 400)
        assert evidence_against(values, 0.6, 400).tolist() == longer[:done].tolist()


def test_a_long_queue_is_offered_in_parts() -> None:
    panel = panel_of(400, Hypothesis(case_ids=ids(*TASKS), threshold=None))
    assert panel.status({}).next_samples == tuple(("model", ref) for ref in panel.order[:MAX_CLUSTERS_AHEAD])
    assert panel.status(dict.fromkeys(panel.order[:1000], 1.0)).next_samples[0] == ("model", panel.order[1000])


def test_models_that_are_loaded_in_turn_are_measured_further_ahead() -> None:
    """Each is loaded once where the verdict comes early, and all pairs are measured where that saves little."""
    wanted = {}
    for samples, is_in_turn in product((40, 400), (False, True)):
        panel = panel_of(samples, tasks=TASKS[:1])
        panel.comparisons, panel.is_in_turn = (Comparison(hypothesis=PAIRING),), is_in_turn
        wanted[samples, is_in_turn] = len(panel.status({}, baseline={}).next_samples)
    assert wanted[400, True] == 2 * wanted[400, False] < 2 * 400
    assert wanted[40, False] <= wanted[40, True] <= 2 * 40
