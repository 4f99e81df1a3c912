"""Verdicts are right as often as they say however often one looks, and stand once they are reached."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from plugins.gates.statistics import (
    Decision,
    decide_level,
    decide_paired,
    e_bh,
    interval,
    log_below,
    log_dropped,
    log_evidence,
    paired_interval,
)

MEANS = st.floats(0, 1)
SCORES = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
QUEUES = st.lists(SCORES, min_size=1, max_size=60)
DIFFERENCES = st.lists(st.sampled_from((-1.0, -0.25, 0.0, 0.5, 1.0)), min_size=1, max_size=60)
RESOLUTION = 1e-5

Floats = NDArray[np.float64]


def accurate(share: float, samples: int, seed: int = 0) -> Floats:
    """Scores of 0 and 1 with exactly this share of ones, in a random order."""
    return np.random.default_rng(seed).permutation(np.arange(samples) < round(share * samples)).astype(float)


def formula(scores: list[float], mean: float, population: int | None) -> list[float]:
    """The mixture, bet by bet and score by score; without the impossible nulls."""
    shares = [math.sin(math.pi * (2 * j - 1) / 96) ** 2 for j in range(1, 25)]
    capital, seen, evidence = [1.0] * 24, 0.0, []
    for turn, score in enumerate(scores):
        left = mean if population is None else (population * mean - seen) / (population - turn)
        capital = [each * (1 + share * (score / left - 1)) for each, share in zip(capital, shares, strict=True)]
        seen += score
        evidence.append(math.log(sum(capital) / 24))
    return evidence


# Evidence


@settings(deadline=None)
@given(QUEUES, st.floats(0.05, 0.95))
def test_evidence_is_the_published_mixture(scores: list[float], mean: float) -> None:
    assert list(log_evidence(scores, mean)) == pytest.approx(formula(scores, mean, None), abs=1e-9)
    population = len(scores) + math.ceil(sum(scores) / mean)
    assert list(log_evidence(scores, mean, population=population)) == pytest.approx(
        formula(scores, mean, population), abs=1e-9
    )


@settings(deadline=None, max_examples=30)
@given(st.lists(SCORES, min_size=1, max_size=6))
def test_bets_are_fair_over_all_orders_of_a_set(scores: list[float]) -> None:
    """While the null holds the expected e-value is at most 1 at every time: here exactly, over every order."""
    orders = np.array(list(permutations(scores)))
    mean = sum(scores) / len(scores)
    assert np.exp(log_evidence(orders, mean, population=len(scores))).mean(axis=0).max() <= 1 + 1e-6
    assert np.exp(log_evidence(1 - orders, 1 - mean, population=len(scores))).mean(axis=0).max() <= 1 + 1e-6


@settings(deadline=None, max_examples=30)
@given(st.lists(SCORES, min_size=3, max_size=3))
def test_bets_are_fair_over_all_draws_with_replacement(values: list[float]) -> None:
    draws = np.array(list(product(values, repeat=6)))
    assert np.exp(log_evidence(draws, sum(values) / 3)).mean(axis=0).max() <= 1 + 1e-6


@settings(deadline=None)
@given(st.lists(MEANS, max_size=60), st.floats(-0.5, 1.5), st.floats(0, 0.5), st.none() | st.integers(0, 100))
def test_evidence_is_a_number_and_falls_with_the_mean_it_is_against(
    scores: list[float], mean: float, step: float, more: int | None
) -> None:
    population = None if more is None else max(1, len(scores) + more)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        against = log_evidence(scores, mean, population=population)
        against_more = log_evidence(scores, mean + step, population=population)
    assert against.shape == (len(scores),)
    assert not np.isnan(against).any()
    assert (against >= against_more - 1e-6).all()


@pytest.mark.parametrize("population", [None, 20_000])
@pytest.mark.parametrize("mean", [0.0, 1e-300, 1e-12, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("score", [0.0, 1e-300, 1.0])
def test_long_runs_of_one_score_stay_in_range(score: float, mean: float, population: int | None) -> None:
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        evidence = log_evidence(np.full(20_000, score), mean, population=population)
    assert not np.isnan(evidence).any()
    if score > mean + 1e-10:
        assert evidence[-1] > 0
    elif score <= mean:
        assert evidence[-1] <= 1e-9


@pytest.mark.parametrize("population", [None, 8])
def test_a_score_above_zero_refutes_a_mean_of_zero_for_good(population: int | None) -> None:
    evidence = log_evidence([0, 0, 0.25, 0, 0], 0.0, population=population)
    assert list(np.isposinf(evidence)) == [False, False, True, True, True]
    assert (evidence[:2] < 0).all()


def test_more_than_the_set_can_hold_is_certain_for_good() -> None:
    evidence = log_evidence([1, 1, 1, 0, 0, 0], 0.25, population=8)
    assert list(np.isposinf(evidence)) == [False, False, True, True, True, True]
    assert np.isposinf(log_evidence([0.0], -0.1)).all()
    assert np.isposinf(log_evidence([0.0], -0.1, population=8)).all()


def test_orders_are_vectorised_and_means_broadcast() -> None:
    orders = np.random.default_rng(0).random((3, 4, 50))
    evidence = log_evidence(orders, 0.5, population=60)
    assert evidence.shape == (3, 4, 50)
    assert list(evidence[2, 1]) == pytest.approx(list(log_evidence(orders[2, 1], 0.5, population=60)), abs=1e-9)
    assert list(log_evidence(orders, [[0.5], [0.4], [0.3]])[2, 1]) == pytest.approx(
        list(log_evidence(orders[2, 1], 0.3)), abs=1e-9
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.01, 1.01, 85.6])
def test_what_is_no_score_raises_and_is_shown(bad: float) -> None:
    for call in (
        lambda: log_evidence([0.5, bad], 0.5),
        lambda: decide_level([0.5, bad], 0.5, alpha=0.01, population=9),
        lambda: decide_level([0.5], 0.5, alpha=0.01, population=2, control=[0.5, bad]),
        lambda: interval([0.5, bad], alpha=0.01),
        lambda: log_below([0.5, bad], 0.5, population=None),
    ):
        with pytest.raises(ValueError, match=rf"^{bad!r} among the scores: they run from 0 to 1"):
            call()


def test_what_makes_no_sense_raises() -> None:
    with pytest.raises(ValueError, match="3 scores of a population of 2"):
        log_evidence([0, 1, 1], 0.5, population=2)
    with pytest.raises(ValueError, match="mean nan"):
        log_evidence([0, 1, 1], math.nan)
    with pytest.raises(ValueError, match=r"\(3,\) scores for a population of 2"):
        decide_level([0, 1, 1], 0.5, alpha=0.01, population=2)
    with pytest.raises(ValueError, match=r"\(3,\) of a control for a population of 4"):
        decide_level([0, 1, 1], 0.5, alpha=0.01, population=4, control=[0, 1, 1])
    with pytest.raises(ValueError, match=r"threshold 85\.6"):
        decide_level([0, 1, 1], 85.6, alpha=0.01, population=4)
    with pytest.raises(ValueError, match="alpha 1"):
        decide_level([0, 1, 1], 0.5, alpha=1, population=4)
    with pytest.raises(ValueError, match="alpha 0"):
        interval([0, 1, 1], alpha=0)
    with pytest.raises(ValueError, match=r"-1\.5 among the scores: they run from -1 to 1"):
        decide_paired([-1.5], drop=0.02, clear=0.01, alpha=0.01)
    with pytest.raises(ValueError, match=r"drop 0\.01 with clear 0\.02"):
        decide_paired([0], drop=0.01, clear=0.02, alpha=0.01)


# The level gate


@settings(deadline=None, max_examples=50)
@given(QUEUES, st.integers(0, 20), MEANS, st.sampled_from((0.0, 0.05)), st.integers(0, 70), st.booleans())
def test_a_verdict_stands_and_is_never_missing_at_the_end(
    scores: list[float], more: int, threshold: float, zone: float, least: int, controlled: bool
) -> None:
    control = ([0.5] * more + scores[::-1]) if controlled else None

    def decide(looks: int) -> Decision | None:
        return decide_level(
            scores[:looks],
            threshold,
            alpha=0.2,
            population=len(scores) + more,
            zone=zone,
            least=least,
            control=control,
        )

    last = decide(len(scores))
    assert last is not None or more
    for looks in range(len(scores)):
        assert decide(looks) == (last if last is not None and looks >= last.at else None)
    if last is not None:
        assert last.at >= min(least, len(scores) + more)


@settings(deadline=None)
@given(QUEUES, MEANS, st.booleans())
def test_the_mirror_image_gets_the_opposite_verdict(scores: list[float], threshold: float, controlled: bool) -> None:
    known = np.array(scores[::-1])
    population = len(scores) + 1
    known = np.append(known, 0.5)
    decision = decide_level(scores, threshold, alpha=0.1, population=population, control=known if controlled else None)
    mirrored = decide_level(
        1 - np.array(scores), 1 - threshold, alpha=0.1, population=population, control=1 - known if controlled else None
    )
    assert (decision is None) == (mirrored is None)
    if decision is not None and mirrored is not None:
        assert decision.at == mirrored.at
        assert decision.verdict != mirrored.verdict


@settings(deadline=None)
@given(QUEUES)
def test_a_mean_at_its_threshold_fails(scores: list[float]) -> None:
    """However the sum is rounded: ten times 0.1 is not above 1."""
    size = len(scores)
    tie, below = sum(scores) / size, max(0.0, sum(scores) / size - 1e-6)
    assert decide_level(scores, tie, alpha=0.01, population=size, least=size) == Decision(verdict="fail", at=size)
    above = decide_level(scores, below, alpha=0.01, population=size, least=size + 1)
    assert above == Decision(verdict="pass" if below < tie else "fail", at=size)


@pytest.mark.parametrize(("score", "threshold"), [(0.1, 0.1), (0.7, 0.7), (1 / 3, 1 / 3), (0.0, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("size", [1, 3, 10, 500, 6500])
def test_constant_scores_at_their_threshold_fail_only_at_the_end(score: float, threshold: float, size: int) -> None:
    scores = np.full(size, score)
    assert decide_level(scores, threshold, alpha=0.01, population=size) == Decision(verdict="fail", at=size)
    assert decide_level(scores[:-1], threshold, alpha=0.01, population=size) is None


@pytest.mark.parametrize(("threshold", "verdict"), [(0.4, "pass"), (0.6, "fail")])
@pytest.mark.parametrize("controlled", [False, True])
def test_constant_scores_off_their_threshold_are_told_early(threshold: float, verdict: str, controlled: bool) -> None:
    scores = np.full(500, 0.5)
    decision = decide_level(scores, threshold, alpha=0.01, population=500, control=scores if controlled else None)
    assert decision is not None
    assert decision.verdict == verdict
    assert 8 <= decision.at < 100


def test_a_single_look_at_the_ends_of_the_scale_is_enough() -> None:
    """Any score above 0 is a mean above 0, any score below 1 a mean below 1."""
    right, wrong = [0.0] * 9 + [1.0], [1.0] * 9 + [0.0]
    assert decide_level(right, 0.0, alpha=0.01, population=500) == Decision(verdict="pass", at=10)
    assert decide_level(wrong, 1.0, alpha=0.01, population=500) == Decision(verdict="fail", at=10)
    assert decide_level(wrong, 0.995, alpha=0.01, population=500, zone=0.01) == Decision(verdict="fail", at=10)


def test_a_complete_set_is_compared_exactly_whatever_the_zone() -> None:
    """Inside the zone both nulls are refuted by then."""
    for score, verdict in ((0.55, "pass"), (0.5, "fail"), (0.45, "fail")):
        decision = decide_level([score] * 4, 0.5, alpha=0.01, population=4, zone=0.1, least=4)
        assert decision is not None
        assert decision.verdict == verdict


def test_a_zone_past_the_scale_decides_nothing_by_itself() -> None:
    perfect = np.ones(500)
    assert decide_level(1 - perfect[:30], 0.005, alpha=0.01, population=500, zone=0.01) is None
    assert decide_level(perfect[:30], 0.995, alpha=0.01, population=500, zone=0.01) is None
    assert decide_level(perfect, 0.995, alpha=0.01, population=500, zone=0.01) == Decision(verdict="pass", at=275)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_a_population_of_one_is_known_when_seen(score: float) -> None:
    assert decide_level([], 0.5, alpha=0.01, population=1) is None
    expected = Decision(verdict="pass" if score else "fail", at=1)
    assert decide_level([score], 0.5, alpha=0.01, population=1) == expected


def test_more_looks_than_samples_leave_the_exact_comparison() -> None:
    scores = accurate(0.9, 20)
    assert decide_level(scores[:19], 0.1, alpha=0.01, population=20, least=26) is None
    assert decide_level(scores, 0.1, alpha=0.01, population=20, least=26) == Decision(verdict="pass", at=20)


@pytest.mark.parametrize("controlled", [False, True])
@pytest.mark.parametrize(("right", "wrong"), [(171, "pass"), (173, "fail")])
def test_verdicts_one_step_from_the_threshold_are_rarely_wrong(right: int, wrong: str, controlled: bool) -> None:
    random = np.random.default_rng(right)
    scores = (np.arange(200) < right).astype(float)
    baseline = np.roll(scores, 5)
    errors = 0
    for _ in range(400):
        order = random.permutation(200)
        control = baseline[order] if controlled else None
        decision = decide_level(scores[order], 0.86, alpha=0.05, population=200, control=control)
        assert decision is not None
        errors += decision.verdict == wrong
    assert errors / 400 <= 0.05


def test_a_test_for_one_look_is_wrong_far_more_often_when_it_peeks() -> None:
    random = np.random.default_rng(0)
    scores, looks = (np.arange(500) < 427).astype(float), np.arange(30, 500, 10)
    peeked = errors = 0
    for _ in range(300):
        order = random.permutation(scores)
        mean = order.cumsum()[looks - 1] / looks
        statistic = (mean - 0.856) * np.sqrt(looks / np.maximum(mean * (1 - mean), 1e-12))
        crossed = np.abs(statistic) > 2.576
        peeked += bool(crossed.any()) and bool(statistic[crossed.argmax()] > 0)
        decision = decide_level(order, 0.856, alpha=0.01, population=500)
        errors += decision is not None and decision.verdict == "pass"
    assert errors / 300 <= 0.01
    assert peeked / 300 > 0.04


def test_a_verdict_off_the_threshold_takes_a_fraction_of_the_samples() -> None:
    for seed in range(5):
        strong = decide_level(accurate(0.955, 6500, seed), 0.856, alpha=0.01 / 6, population=6500, least=26)
        weak = decide_level(accurate(0.5, 6500, seed), 0.856, alpha=0.01 / 6, population=6500, least=26)
        assert strong is not None
        assert weak is not None
        assert (strong.verdict, weak.verdict) == ("pass", "fail")
        assert strong.at < 6500 / 8
        assert weak.at < 100


def test_a_zone_is_cheaper_near_the_threshold() -> None:
    scores = accurate(0.88, 6500)
    exact = decide_level(scores, 0.856, alpha=0.01, population=6500)
    coarse = decide_level(scores, 0.856, alpha=0.01, population=6500, zone=0.01)
    assert exact is not None
    assert coarse is not None
    assert exact.verdict == coarse.verdict == "pass"
    assert coarse.at < exact.at


@pytest.mark.parametrize(("share", "verdict"), [(0.9, "pass"), (0.81, "fail")])
def test_a_baseline_that_scores_alike_saves_samples(share: float, verdict: str) -> None:
    scores = accurate(share, 6500)
    plain = decide_level(scores, 0.856, alpha=0.01, population=6500)
    same = decide_level(scores, 0.856, alpha=0.01, population=6500, control=scores)
    assert plain is not None
    assert same is not None
    assert plain.verdict == same.verdict == verdict
    assert same.at < plain.at / 2


def test_evidence_with_a_baseline_is_the_average_of_both() -> None:
    """The mean of the baseline is that of all the set: its first half here is worse than its second."""
    scores = np.concatenate([accurate(0.9, 250), accurate(0.95, 250)])
    control = np.concatenate([accurate(0.85, 250), accurate(0.97, 250)])
    plain = log_evidence(scores, 0.85, population=500)
    paired = log_evidence((scores - control + 1) / 2, (0.85 - control.mean() + 1) / 2, population=500)
    expected = int(((np.exp(plain) + np.exp(paired)) / 2 >= 100).argmax()) + 1
    decided = Decision(verdict="pass", at=expected)
    assert expected < 400
    assert decide_level(scores[: expected - 1], 0.85, alpha=0.01, population=500, control=control) is None
    assert decide_level(scores[:expected], 0.85, alpha=0.01, population=500, control=control) == decided
    assert decide_level(scores, 0.85, alpha=0.01, population=500, control=control) == decided


# The regression gate


def discordant(share: float, change: float, samples: int, seed: int) -> Floats:
    shares = ((share + change) / 2, 1 - share, (share - change) / 2)
    return np.random.default_rng(seed).choice((-1.0, 0.0, 1.0), samples, p=shares)


def test_the_same_answers_pass_and_soon() -> None:
    decision = decide_paired(np.zeros(6500), drop=0.02, clear=0.01, alpha=0.01, least=26)
    assert decision is not None
    assert decision.verdict == "pass"
    assert decision.at < 1000


def test_a_drop_is_found_and_an_unchanged_model_is_not_blamed() -> None:
    for seed in range(20):
        worse = decide_paired(discordant(0.1, 0.05, 6500, seed), drop=0.02, clear=0.01, alpha=0.01, least=26)
        assert worse is not None
        assert worse.verdict == "fail"
        equal = decide_paired(discordant(0.1, 0.0, 6500, seed), drop=0.02, clear=0.01, alpha=0.01, least=26)
        assert equal is None or equal.verdict == "pass"


@pytest.mark.parametrize(("mean", "verdict"), [(0.25, "pass"), (-0.5, "fail")])
def test_a_drop_is_weighed_against_the_drop_and_blame_against_what_is_clear(mean: float, verdict: str) -> None:
    differences = np.full(500, mean)
    against = {"pass": log_evidence((differences + 1) / 2, 0.35), "fail": log_evidence((1 - differences) / 2, 0.55)}
    expected = int((against[verdict] >= math.log(100)).argmax()) + 1
    decision = decide_paired(differences, drop=0.3, clear=0.1, alpha=0.01, least=1)
    assert decision == Decision(verdict="pass" if mean > 0 else "fail", at=expected)


def test_too_few_samples_stay_inconclusive() -> None:
    assert decide_paired([], drop=0.05, clear=0.0, alpha=0.01) is None
    assert decide_paired(discordant(0.1, 0.0, 60, 0), drop=0.05, clear=0.0, alpha=0.01) is None


def test_with_all_pairs_at_hand_the_nearer_side_is_known() -> None:
    """Half way is a fail; with one pair less it is open, and with a smaller loss it passes."""
    lost = [-0.2] * 40

    def decided(differences: list[float]) -> Decision | None:
        return decide_paired(differences, drop=0.2001, clear=0.1999, alpha=0.01, population=40)

    assert decided(lost) == Decision(verdict="fail", at=40)
    assert decided(lost[1:]) is None
    assert decided([*lost[1:], -0.199]) == Decision(verdict="pass", at=40)


def test_a_population_of_pairs_is_decided_sooner_and_rightly() -> None:
    """Two losses of different size, seen in random orders: wrong in no more than a share alpha of them."""
    rng = np.random.default_rng(0)
    wrong, fewer = 0, 0
    for mean, verdict in ((-0.3, "fail"), (-0.1, "pass")):
        lost = np.array([-1.0] * round(-100 * mean) + [0.0] * round(100 + 100 * mean))
        for _ in range(200):
            order = rng.permutation(lost)
            known = decide_paired(order, drop=0.225, clear=0.175, alpha=0.05, population=100)
            open_ended = decide_paired(order, drop=0.225, clear=0.175, alpha=0.05)
            assert known is not None
            wrong += known.verdict != verdict
            fewer += open_ended is None or known.at <= open_ended.at
    assert wrong <= 20
    assert fewer > 350


@settings(deadline=None)
@given(DIFFERENCES, st.integers(1, 60))
def test_a_paired_verdict_stands(differences: list[float], looks: int) -> None:
    last = decide_paired(differences, drop=0.3, clear=0.1, alpha=0.2)
    early = decide_paired(differences[:looks], drop=0.3, clear=0.1, alpha=0.2)
    assert early == (last if last is not None and looks >= last.at else None)


@settings(deadline=None)
@given(DIFFERENCES)
def test_evidence_at_the_end_is_the_last_look(differences: list[float]) -> None:
    scores = [(difference + 1) / 2 for difference in differences]
    assert log_dropped(differences, clear=0.1) == pytest.approx(log_below(scores, 0.45, population=None), abs=1e-9)
    assert log_below(scores, 0.45, population=99) == pytest.approx(
        float(log_evidence(1 - np.array(scores), 0.55, population=99)[-1]), abs=1e-9
    )


def test_evidence_at_the_end_forgets_what_was_refuted_on_the_way() -> None:
    """False discovery rates hold for evidence at a stop; its running maximum is no e-value."""
    recovered = [-1.0] * 10 + [1.0] * 40
    assert log_dropped(recovered[:10]) > math.log(20)
    assert log_dropped(recovered) < 0
    assert log_dropped([]) == log_below([], 0.5, population=8) == 0.0


# Intervals


@settings(deadline=None, max_examples=50)
@given(QUEUES, st.none() | st.integers(0, 40), st.sampled_from((0.01, 0.2)))
def test_an_interval_holds_the_mean_and_more_scores_keep_it_inside(
    scores: list[float], more: int | None, alpha: float
) -> None:
    population = None if more is None else len(scores) + more
    mean = math.fsum(scores) / len(scores)
    wide = interval(scores[: len(scores) // 2], alpha=alpha, population=population)
    low, high = interval(scores, alpha=alpha, population=population)
    assert 0 <= low <= mean <= high <= 1
    assert min(wide[0], mean) <= low + RESOLUTION
    assert high - RESOLUTION <= max(wide[1], mean)


@settings(deadline=None, max_examples=50)
@given(QUEUES, st.floats(0.05, 0.95), st.integers(1, 40))
def test_an_interval_excludes_a_threshold_when_the_gate_has_decided(
    scores: list[float], threshold: float, more: int
) -> None:
    population = len(scores) + more
    mean = math.fsum(scores) / len(scores)
    low, high = interval(scores, alpha=0.1, population=population)
    decision = decide_level(scores, threshold, alpha=0.05, population=population, least=1)
    if decision is None:
        assert low - RESOLUTION <= threshold <= high + RESOLUTION
    elif decision.verdict == "pass":
        assert low >= min(threshold, mean) - RESOLUTION
    else:
        assert high <= max(threshold, mean) + RESOLUTION


def test_an_interval_narrows_to_the_mean_of_the_set() -> None:
    scores = accurate(0.9, 500)
    widths = [high - low for low, high in (interval(scores[:n], alpha=0.01, population=500) for n in (1, 20, 100, 400))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.06
    assert interval(scores, alpha=0.01, population=500) == (0.9, 0.9)
    assert interval([], alpha=0.01) == (0.0, 1.0)
    assert interval([1.0] * 500, alpha=0.01)[1] == 1.0
    assert interval([0.0] * 500, alpha=0.01)[0] == 0.0


def test_an_interval_holds_the_truth_at_every_look() -> None:
    """At all looks together as often as it says, which intervals for a fixed number of samples do not."""
    missed = 0
    for seed in range(300):
        low, high = interval(np.random.default_rng(seed).random(60) < 0.8, alpha=0.1)
        missed += not low <= 0.8 <= high
    assert missed / 300 <= 0.1


def test_paired_intervals_run_from_minus_one_to_one() -> None:
    low, high = paired_interval(discordant(0.1, 0.05, 2000, 0), alpha=0.01)
    assert -0.1 < low < -0.05 < high < 0
    assert paired_interval([], alpha=0.01) == (-1.0, 1.0)


# False discoveries


@given(st.lists(st.floats(-5, 8) | st.just(math.inf) | st.just(-math.inf), max_size=8), st.sampled_from((0.05, 0.2, 1)))
def test_e_bh_rejects_the_largest_set_that_supports_itself(log_values: list[float], q: float) -> None:
    """A set of k supports itself when each of its e-values is at least K/(q·k); compared in logs, as rounded."""
    size = len(log_values)
    supported = [k for k in range(1, size + 1) if sum(value >= math.log(size / (q * k)) for value in log_values) >= k]
    largest = max(supported, default=0)
    rejected = e_bh(log_values, q)
    assert len(rejected) == size
    assert sum(rejected) == largest
    kept = [value for value, reject in zip(log_values, rejected, strict=True) if not reject]
    assert all(value > max(kept, default=-math.inf) for value, out in zip(log_values, rejected, strict=True) if out)


def test_e_bh_on_a_worked_example() -> None:
    """At q = 0.1 of five: the bars are 50, 25, 16.7, 12.5 and 10; the third misses its own, the fourth holds all."""
    assert e_bh([math.log(e) for e in (60, 13, 1, 16, 15)], 0.1) == (True, True, False, True, True)
    assert e_bh([math.log(e) for e in (49, 1, 1, 1, 1)], 0.1) == (False,) * 5
    assert e_bh([0.0], 1) == (True,)
    assert e_bh([], 0.05) == ()


@pytest.mark.parametrize(("values", "q"), [([math.nan], 0.05), ([1.0], 0.0), ([1.0], 1.5), ([1.0], math.nan)])
def test_e_bh_refuses_what_is_no_evidence(values: list[float], q: float) -> None:
    with pytest.raises(ValueError, match="give a q above 0"):
        e_bh(values, q)


# Wilson's interval
