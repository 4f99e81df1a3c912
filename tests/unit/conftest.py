"""A server of scripted responses, for tests of what sends requests."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.helpers.servers import ChatServer


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove API keys and proxies from the environment, and shorten pauses before retries."""
    # The openai client takes a second to import.
    from tests.helpers.servers import forget_keys

    forget_keys(monkeypatch)


@pytest.fixture
def server(no_keys: None) -> "Iterator[ChatServer]":
    """Serve the last word of a prompt, unless a test changes the answers."""
    from tests.helpers.clients import echo
    from tests.helpers.servers import ChatServer

    with ChatServer().serving() as serving:
        serving.answer = echo
        yield serving
