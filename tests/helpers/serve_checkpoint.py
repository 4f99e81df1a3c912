"""A server that counts with a checkpoint's tokenizer and answers `seven`: `fake_server.py CHECKPOINT PORT [DELAY]`.

With ANSWERS in its environment it crashes after so many, and with MEMORY=FILE it needs a machine of its own: it fails
while another one runs, and adds its checkpoint to the file. It has a child process that ignores SIGTERM, as workers of
real servers may.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

MOST_ANSWERS = int(os.environ.get("ANSWERS", -1))
ANSWERED = itertools.count()
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def handler(checkpoint: str) -> type[BaseHTTPRequestHandler]:
    tokenizer = Tokenizer.from_file(str(Path(checkpoint, "tokenizer.json")))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"data": [{"id": checkpoint, "root": checkpoint}]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = request["prompt"]
            read = len(tokenizer.encode(prompt).ids) if isinstance(prompt, str) else len(prompt)
            print("request", read, self.headers["Authorization"], flush=True)
            choices = [{"text": " seven", "finish_reason": "stop"}]
            if next(ANSWERED) == MOST_ANSWERS:
                os._exit(1)
            self._say({"choices": choices, "usage": {"prompt_tokens": read, "completion_tokens": 1}})

        def _say(self, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class calls it so
            pass

    return Handler


if __name__ == "__main__":
    if "MEMORY" in os.environ:
        memory = open(os.environ["MEMORY"], "a")  # noqa: SIM115  # held until the process ends
        fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(sys.argv[1], file=memory, flush=True)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    print("pid", child.pid, flush=True)
    time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), handler(sys.argv[1])).serve_forever()
