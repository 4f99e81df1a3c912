"""Failing steps become alerts: one for each step at which the run became worse, notified once, closed by a step."""

import random
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from longctx.ci.checkpoint_dirs import StepReader
from longctx.ci.suite_options import SuiteOptions
from longctx.ci.suite_process import Ended, log_of
from longctx.ci.watch.alert_text import AlertText, broken, headline
from longctx.ci.watch.alerts import Alert, Gap, find_alerts, run_search
from longctx.ci.watch.history import History, Search, Stage, WatchedCheckpoint
from longctx.ci.watch.notify import due_stage, notified
from tests.helpers.watched import case_id, deleted, measured, outcome, rewritten

SOUND = [measured(step, a=0.5 * (step % 2), b=0.0) for step in (1, 2, 3, 4)]
FIRST, SECOND, REPAIRED = measured(5, a=-20, b=0), measured(6, a=-20, b=0), measured(7, a=0, b=0)
SUITE = SuiteOptions(
    given=("--samples", "48", "-k", "vt"), checks_engine=False, seed_by_step=False, confidence=0.99, drop_points=2
)


def shape(found: list[Alert]) -> list[tuple[list[str], list[int], int | None]]:
    """Return the tasks, the failing steps and the end of every alert, in the order of their steps."""
    ordered = sorted(found, key=lambda alert: alert.first.step)
    return [
        (sorted(case[11:-4] for case in each.cases), [known.step for known in each.steps], each.closed_by)
        for each in ordered
    ]


def search(first: int, **changes: object) -> Search:
    found = Search(
        good="f1", bad="f6", cases=(case_id("a"),), line="found", first=first, last=first,
        last_good=first - 1, probability=0.9995, checkpoints=2,
    )  # fmt: skip
    return structs.replace(found, **changes)


@pytest.mark.parametrize(("code", "was_killed"), [(-9, True), (137, True), (1, False), (4, False)])
def test_a_search_that_was_killed_is_known_from_its_exit_code(code: int, was_killed: bool, tmp_path: Path) -> None:
    class Processes:
        def execute(self, command: Sequence[str], *, report: Path, environment: object) -> Ended:
            log_of(report).write_text("nothing shown")
            return Ended(exit_code=code)

    processes: Any = Processes()
    (alert,) = find_alerts([*SOUND, FIRST])
    made = run_search(alert, Gap(good=SOUND[-1], bad=FIRST, between=()), [], tmp_path, processes, ())
    assert (made.was_killed, made.line) == (was_killed, "the search was killed" if was_killed else "nothing shown")


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        pytest.param([FIRST, measured(6, a=-30, b=0)], [(["a"], [5, 6], None)], id="one alert"),
        pytest.param([FIRST, SECOND, REPAIRED], [(["a"], [5, 6], 7)], id="a repaired step closes it"),
        pytest.param(
            [FIRST, measured(6, a=-20, b=-40)],
            [(["a"], [5, 6], None), (["b"], [6], None)],
            id="a further loss in another case",
        ),
        pytest.param(
            [measured(5, a=-20, b=-2), measured(6, a=0, b=-20)],
            [(["a"], [5], 6), (["b"], [6], None)],
            id="another case fails where the first one passes",
        ),
        pytest.param(
            [FIRST, measured(6, a=0, b=0), measured(7, a=-20, b=0)],
            [(["a"], [5], 6), (["a"], [7], None)],
            id="a second loss of a repaired case",
        ),
        pytest.param(
            [FIRST, measured(6, "undecided", cases={"a": outcome(-9, "undecided")}, b=0)],
            [(["a"], [5], None)],
            id="an undecided step repairs nothing",
        ),
        pytest.param([FIRST, measured(6, b=0)], [(["a"], [5], None)], id="a step without the case neither"),
        pytest.param(
            [
                measured(5, cases={"a": outcome(-40), "b": outcome(-30, "undecided", pairs=4)}),
                measured(6, a=-40, b=-35),
            ],
            [(["a", "b"], [5, 6], None)],
            id="a case that may have lost as much belongs to the alert",
        ),
        pytest.param(
            [
                measured(5, cases={"a": outcome(-40, "lost"), "b": outcome(0, "undecided", pairs=2)}),
                measured(6, cases={"a": outcome(-40, "lost"), "b": outcome(-50, "lost", pairs=2)}),
            ],
            [(["a", "b"], [5, 6], None)],
            id="a case that is not shown alone is no news in a gate that fails anyway",
        ),
        pytest.param([deleted(FIRST), SECOND], [(["a"], [5, 6], None)], id="a deleted step counts while another fails"),
        pytest.param([rewritten(FIRST), SECOND], [(["a"], [6], None)], id="a rewritten step does not"),
        pytest.param([rewritten(FIRST)], [], id="nor alone"),
    ],
)
def test_steps_belong_to_the_alert_of_their_cases(
    later: list[WatchedCheckpoint], expected: list[tuple[list[str], list[int], int | None]]
) -> None:
    assert shape(find_alerts([*SOUND, *later])) == expected


def test_the_largest_loss_over_its_error_is_first_and_the_last_good_step_may_fail_for_another_case() -> None:
    worse = {"a": structs.replace(outcome(-22), error=8.0), "b": outcome(-18)}
    (found,) = find_alerts([*SOUND, measured(5, cases=worse)])
    assert list(found.cases) == [case_id("b"), case_id("a")]
    assert headline(found) == "b-4k and 1 other case lost up to 18.0 points at step 5"
    second, first = find_alerts([*SOUND, FIRST, measured(6, a=-20, b=-40)])
    assert [each.last_good and each.last_good.step for each in (first, second)] == [4, 5]


def test_checkpoints_that_cannot_be_measured_are_one_alert() -> None:
    broken = [measured(5, "error"), measured(6, "error"), measured(7, a=-20, b=0)]
    found = find_alerts([*SOUND, *broken])
    assert [(each.kind, len(each.steps), each.closed_by) for each in found] == [("loss", 1, None), ("error", 2, 7)]
    assert find_alerts([*SOUND, measured(5, "pass", a=0, b=0)]) == []


def test_the_order_of_measurement_changes_nothing() -> None:
    """All alerts follow from the steps alone; an earlier step that fails too becomes the first bad one."""
    steps = [*SOUND, *(measured(step, a=-20, b=0) for step in range(5, 10)), measured(10, a=0, b=0)]
    known: list[WatchedCheckpoint] = []
    for each in random.Random(0).sample(steps, len(steps)):
        known.append(each)
        failing = [one.step for one in known if one.verdict == "fail"]
        found = find_alerts(sorted(known, key=lambda one: one.step))
        assert [alert.first.step for alert in found] == ([min(failing)] if failing else [])
    assert shape(find_alerts(steps)) == [(["a"], [5, 6, 7, 8, 9], 10)]


def notify(history: History, known: list[WatchedCheckpoint]) -> list[Stage]:
    """Deliver what is due until nothing is, and return it."""
    stages: list[Stage] = []
    for alert in find_alerts(known, history.searches):
        while (stage := due_stage(alert, history.notified)) is not None:
            history.add(notified(alert, stage))
            stages.append(stage)
    return stages


def test_an_alert_is_notified_when_it_begins_and_when_its_step_is_found(tmp_path: Path) -> None:
    history, known = History(tmp_path), [SOUND[0], SECOND]
    assert notify(history, known) == ["begun"]
    history.add(search(4))
    assert notify(history, known) == ["found"]
    # An earlier step that fails too, and a later one, are no news, nor is a restart.
    again = History(tmp_path)
    assert notify(again, [SOUND[0], FIRST, SECOND, measured(7, a=-25, b=0)]) == []
    assert notify(again, [SOUND[0], SECOND, REPAIRED]) == []
    # A second loss of the same cases is another alert.
    assert notify(History(tmp_path), [SOUND[0], SECOND, REPAIRED, measured(8, a=-20, b=0)]) == ["begun"]


@pytest.mark.parametrize("known", [[FIRST, REPAIRED], [deleted(FIRST)]])
def test_what_is_closed_or_gone_before_it_was_notified_is_no_news(
    tmp_path: Path, known: list[WatchedCheckpoint]
) -> None:
    (alert,) = find_alerts([*SOUND, *known])
    assert alert.status == ("closed by step 7" if alert.closed_by else "gone")
    assert notify(History(tmp_path), [*SOUND, *known]) == []


def test_a_failed_checkpoint_with_another_number_is_not_notified_again(tmp_path: Path) -> None:
    history, moved = History(tmp_path), measured(8, a=-20, b=0, fingerprint="f5")
    assert notify(history, [*SOUND, FIRST]) == ["begun"]
    assert notify(history, [*SOUND, moved]) == []


def test_a_culprit_holds_until_measurements_contradict_it() -> None:
    before = [SOUND[0], SECOND]
    (alert,) = find_alerts(before, [search(4)])
    assert alert.culprit == search(4)
    assert find_alerts([*SOUND[:3], SECOND], [search(4)])[0].culprit is not None
    # Step 4 passes.
    assert find_alerts([*SOUND, SECOND], [search(4)])[0].culprit is None
    # A search on other cases, or of another checkpoint, is none of it.
    others = [search(4, cases=(case_id("b"),)), search(4, bad="f9")]
    assert find_alerts(before, others)[0].search is None


def test_an_alert_says_what_to_do_and_the_steps_that_a_search_has_found(tmp_path: Path) -> None:
    known = []
    for step, points in {1: 0.0, 3: 0.0, 6: -40.0}.items():
        place, anchor = tmp_path / f"step-{step}", f"{tmp_path}/step-1"
        known.append(structs.replace(measured(step, a=points), checkpoint=str(place), compared_with=anchor))
    for step in (1, 3, 4, 5, 6):
        (tmp_path / f"step-{step}").mkdir()
    text = AlertText(folder=tmp_path / "out", suite=SUITE, steps=StepReader())
    facts = dict(text.facts(find_alerts(known)[0]))
    folder = f"{tmp_path}/out/alerts/step-6-f6"
    assert facts == {
        "since": "step 6; the last good one measured is step 3",
        "case": "a-4k: -40.0 [-45.0, -35.0] against step-1 on 48 pairs",
        "first bad": f"{tmp_path}/step-6",
        "last good": f"{tmp_path}/step-3",
        "bisect": f"longctx bisect --good {tmp_path}/step-3 --bad {tmp_path}/step-6 --out {folder} "
        f"--case 'test_ruler[a-4k]' --samples 48 -k vt --checkpoints '{tmp_path}/*[0-9]*'",
        "cause": f"longctx diagnose {tmp_path}/step-3 {tmp_path}/step-6 --report /out/step-6.json "
        f"--case 'test_ruler[a-4k]' --out {folder}",
    }
    paths = {"last_path": f"{tmp_path}/step-5", "last_good_path": f"{tmp_path}/step-4"}
    (alert,) = find_alerts(known, [search(5, **paths)])
    facts = dict(text.facts(alert))
    assert facts["since"] == "step 5 (99.9 % sure), by 2 more measured steps; step 4 is good"
    assert (facts["first bad"], facts["last good"]) == (paths["last_path"], paths["last_good_path"])
    assert facts["search"] == f"{folder}/bisect.html"
    assert "bisect" not in facts
    assert f"longctx diagnose {tmp_path}/step-4 {tmp_path}/step-5 " in facts["cause"]
    # A neighbour is no longer there: the next one on disk is compared.
    (tmp_path / "step-4").rmdir()
    assert f"longctx diagnose {tmp_path}/step-3 {tmp_path}/step-5 " in dict(text.facts(alert))["cause"]


def test_a_long_command_is_broken_into_lines_that_a_shell_joins() -> None:
    words = ["longctx", "run", "-k", "a or 'b'", *(f"--option-{number}=value" for number in range(20))]
    lines = broken(shlex.join(words), is_command=True)
    assert len(lines) > 3
    assert max(map(len, lines)) <= 102
    printed = ["sh", "-c", "printf '%s\\n' " + "\n".join(lines)]
    assert subprocess.run(printed, capture_output=True, text=True, check=True).stdout.splitlines() == words
    assert max(map(len, broken("why " * 100))) <= 100
