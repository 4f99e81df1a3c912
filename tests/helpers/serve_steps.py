"""Serve a checkpoint as a step of a training run: `python -m tests.helpers.serve_steps EDGE MODEL PORT`.

The server knows the answers of needle tasks and computes nothing. From step EDGE on it misses three of ten keys.
"""

from __future__ import annotations

import re
import signal
import sys
import zlib
from pathlib import Path

from tests.helpers.servers import ChatServer, Request, Response, needles_within

EVERYTHING = 1_000_000
MISSED_PERCENT = 30
DELAY_SECONDS = 0.4


def main() -> None:
    """Serve until a signal ends the process."""
    edge, model, port = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    is_bad = int(model.name.rpartition("-")[2]) >= edge
    everything = needles_within(EVERYTHING, model, delay_seconds=DELAY_SECONDS)
    nothing = needles_within(1, model, delay_seconds=DELAY_SECONDS)

    def answer(request: Request) -> Response:
        right = everything(request)
        key = re.search(r"\d{7}", str(right.body))
        is_missed = key is not None and zlib.crc32(key[0].encode()) % 100 < MISSED_PERCENT
        return nothing(request) if is_bad and is_missed else right

    server = ChatServer(port)
    server.answer = answer
    with server.serving():
        signal.pause()


if __name__ == "__main__":
    main()
