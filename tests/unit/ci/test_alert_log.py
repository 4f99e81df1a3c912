"""Alerts are what measurements and users say, whatever moment a kill falls on."""

from __future__ import annotations

import io
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.ci.alerts import __main__ as alerts_command
from longctx.ci.alerts.log import Alert, AlertLog, Event, Noted, Notified, Opened, Search, Searched, Status
from longctx.ci.alerts.reconcile import missing_events
from longctx.ci.watch.history import WatchedCheckpoint
from tests.helpers.watched import deleted, measured, rewritten

SOUND = [measured(step, a=0, b=0) for step in (1, 2, 3)]
FIRST, SECOND, REPAIRED = measured(4, a=-20, b=0), measured(5, a=-20, b=0), measured(6, a=0, b=0)


def update(log: AlertLog, known: Sequence[WatchedCheckpoint]) -> list[Alert]:
    """Bring the alerts in line with the measurements, and check that nothing is missing afterwards."""
    alerts = log.update(lambda alerts: missing_events(alerts, known, lambda step: ("--samples", "48")))
    assert missing_events(alerts, known, lambda _: ()) == []
    assert log.read() == alerts
    return [*alerts.values()]


def note(log: AlertLog, status: Status, *, alert: int = 1) -> None:
    log.update(lambda _: [Noted(alert=alert, status=status, owner="mira")])


def test_an_alert_is_opened_extended_and_fixed_once(tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    assert update(log, SOUND) == []
    for known in ([FIRST], [FIRST], [FIRST, SECOND], [FIRST, SECOND, REPAIRED], [FIRST, SECOND, REPAIRED]):
        (alert,) = update(log, [*SOUND, *known])
    assert (alert.status, alert.fixed_by, alert.options) == ("fixed", 6, ("--samples", "48"))
    assert [type(event).__name__ for event in log.events()] == ["Opened", "Extended", "Fixed"]


def test_an_earlier_step_that_fails_too_moves_the_first_bad_step(tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    (alert,) = update(log, [*SOUND, SECOND])
    assert (alert.episode.first.step, alert.episode.last_good and alert.episode.last_good.step) == (5, 3)
    (alert,) = update(log, [*SOUND, FIRST, SECOND])
    assert (alert.id, alert.episode.first.step) == (1, 4)


def test_alerts_that_turn_out_to_be_one_keep_the_earlier_id(tmp_path: Path) -> None:
    """Measure a step between two losses as passed, and its rewritten checkpoint as failed."""
    log = AlertLog(folder=tmp_path)
    between, after = measured(5, a=0, b=0, fingerprint="old"), measured(6, a=-20, b=0)
    assert [alert.status for alert in update(log, [*SOUND, FIRST, between, after])] == ["fixed", "new"]
    first, second = update(log, [*SOUND, FIRST, SECOND, after])
    assert (first.status, len(first.episode.steps)) == ("new", 3)
    assert (second.status, second.reason) == ("invalid", "the same as alert 1")


@pytest.mark.parametrize(
    ("lost", "reason"), [([deleted(FIRST)], "gone"), ([], "gone"), ([rewritten(FIRST)], "rewritten")]
)
def test_an_alert_whose_checkpoint_is_not_there_any_more_is_invalid(
    tmp_path: Path, lost: list[WatchedCheckpoint], reason: str
) -> None:
    log = AlertLog(folder=tmp_path)
    update(log, [*SOUND, FIRST])
    (alert,) = update(log, [*SOUND, *lost])
    assert (alert.status, alert.reason, alert.is_open) == ("invalid", reason, False)
    # A rewritten checkpoint that passes changes nothing any more.
    assert update(log, [*SOUND, measured(4, a=0, b=0, fingerprint="new")])[0].status == "invalid"


def test_a_later_step_that_fails_reopens_an_alert_whose_checkpoint_was_rotated_away(tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    for known in ([FIRST], [deleted(FIRST)]):
        (alert,) = update(log, [*SOUND, *known])
    log.update(lambda _: [Notified(alert=1)])
    (alert,) = update(log, [*SOUND, deleted(FIRST), SECOND])
    assert (alert.status, alert.is_notified, len(alert.episode.steps)) == ("new", True, 2)


@pytest.mark.parametrize("is_seen_between", [False, True])
def test_a_failed_checkpoint_with_another_number_is_the_same_case(is_seen_between: bool, tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    in_its_place, moved = measured(4, a=0, b=0, fingerprint="f5"), measured(7, a=-20, b=0, fingerprint="f4")
    update(log, [*SOUND, FIRST])
    if is_seen_between:
        assert update(log, [*SOUND, in_its_place])[0].status == "invalid"
    (alert,) = update(log, [*SOUND, in_its_place, moved])
    assert (alert.status, alert.episode.first.step) == ("new", 7)
    assert [type(event) for event in log.events()].count(Opened) == 1


def test_a_retried_error_ends_its_alert(tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    (alert,) = update(log, [*SOUND, measured(4, "error")])
    assert alert.episode.kind == "error"
    (alert,) = update(log, [*SOUND, measured(4, a=0, b=0)])
    assert (alert.status, alert.fixed_by) == ("fixed", 4)


@pytest.mark.parametrize(
    ("status", "after", "is_notified"),
    [("acknowledged", "acknowledged", True), ("invalid", "invalid", True), ("fixed", "new", False),
     ("infra", "new", False)],
)  # fmt: skip
def test_what_a_user_said_decides_what_a_later_failing_step_does(
    tmp_path: Path, status: Status, after: Status, is_notified: bool
) -> None:
    log = AlertLog(folder=tmp_path)
    update(log, [*SOUND, FIRST])
    log.update(lambda _: [Notified(alert=1)])
    note(log, status)
    (alert,) = update(log, [*SOUND, FIRST])
    assert (alert.status, alert.owner, alert.is_notified) == (status, "mira", True)
    (alert,) = update(log, [*SOUND, FIRST, SECOND])
    assert (alert.status, alert.is_notified) == (after, is_notified)


def test_what_a_user_said_outlasts_the_repair(tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    update(log, [*SOUND, FIRST])
    note(log, "invalid")
    (alert,) = update(log, [*SOUND, FIRST, REPAIRED])
    assert (alert.status, alert.closed_by_user) == ("invalid", True)
    note(log, "new")
    (alert,) = update(log, [*SOUND, FIRST, REPAIRED])
    assert (alert.status, alert.fixed_by) == ("fixed", 6)


def test_a_culprit_holds_until_measurements_contradict_it(tmp_path: Path) -> None:
    log = AlertLog(folder=tmp_path)
    (alert,) = update(log, [*SOUND[:1], SECOND])
    good, bad = alert.episode.last_good, alert.episode.first
    assert good is not None
    found = Search(
        good=good, bad=bad, exit_code=0, line="first bad step 4", first=4, last=4, last_good=3, probability=0.99
    )
    log.update(lambda _: [Searched(alert=1, search=found)])
    assert update(log, [*SOUND[:1], SECOND])[0].culprit == found
    assert update(log, [*SOUND, SECOND])[0].culprit == found
    # Step 4 passes.
    assert update(log, [*SOUND, measured(4, a=0, b=0), SECOND])[0].culprit is None


HISTORY = [*SOUND, FIRST, SECOND, REPAIRED, measured(7, a=0, b=-30), measured(8, a=-20, b=-30), measured(9, "error")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[Alert]:
    """Return the alerts of a watch that was never killed."""
    log = AlertLog(folder=tmp_path_factory.mktemp("undisturbed"))
    for count in range(len(HISTORY) + 1):
        alerts = update(log, HISTORY[:count])
    return timeless(alerts)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, len(HISTORY)), st.floats(0, 1))
def test_a_kill_at_any_byte_loses_and_doubles_nothing(undisturbed: list[Alert], count: int, share: float) -> None:
    """Cut what an update has appended anywhere, as a kill or a power cut does."""
    with tempfile.TemporaryDirectory() as name:
        log = AlertLog(folder=Path(name))
        update(log, HISTORY[: count - 1])
        before = log.path.stat().st_size
        update(log, HISTORY[:count])
        written = log.path.read_bytes()
        # What was synced before this update is on the disk.
        log.path.write_bytes(written[: before + round(share * (len(written) - before))])
        assert timeless(update(log, HISTORY)) == undisturbed
        opened = Counter(event.alert for event in log.events() if isinstance(event, Opened))
        assert opened == {1: 1, 2: 1, 3: 1, 4: 1}


def test_the_command_says_that_the_last_line_is_torn_until_another_one_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = AlertLog(folder=tmp_path)
    update(log, [*SOUND, FIRST])
    note(log, "acknowledged")
    data = log.path.read_bytes()
    torn = "its last line is torn"
    log.path.write_bytes(data[:-9])
    assert (alerts_command.main([str(tmp_path)]), torn in capsys.readouterr().out) == (0, True)
    # A line that lacks only its end is complete.
    log.path.write_bytes(data[:-1])
    assert (alerts_command.main([str(tmp_path)]), torn in capsys.readouterr().out) == (0, False)
    log.path.write_bytes(data[:-9])
    note(log, "acknowledged")
    assert (alerts_command.main([str(tmp_path)]), torn in capsys.readouterr().out) == (0, False)
    assert log.read()[1].owner == "mira"


def timeless(alerts: Sequence[Alert]) -> list[Alert]:
    return [replace(alert, opened="", closed=None) for alert in alerts]


def test_processes_that_write_at_a_time_lose_and_double_nothing(tmp_path: Path) -> None:
    """Let two processes bring the alerts in line while two others add notes."""
    log = AlertLog(folder=tmp_path)
    update(log, [*SOUND, FIRST])
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_reconcile, args=(tmp_path,)) for _ in range(2)]
    processes += [context.Process(target=_add_notes, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    events: list[Event] = log.events()
    assert sum(isinstance(event, Noted) for event in events) == 2 * NOTES
    assert sorted(event.alert for event in events if isinstance(event, Opened)) == [1, 2, 3, 4]


# Kills, and bytes of an event that a kill lets through: fewer than the shortest one has.
NOTES, KILLS, MOST_BYTES = 20, 50, 90


def test_a_kill_within_the_write_of_an_event_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Let the kernel kill `longctx alerts` in the middle of its write, and give every other command again."""
    log, rng = AlertLog(folder=tmp_path), random.Random(0)
    update(log, [*SOUND, FIRST])
    context = multiprocessing.get_context("fork")
    for number in range(KILLS):
        before, let_through = log.path.read_bytes(), rng.randrange(MOST_BYTES)
        arguments = (tmp_path, f"note {number}", len(before) + let_through)
        process = context.Process(target=_acknowledge, args=arguments)
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGXFSZ
        written = log.path.read_bytes()
        assert (written[: len(before)], len(written) - len(before)) == (before, let_through)
        if number % 2:
            assert _acknowledge(tmp_path, f"note {number}") == 0
    notes = Counter(event.note for event in log.events() if isinstance(event, Noted))
    assert notes == {f"note {number}": 1 for number in range(1, KILLS, 2)}
    assert [alert.status for alert in log.read().values()] == ["acknowledged"]


def _acknowledge(folder: Path, note: str, most_bytes: int | None = None) -> int:
    """Run the command; with `most_bytes`, end as soon as a file would become larger."""
    if most_bytes is not None:
        # The file that pytest captures the output in has the same limit.
        sys.stdout = io.StringIO()
        # Python ignores the signal, which the kernel sends after it has written what is allowed.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return alerts_command.main([str(folder), "ack", "1", "--note", note])


def _reconcile(folder: Path) -> None:
    for count in range(len(HISTORY) + 1):
        AlertLog(folder=folder).update(partial(missing_events, measurements=HISTORY[:count], options_of=lambda _: ()))


def _add_notes(folder: Path) -> None:
    for number in range(NOTES):
        AlertLog(folder=folder).update(partial(_only, event=Noted(alert=1, note=str(number))))


def _only(_: object, event: Event) -> list[Event]:
    return [event]
