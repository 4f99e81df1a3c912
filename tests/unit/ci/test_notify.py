"""Notifications of a watch: no command or fact ends it."""

from pathlib import Path

import pytest
from msgspec import structs

from longctx.ci.watch import notify
from longctx.ci.watch.alerts import Alert
from longctx.ci.watch.history import WatchedCheckpoint
from longctx.ci.watch.notify import Notifier, _run_command, facts, read_on_failure
from tests.helpers.processes import all_gone

FAILURE = WatchedCheckpoint(
    step=7, checkpoint="/run/step-7", fingerprint="f", verdict="fail", failed=("mean at 8k: 70.1 is not",),
    report="/out/r.json", gpu_seconds=1.0, ended="now",
)  # fmt: skip
ALERT = Alert(kind="gates", cases={}, steps=[FAILURE])
ODD_TEXT = "\x00\ud800\x1b[31m\u202e<b>&\n" + "x" * 300_000


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("echo 'open", "is no shell command"),
        ("if true", "is no shell command"),
        ("no-such-program --now", "no program no-such-program"),
        ("./no/such/script.sh", "no program"),
        ("echo " + "x" * 3_000_000, "Argument list too long"),
        ("echo \udc80 'open", "is no shell command"),
    ],
)
def test_a_mistyped_command_is_refused_at_the_start(command: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as error:
        read_on_failure([command])
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "command", ["echo x", "cd / && ls", "X=1 unknown", '"$HOME/x"', "(true)", "if true; then :; fi"]
)
def test_a_command_that_the_shell_can_run_is_taken(command: str) -> None:
    assert read_on_failure([command]) == (False, command)


def test_a_search_can_be_asked_for_besides_one_command() -> None:
    assert read_on_failure(["bisect"]) == (True, None)
    assert read_on_failure(["echo x", "bisect"]) == (True, "echo x")
    with pytest.raises(ValueError, match="--on-failure: two commands, 'echo x' and 'echo y'; join them by ';'"):
        read_on_failure(["echo x", "echo y"])


def test_facts_that_no_program_can_get_do_not_end_the_watch(tmp_path: Path) -> None:
    target, command = tmp_path / "failed", f'printf "%s" "$LONGCTX_FAILED" > {tmp_path}/failed'
    odd = structs.replace(FAILURE, failed=(ODD_TEXT,) * 50)
    assert _run_command(command, facts(Alert(kind="gates", cases={}, steps=[odd]), "begun")) is None
    assert not {0, 0x1B} & set(target.read_bytes())
    unusable = structs.replace(FAILURE, checkpoint=f"/run/{ODD_TEXT}")
    assert "cannot start" in str(_run_command(command, facts(Alert(kind="gates", cases={}, steps=[unusable]), "begun")))


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "TIMEOUT_SECONDS", 0.3)
    child = tmp_path / "child"
    command = f"(sh -c 'echo $$ > {child}.new; mv {child}.new {child}; exec sleep 600') | cat"
    assert str(_run_command(command, {})).endswith("took more than 0.3 s")
    # On a busy machine, the command may have been killed before it started the child.
    assert not child.exists() or all_gone([int(child.read_text())])


def test_a_failed_delivery_is_retried_with_pauses(tmp_path: Path) -> None:
    now, attempts = [0.0], []
    deliveries = Notifier(command=f"test -e {tmp_path}/ready", clock=lambda: now[0])
    for _ in range(13):
        if deliveries.is_ready:
            attempts.append(now[0])
            assert str(deliveries.deliver(ALERT, "begun")).endswith(" ended with code 1")
        now[0] += 10
    assert attempts == [0, 60, 120]
    (tmp_path / "ready").touch()
    assert deliveries.deliver(ALERT, "begun") is None
