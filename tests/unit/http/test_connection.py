"""Connections: proxies and certificates of the environment, and what a failed one says."""

import ssl
import subprocess
from pathlib import Path

import pytest

from longctx.fixtures.http import connection
from longctx.fixtures.http.connection import Connection
from longctx.fixtures.http.retry import ONCE, RequestFailure
from tests.helpers.servers import ChatServer, in_json

# Nothing listens there.
REFUSING = "http://127.0.0.1:9"
VARIABLES = ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def listed(url: str) -> dict[str, object] | RequestFailure:
    return Connection(url, None, timeout_seconds=20).models(dict, ONCE)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HTTP_PROXY": REFUSING}, "through the proxy of HTTP_PROXY"),
        ({"ALL_PROXY": "socks5://127.0.0.1:9"}, "'socksio' package is not installed"),
        ({"HTTP_PROXY": "://nowhere"}, "check SSL_CERT_FILE, HTTPS_PROXY and ALL_PROXY"),
    ],
)
def test_a_proxy_that_fails_is_named(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    failure = listed("http://192.0.2.7/v1")
    assert isinstance(failure, RequestFailure)
    assert failure.kind == "connection"
    assert message in failure.message


@pytest.mark.parametrize("networks", ["127.0.0.1", "10.0.0.0/8, 127.0.0.0/8", "*", "example.org,127.0.0.1/32,no/net"])
def test_hosts_and_networks_of_no_proxy_are_asked_directly(networks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", networks)
    with ChatServer().serving() as server:
        server.models = in_json({"data": []})
        assert listed(server.url) == {"data": []}
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        assert isinstance(listed(server.url), RequestFailure)


def test_a_server_without_tls_is_told_from_its_address() -> None:
    with ChatServer().serving() as server:
        failure = listed(server.url.replace("http:", "https:"))
    assert isinstance(failure, RequestFailure)
    assert failure.message.endswith("a server without TLS has an address with http://")


def test_the_file_of_a_certificate_that_nobody_signed_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ChatServer()
    server.models = in_json({"data": []})
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    url = server.url.replace("http:", "https:")
    connection.ssl_context.cache_clear()
    with server.serving():
        failure = listed(url)
        assert isinstance(failure, RequestFailure)
        assert failure.message.endswith("name the file of its certificate in SSL_CERT_FILE")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        connection.ssl_context.cache_clear()
        assert listed(url) == {"data": []}
    connection.ssl_context.cache_clear()
