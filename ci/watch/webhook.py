"""Post JSON to the address of --webhook, and check the address at the start.

No text of the server is repeated in a message, because it may repeat the address, which may hold a token.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

from longctx.fixtures.shown_text import one_line

# Of the whole request, however slowly the server replies.
TIMEOUT_SECONDS = 60.0
SHOWN_CHARACTERS = 120
HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def check_webhook(url: str) -> None:
    """Raise ValueError with one line if nothing can be posted to the address with the proxies of the environment."""
    import httpx2

    try:
        address = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ValueError(f"--webhook: not an address ({_reason(error)}); correct it") from None
    if address.scheme not in ("http", "https"):
        raise ValueError("--webhook: not an address; give one that begins with https:// or http://")
    host = address.raw_host.decode("ascii")
    labels = host.removesuffix(".").split(".")
    # An IPv6 address, or a name or number whose labels have valid lengths and characters.
    if ":" not in host and not all(HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError("--webhook: not an address; its host is no name or number")
    if address.port is not None and not 0 < address.port < 2**16:
        raise ValueError(f"--webhook: not an address; port {address.port} is not between 1 and 65535")
    try:
        httpx2.Client().close()
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise ValueError(
            f"--webhook: the environment's proxy or certificate settings cannot be used ({_reason(error)})"
        ) from None


def post(url: str, data: Mapping[str, Any]) -> str | None:
    """Post the data as JSON; return None if the server accepts it within a minute, else one line with the problem."""
    import httpx2

    try:
        status = asyncio.run(_status(url, json.dumps(data).encode("ascii")))
    except (TimeoutError, httpx2.TimeoutException):
        return f"no reply within {TIMEOUT_SECONDS:g} s"
    except httpx2.RemoteProtocolError:
        return "the reply is not valid HTTP"
    except (httpx2.ReadError, httpx2.WriteError):
        return "the server dropped the connection"
    except (httpx2.ConnectError, OSError) as error:
        return f"no connection ({_reason(error)})"
    except (httpx2.HTTPError, httpx2.InvalidURL, ImportError, RuntimeError, ValueError) as error:
        return type(error).__name__
    if 300 <= status < 400:
        return f"the server answered {status}; redirects are not followed, give the final address"
    return None if 200 <= status < 300 else f"the server answered {status}"


async def _status(url: str, body: bytes) -> int:
    """Return the status of the reply; its content is not read."""
    import httpx2

    headers = {"Content-Type": "application/json"}
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        httpx2.AsyncClient(timeout=TIMEOUT_SECONDS) as client,
        client.stream("POST", url, content=body, headers=headers) as response,
    ):
        return response.status_code


def _reason(error: Exception) -> str:
    return one_line(getattr(error, "strerror", None) or str(error) or type(error).__name__, SHOWN_CHARACTERS)
