"""A panel draws the cases whose scores vary most more often, and its verdicts stay those of all planned samples."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.plugins.evidence.e_process import MIN_RESULTS, SMALLEST_RATE, draw_rates
from longctx.plugins.evidence.sequential import Hypothesis
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.panels import SEEDS, TASKS, fast_settings, ids
from tests.helpers.queues import SimulatedRun, case, draw_exact_scores

RATES = {case(task).id: rate for task, rate in zip(TASKS[:3], (0.4, 0.7, 1.0), strict=True)}


def panel_at(samples: int, tasks: tuple[str, ...] = TASKS, seed: int = 0, threshold: float | None = 0.5) -> Panel:
    hypothesis = Hypothesis(case_ids=ids(*tasks), threshold=threshold)
    cases = [case(task, 1024, samples) for task in tasks]
    return Panel("ruler", 1024, cases, seed=seed, hypotheses=[hypothesis], draw_rates=RATES)


def test_a_rate_is_the_spread_of_the_scores_within_limits() -> None:
    even, alike = [0.0, 1.0] * 10, [1.0] * 20
    assert draw_rates({"a": even, "b": alike, "c": [0.4, 0.6] * 10}) == {
        "a": 1.0,
        "b": SMALLEST_RATE,
        "c": SMALLEST_RATE,
    }
    assert SMALLEST_RATE < draw_rates({"a": [1.0] * 18 + [0.0] * 2})["a"] < 0.8


def test_too_few_results_of_one_case_give_no_rates() -> None:
    assert draw_rates({"a": [0.0, 1.0] * 10, "b": [1.0] * (MIN_RESULTS - 1)}) == {}


@fast_settings
@given(SEEDS, st.integers(1, 30), st.integers(0, 30), st.sets(st.sampled_from(TASKS), min_size=1))
def test_other_cases_and_more_samples_never_reorder_the_queue(
    seed: int, samples: int, more: int, chosen: set[str]
) -> None:
    large, small = panel_at(samples + more, seed=seed), panel_at(samples, tuple(sorted(chosen)), seed)
    assert small.order == tuple(ref for ref in large.order if ref.case_id in small.cases and ref.sample_index < samples)


def test_cases_are_drawn_at_their_rates() -> None:
    drawn = Counter(ref.case_id for seed in range(20) for ref in panel_at(400, seed=seed).order[:100])
    shares = [drawn[case(task).id] / drawn.total() for task in TASKS]
    assert np.allclose(shares, np.array([0.4, 0.7, 1.0, 1.0]) / 3.1, atol=0.04)


def test_another_rate_draws_other_samples_of_the_case_first() -> None:
    """The rate may follow from results on the samples that came first before."""
    name = case("a").id
    firsts = [
        Panel("ruler", 1024, [case("a", 1024, 400)], seed=0, hypotheses=(), draw_rates=rates).order[:10]
        for rates in ({}, {name: 0.4}, {name: 0.41}, {name: 1.0})
    ]
    assert len(set(firsts)) == 4


def test_the_uniform_queue_begins_with_finished_samples() -> None:
    panel = panel_at(200)
    finished = set(panel.order[:300])
    begins = list(takewhile(finished.__contains__, panel.uniform_queue(panel.cases).refs))
    assert 100 < len(begins) < 300
    assert np.ptp(list(Counter(ref.case_id for ref in begins).values())) < 30
    for name in panel.cases:
        of_case = [ref for ref in panel.order if ref.case_id == name]
        assert of_case == [ref for ref in panel.uniform_queue(panel.cases).refs if ref.case_id == name]


@pytest.mark.parametrize(("ones", "verdict"), [(135, "pass"), (114, "fail")])
def test_verdicts_at_unequal_rates_are_those_of_all_samples(ones: int, verdict: str) -> None:
    """The case drawn least scores worst or best: without a correction the drawn samples would mislead."""
    others = (500 - ones) // 3 if ones > 125 else (500 - ones) // 3 + 1
    words = set()
    for seed in range(10):
        panel = panel_at(200, seed=seed, threshold=0.625)
        truth = draw_exact_scores(panel, dict(zip(panel.cases, (ones, others, others, others), strict=True)), seed)
        threshold = sum(truth.values()) / 800
        off = threshold - 0.06 if verdict == "pass" else threshold + 0.06
        tested = Hypothesis(case_ids=frozenset(panel.cases), threshold=off)
        decision = panel.analyze(tested, truth).decision
        words.add(decision and decision.verdict)
    assert words == {verdict}


def test_one_worker_measures_no_sample_needlessly() -> None:
    panel = panel_at(60, threshold=0.6)
    truth = draw_exact_scores(panel, dict.fromkeys(panel.cases, 48))
    run = SimulatedRun(panel, {"model": truth})
    assert run.evidence(run.run_alone())["model"] == run.journal["model"]


def test_cases_of_different_sizes_are_drawn_equally_often_at_first() -> None:
    cases = [case("a", 1024, 400), case("b", 1024, 40)]
    drawn = Counter(
        ref.case_id for seed in range(20) for ref in Panel("ruler", 1024, cases, seed=seed, hypotheses=()).order[:20]
    )
    assert 0.4 < drawn[cases[1].id] / drawn.total() < 0.6
    uniform = Panel("ruler", 1024, cases, seed=0, hypotheses=(), draws_by_weight=False)
    assert uniform.queue(uniform.cases).drawn_strata is None
    assert uniform.order == Panel("ruler", 1024, cases, seed=0, hypotheses=()).uniform_queue(uniform.cases).refs


def test_cases_of_one_size_keep_the_uniform_order() -> None:
    cases = [case(task, 1024, 50) for task in TASKS]
    by_weight, uniform = (
        Panel("ruler", 1024, cases, seed=3, hypotheses=(), draws_by_weight=draws) for draws in (True, False)
    )
    assert by_weight.order == uniform.order
    assert by_weight.draw_rates == {}


def test_leaving_out_a_case_keeps_the_order_of_cases_of_different_sizes() -> None:
    cases = [case("a", 1024, 400), case("b", 1024, 90), case("c", 1024, 40)]
    whole = Panel("ruler", 1024, cases, seed=0, hypotheses=())
    for left_out in range(3):
        rest = cases[:left_out] + cases[left_out + 1 :]
        part = Panel("ruler", 1024, rest, seed=0, hypotheses=())
        assert part.order == tuple(ref for ref in whole.order if ref.case_id in part.cases)
