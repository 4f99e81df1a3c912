"""Failing steps become episodes: one for each step at which the run became worse."""

from __future__ import annotations

import random

import pytest

from longctx.ci.alerts.episodes import Episode, episodes
from longctx.ci.watch.history import Verdict, WatchedCheckpoint
from tests.helpers.watched import PAIRS, case_id, deleted, measured, outcome, rewritten

SOUND = [measured(step, a=0.5 * (step % 2), b=0.0) for step in (1, 2, 3, 4)]


def shape(found: list[Episode]) -> list[tuple[list[str], list[int], int | None]]:
    """Return the tasks, the failing steps and the end of every episode."""
    return [
        (sorted(case.id[11:-4] for case in each.cases), [step.step for step in each.steps], each.fixed_by)
        for each in found
    ]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param([measured(5, a=-20, b=0), measured(6, a=-30, b=0)], [(["a"], [5, 6], None)], id="one alert"),
        pytest.param(
            [measured(5, a=-20, b=0), measured(6, a=-20, b=-40)],
            [(["a"], [5, 6], None), (["b"], [6], None)],
            id="a further loss in another case",
        ),
        pytest.param(
            [measured(5, a=-20, b=-2), measured(6, a=0, b=-20)],
            [(["a"], [5], 6), (["b"], [6], None)],
            id="another case fails where the first one passes",
        ),
        pytest.param(
            [measured(5, a=-20, b=0), measured(6, a=0, b=0), measured(7, a=-20, b=0)],
            [(["a"], [5], 6), (["a"], [7], None)],
            id="a second loss of a repaired case",
        ),
        pytest.param(
            [measured(5, a=-20, b=0), measured(6, "inconclusive", cases={"a": outcome(-9, "open")}, b=0)],
            [(["a"], [5], None)],
            id="an undecided step repairs nothing",
        ),
        pytest.param(
            [measured(5, a=-20, b=0), measured(6, b=0)], [(["a"], [5], None)], id="a step without the case neither"
        ),
        pytest.param(
            [measured(5, cases={"a": outcome(-40), "b": outcome(-30, "open", pairs=4)}), measured(6, a=-40, b=-35)],
            [(["a", "b"], [5, 6], None)],
            id="a case that may have lost as much belongs to the alert",
        ),
        pytest.param(
            [
                measured(5, cases={"a": outcome(-40, "lost"), "b": outcome(0, "open", pairs=2)}),
                measured(6, cases={"a": outcome(-40, "lost"), "b": outcome(-50, "lost", pairs=2)}),
            ],
            [(["a", "b"], [5, 6], None)],
            id="a case that is not shown alone is no news in a gate that fails anyway",
        ),
    ],
)
def test_steps_belong_to_the_alert_of_their_cases(
    later: list[WatchedCheckpoint], expected: list[tuple[list[str], list[int], int | None]]
) -> None:
    assert shape(episodes([*SOUND, *later])) == expected


def test_a_case_has_the_noise_of_the_steps_before_it_and_the_worst_one_is_first() -> None:
    noisy = [measured(step, a=8.0 * (step % 2), b=0.5 * (step % 2)) for step in range(1, 7)]
    (found,) = episodes([*noisy, measured(7, a=-22, b=-18)])
    assert [(case.id, case.points, case.noise) for case in found.cases] == [
        (case_id("b"), -18, 0.32), (case_id("a"), -22, 5.06)
    ]  # fmt: skip
    # A noise below the points of one sample is no measure.
    assert [case.spread for case in found.cases] == [100 / PAIRS, 5.06]
    assert found.severity == 18 / (100 / PAIRS)
    assert (found.first.step, found.last_good and found.last_good.step) == (7, 6)


def test_the_last_good_step_of_a_case_may_fail_for_another() -> None:
    found = episodes([*SOUND, measured(5, a=-20, b=0), measured(6, a=-20, b=-40)])
    assert [each.last_good and each.last_good.step for each in found] == [4, 5]


@pytest.mark.parametrize("verdict", ["error", "underpowered"])
def test_checkpoints_that_cannot_be_measured_are_one_episode(verdict: Verdict) -> None:
    broken = [measured(5, verdict), measured(6, verdict), measured(7, a=-20, b=0)]
    assert [(each.kind, len(each.steps), each.fixed_by) for each in episodes([*SOUND, *broken])] == [
        (verdict, 2, 7), ("loss", 1, None)
    ]  # fmt: skip


def test_a_deleted_step_counts_while_another_one_fails_and_a_rewritten_one_does_not() -> None:
    first, second = measured(5, a=-20, b=0), measured(6, a=-20, b=0)
    (both,) = episodes([*SOUND, deleted(first), second])
    assert ([step.step for step in both.steps], both.is_lost) == ([5, 6], False)
    (none,) = episodes([*SOUND, deleted(first), deleted(second)])
    assert none.is_lost
    (rest,) = episodes([*SOUND, rewritten(first), second])
    assert [step.step for step in rest.steps] == [6]
    assert episodes([*SOUND, rewritten(first)]) == []


def test_the_order_of_measurement_changes_nothing() -> None:
    """The episodes of all measurements follow from the steps alone; here those known so far move the first bad one."""
    steps = [*SOUND, *(measured(step, a=-20, b=0) for step in range(5, 10)), measured(10, a=0, b=0)]
    known: list[WatchedCheckpoint] = []
    for each in random.Random(0).sample(steps, len(steps)):
        known.append(each)
        failing = [one.step for one in known if one.verdict == "fail"]
        found = episodes(sorted(known, key=lambda one: one.step))
        assert [each.first.step for each in found] == ([min(failing)] if failing else [])
    assert shape(episodes(steps)) == [(["a"], [5, 6, 7, 8, 9], 10)]
