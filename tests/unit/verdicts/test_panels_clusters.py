"""Samples on one context count as one cluster, and cases of different sizes weigh alike."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.records import CaseResult
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.sequential import Hypothesis
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.outcomes import outcome_of
from tests.helpers.queues import case

quickly = settings(deadline=None, derandomize=True, max_examples=25)
SIZES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 30)), min_size=1, max_size=4)


def panel_of(sizes: list[tuple[int, int]], *, threshold: float = 0.5, full: bool = False) -> Panel:
    """Return a panel of cases given as (samples per cluster, clusters)."""
    cases = [
        replace(case(f"t{at}", 1024, group * groups), group=group, suite="helmet", category="rag")
        for at, (group, groups) in enumerate(sizes)
    ]
    hypothesis = Hypothesis(case_ids=frozenset(planned.id for planned in cases), threshold=threshold)
    return Panel("rag", 1024, cases, seed=3, hypotheses=[hypothesis], full=full)


def mean_of_means(panel: Panel, scores: dict[SampleRef, float]) -> float:
    means = [np.mean([scores[SampleRef(name, at)] for at in range(of.samples)]) for name, of in panel.cases.items()]
    return float(np.mean(means))


@quickly
@given(SIZES)
def test_samples_of_a_cluster_are_consecutive(sizes: list[tuple[int, int]]) -> None:
    panel = panel_of(sizes)
    queue = panel.queue(panel.cases)
    assert [ref for cluster in queue.clusters for ref in cluster] == list(panel.order)
    for cluster in queue.clusters:
        group = panel.cases[cluster[0].case_id].group
        assert [ref.sample_index for ref in cluster] == list(
            range(cluster[0].sample_index, cluster[0].sample_index + group)
        )
        assert cluster[0].sample_index % group == 0


@quickly
@given(SIZES, st.integers(0, 100), st.floats(0.05, 0.95))
def test_with_all_samples_the_mean_of_the_case_means_decides(
    sizes: list[tuple[int, int]], seed: int, threshold: float
) -> None:
    panel = panel_of(sizes, threshold=threshold, full=True)
    random = Random(seed)
    scores = {ref: random.choice([0.0, 0.25, 1.0]) for ref in panel.order}
    analysis = panel.analyze(panel.hypotheses[0], scores)
    assert analysis.decision is not None
    assert (analysis.samples, analysis.clusters) == (len(panel.order), sum(groups for _, groups in sizes))
    mean = mean_of_means(panel, scores)
    if abs(mean - threshold) > 1e-6:
        assert analysis.decision.verdict == ("pass" if mean > threshold else "fail")
    queue = panel.queue(panel.cases)
    assert queue.scale * queue.weighted_means(scores).mean() == pytest.approx(mean)
    assert queue.weighted_means(scores).max() <= 1


@quickly
@given(SIZES, st.data())
def test_a_cluster_counts_only_when_it_is_complete(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    panel = panel_of(sizes)
    done = data.draw(st.integers(0, len(panel.order)))
    analysis = panel.analyze(panel.hypotheses[0], dict.fromkeys(panel.order[:done], 0.5))
    whole = [cluster for cluster in panel.queue(panel.cases).clusters if set(cluster) <= set(panel.order[:done])]
    if analysis.decision is None:
        assert analysis.clusters == len(whole)
        assert analysis.samples == sum(map(len, whole))


def test_six_questions_on_one_text_are_one_cluster() -> None:
    """With all six right or all six wrong, the verdict is that of one question per text."""
    once, six_times = panel_of([(1, 60)]), panel_of([(6, 60)])
    right = {at: Random(at).random() < 0.9 for at in range(60)}
    one = once.analyze(once.hypotheses[0], {ref: float(right[ref.sample_index]) for ref in once.order})
    six = six_times.analyze(
        six_times.hypotheses[0], {ref: float(right[ref.sample_index // 6]) for ref in six_times.order}
    )
    assert one.decision == six.decision
    assert (one.clusters, 6 * one.samples) == (six.clusters, six.samples)


def test_a_small_case_weighs_as_much_as_a_large_one() -> None:
    """One case of 400 right answers and one of 40 wrong answers have a mean of one half."""
    panel = panel_of([(1, 400), (1, 40)], threshold=0.52)
    scores = {ref: float(panel.cases[ref.case_id].samples == 400) for ref in panel.order}
    analysis = panel.analyze(panel.hypotheses[0], scores)
    assert analysis.decision is not None
    assert analysis.decision.verdict == "fail"


def test_evidence_of_a_case_is_by_cluster() -> None:
    of = replace(case("nq", 1024, 6), group=3)
    values = (1.0, 0.0, 0.5, 1.0, 1.0, 1.0, 0.0)
    found = CaseResult(
        case=of, outcomes=tuple(outcome_of(at, value) for at, value in enumerate(values)), seconds=1.0,
        baseline=(1.0, 1.0, 1.0, 0.0),
    )  # fmt: skip
    assert found.evidence == (0.5, 1.0)
    assert found.differences == (-0.5,)
