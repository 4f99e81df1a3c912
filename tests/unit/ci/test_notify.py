"""Notifications of a watch: no reply, address, command or fact ends it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from longctx.ci.watch import notify
from longctx.ci.watch.alerts import Alert
from longctx.ci.watch.history import WatchedCheckpoint
from longctx.ci.watch.notify import (
    Notice,
    Notifier,
    _run_command,
    check_webhook,
    facts,
    message,
    post,
    read_on_failure,
)
from tests.helpers.processes import all_gone

FAILURE = WatchedCheckpoint(
    step=7, checkpoint="/run/step-7", fingerprint="f", verdict="fail", exit_code=1, failed=("mean at 8k: 70.1 is not",),
    report="/out/r.json", gpu_seconds=1.0, ended="now",
)  # fmt: skip
ALERT = Alert(kind="gates", cases={}, steps=(FAILURE,))
NOTICE = Notice(stage="begun", alert=ALERT, measurement=FAILURE)
ODD_TEXT = "\x00\ud800\x1b[31m\u202e<b>&\n" + "x" * 300_000


@contextmanager
def raw_server(reply: bytes, *, endless: bool = False, last: bytes = b"}") -> Iterator[str]:
    """Reply to every connection with the same bytes once a request ends with `last`.

    An endless server repeats the last byte until the client leaves.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        while not connection.recv(65_536).endswith(last):
                            pass
                        connection.sendall(reply)
                        while endless:
                            time.sleep(0.01)
                            connection.sendall(reply[-1:])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/secret-token"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (b"", "no valid reply"),
        (b"SSH-2.0-OpenSSH_9\r\n", "no valid reply"),
        (b"HTTP/1.1 abc /secret-token\r\n\r\n", "no valid reply"),
        (OK + b"X" * 200_000 + b"\r\n\r\n", "no valid reply"),
        (OK + b"Content-Length: -1\r\n\r\n", "no valid reply"),
        (b"HTTP/1.1 302 x\r\nLocation: file:///etc/passwd\r\n\r\n", "the server answered 302; redirects are not"),
        (b"HTTP/1.1 307 x\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n", "the server answered 307"),
        (b"HTTP/1.1 500 \x1b[31m/secret-token\r\n\r\n", "the server answered 500"),
        # A server that accepts the failure; its content is of no interest.
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nsecret", None),
        (OK + b"Content-Length: 99999999999\r\n\r\nx", None),
        (b"HTTP/1.1 204 No Content\r\n\r\n", None),
    ],
)
def test_any_reply_is_accepted_or_one_line(reply: bytes, problem: str | None) -> None:
    with raw_server(reply) as url:
        ended = post(url, {"text": "x"})
    assert ended == problem or (ended is not None and problem is not None and ended.startswith(problem))
    assert "secret" not in str(ended)


@pytest.mark.parametrize("reply", [b"H", b"HTTP/1.1 200 OK\r\nX: y"])
def test_a_reply_that_never_ends_has_a_total_deadline(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "TIMEOUT_SECONDS", 0.3)
    started = time.monotonic()
    with raw_server(reply, endless=True) as url:
        assert post(url, {}) == "no reply within 0.3 s"
    assert time.monotonic() - started < 60


def test_an_unreachable_server_is_one_line() -> None:
    with raw_server(b"no TLS at all", last=b"") as url:
        assert str(post(url.replace("http:", "https:"), {})).startswith("no connection (")
    assert str(post("http://127.0.0.1:1/secret", {})).startswith("no connection (")
    assert str(post("http://no-such-host.invalid/secret", {})).startswith("no connection (")


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "http://", "https:///x", "http:x", "file:///etc/passwd", "ftp://x", "http://x:abc", "http://x:0",
        "http://x:99999", "http://[::1", "http://a b/", "http://a..b/", "http://.../", f"http://{'a' * 64}.com/",
        "http://\x1b[31m/", "http://x/\n", "http://x/\udc80", "http://\udc80/", "http://xn--\u00e4/",
        "http://" + "a" * 100_000, " http://x",
    ],
)  # fmt: skip
def test_a_mistyped_address_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(ValueError, match=r"--webhook: not an address") as error:
        check_webhook(url)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080/x", "https://hooks.example/T0/B0?x=y", "http://[::1]:80/", "http://b\u00fccher.example"],
)
def test_a_correct_address_is_taken(url: str) -> None:
    check_webhook(url)


@pytest.mark.parametrize(("name", "value"), [("HTTPS_PROXY", "foo://x"), ("SSL_CERT_FILE", "/no/such/file")])
def test_unusable_proxies_and_certificates_are_refused_at_the_start(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="proxy or certificate settings"):
        check_webhook("https://hooks.example/x")
    assert post("https://127.0.0.1:1/x", {}) is not None


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("echo 'open", "is no shell command"),
        ("if true", "is no shell command"),
        ("no-such-program --now", "no program 'no-such-program'"),
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


def test_odd_facts_reach_the_command_in_a_form_that_can_be_passed(tmp_path: Path) -> None:
    odd = structs.replace(FAILURE, failed=(ODD_TEXT,) * 50, checkpoint=f"/run/{ODD_TEXT}", report="/out/\udcff r.json")
    target = tmp_path / "facts"
    command = f'printf "%s|%s|%s" "$LONGCTX_CHECKPOINT" "$LONGCTX_REPORT" "$LONGCTX_FAILED" > {target}'
    assert _run_command(command, facts(replace(NOTICE, measurement=odd))) is None
    checkpoint, report, failed = target.read_bytes().split(b"|")
    assert len(checkpoint) < 9_000
    assert report == b"/out/\xff r.json"
    assert not {0, 0x1B} & set(failed)
    assert len(failed) < 100_000
    assert failed.endswith(b"and 34 more")


def test_a_message_is_plain_text_for_chat_servers() -> None:
    odd = structs.replace(FAILURE, failed=("<!channel> \x1b[31m\u202e", ODD_TEXT))
    sent = message(replace(NOTICE, measurement=odd))
    assert sent["text"].startswith("gates fail, from step 7 on: fail: &lt;!channel&gt; \u241b[31m")
    json.dumps(sent).encode("ascii").decode().encode("utf-8")
    assert len(json.dumps(sent)) < 10_000
    assert (sent["word"], sent["alert"], sent["event"], sent["culprit"]) == ("fail", "step-7-f-gates", "begun", None)


def test_a_closed_alert_is_posted_and_runs_no_command_for_failures(tmp_path: Path) -> None:
    closed = replace(NOTICE, stage="closed", alert=replace(ALERT, closed_by=9))
    sent = message(closed)
    assert sent["text"] == "closed by step 9: gates fail, from step 7 on"
    assert (sent["step"], sent["event"], sent["closed_by"]) == (7, "closed", 9)
    assert Notifier(command=f"touch {tmp_path}/ran").deliver(closed) is None
    assert not (tmp_path / "ran").exists()


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "TIMEOUT_SECONDS", 0.3)
    child = tmp_path / "child"
    command = f"(sh -c 'echo $$ > {child}.new; mv {child}.new {child}; exec sleep 600') | cat"
    assert str(_run_command(command, {})).endswith("took more than 0.3 s")
    # On a busy machine, the command may have been killed before it started the child.
    assert not child.exists() or all_gone([int(child.read_text())])


def test_a_recipient_gets_an_alert_once_and_a_failed_delivery_is_retried_with_pauses(tmp_path: Path) -> None:
    now = [0.0]
    log = tmp_path / "log"
    with raw_server(b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n") as url:
        deliveries = Notifier(command=f"echo again >> {log}", webhook=url, clock=lambda: now[0])
        attempts = []
        for _ in range(13):
            if deliveries.is_due(ALERT, "begun"):
                attempts.append(now[0])
                assert deliveries.deliver(NOTICE) == "--webhook: the server answered 503"
            now[0] += 10
    assert (log.read_text(), attempts) == ("again\n", [0, 60, 120])
