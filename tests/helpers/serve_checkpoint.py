"""Serve a checkpoint that knows the answers of needle tasks: `python -m tests.helpers.serve_checkpoint MODEL PORT`.

It computes nothing, and prints the key of each request. With ANSWERS in its environment it crashes after so many, and
with MEMORY=FILE it needs a machine of its own: it fails while another one runs, and adds its checkpoint to the file. It
has a child process that ignores SIGTERM, as workers of real servers may.
"""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.servers import ChatServer, Request, Response, in_json, needles_within

EVERYTHING = 1_000_000
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def main(model: str, port: str) -> None:
    """Serve until a signal ends the process."""
    if "MEMORY" in os.environ:
        memory = open(os.environ["MEMORY"], "a")  # noqa: SIM115  # held until the process ends
        fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(model, file=memory, flush=True)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    print("pid", child.pid, flush=True)
    server, needles = ChatServer(int(port)), needles_within(EVERYTHING, Path(model))
    server.models = in_json({"data": [{"id": model, "root": model}]})

    def answer(request: Request) -> Response:
        print("request", request.authorization, flush=True)
        if len(server.requests) > int(os.environ.get("ANSWERS", EVERYTHING)):
            os._exit(1)
        return needles(request)

    server.answer = answer
    with server.serving():
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
