"""How well requests at once keep a server busy: whole runs against a server whose work is known.

    python -m benchmarks.server_busy [--slots 64] [--seconds 10] [--spread 0.5] [--rounds 24] [--json FILE]

The server takes a known time for each request (by its prompt up to --spread less or more, as prompts do) and works on
so many at once as it has slots; more wait. Its busy time is the sum of that work over its slots: less is
impossible. The run's time is from the first sample's arrival to the last answer, by the server's clock; cpu is what the
run's processes computed for a request, start-up included. One worker that asks for as much as there are slots is
compared with four that share them. What shares its beginning with another prompt is asked after it, so a run has up to
one round more than its requests would need. Exits with 1 where a run takes more than 1.2 times the server's busy time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

REPOSITORY = Path(__file__).parents[1]
MOST_RATIO = 1.2
# What a run asks a server before its first sample: short texts, answered at once and not counted.
PROBE_TOKENS = 300
CASES = ("single_1", "single_2", "multikey_1", "multivalue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a server did: its requests, their seconds of work, and the wall time from the first to the last."""

    requests: int
    seconds: float
    wall_seconds: float
    most_at_once: int

    def ratio(self, slots: int) -> float:
        """Wall time over the least that so many slots could take."""
        return self.wall_seconds * slots / self.seconds


class Clock:
    """Counts requests in and out."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first = self.last = 0.0
        self.requests = self.at_once = self.most_at_once = 0
        self.seconds = 0.0

    def begin(self) -> None:
        with self.lock:
            self.first = self.first or time.monotonic()
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)

    def end(self, seconds: float) -> None:
        with self.lock:
            self.last = time.monotonic()
            self.at_once -= 1
            self.requests += 1
            self.seconds += seconds

    def work(self) -> Work:
        with self.lock:
            return Work(
                requests=self.requests,
                seconds=self.seconds,
                wall_seconds=self.last - self.first,
                most_at_once=self.most_at_once,
            )


def handler(checkpoint: str, slots: int, seconds: float, spread: float) -> type[BaseHTTPRequestHandler]:
    tokenizer = Tokenizer.from_file(str(Path(checkpoint, "tokenizer.json")))
    free, clock = threading.Semaphore(slots), Clock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = {"data": [{"id": checkpoint, "root": checkpoint}]}
            self._say(asdict(clock.work()) if self.path == "/work" else listed)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = asked["prompt"]
            read = len(tokenizer.encode(prompt).ids) if isinstance(prompt, str) else len(prompt)
            if read > PROBE_TOKENS:
                takes = seconds * (1 + spread * random.Random(str(prompt)).uniform(-1, 1))
                clock.begin()
                with free:
                    time.sleep(takes)
                clock.end(takes)
            choices = [{"text": " seven", "finish_reason": "stop"}]
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


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


def measured(asked: argparse.Namespace, workers: int) -> tuple[Work, float]:
    """One run in full with a server and a journal of its own, and its CPU seconds; RuntimeError where it asks less."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    samples = -(-asked.slots * asked.rounds // len(CASES))
    with tempfile.TemporaryDirectory(prefix="server-busy-") as folder:
        made = [sys.executable, "-m", "fixtures.calibration", "--window=512", f"{folder}/model"]
        subprocess.run(made, cwd=REPOSITORY, check=True, capture_output=True)
        words = [str(each) for each in (asked.slots, asked.seconds, asked.spread)]
        served = [sys.executable, __file__, "--serve", f"{folder}/model", *words]
        with subprocess.Popen(served, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = f"http://127.0.0.1:{int(server.stdout.readline())}"
                command = [
                    sys.executable, "-m", "pytest", f"--model={folder}/model", f"--base-url={url}/v1", "--suite=ruler",
                    f"--lengths={asked.length}", "--full", f"--samples={samples}", "-k", " or ".join(CASES),
                    "-n", str(workers), f"--batch-size={-(-asked.slots // workers)}", "-q",
                    f"--journal={folder}/journal",
                ]  # fmt: skip
                before = _children_seconds()
                ended = subprocess.run(
                    command, cwd=REPOSITORY, env=inherited | {"NO_PROXY": "127.0.0.1"}, capture_output=True, check=False
                )
                cpu = _children_seconds() - before
                with urllib.request.urlopen(f"{url}/work") as answer:
                    work = Work(**json.loads(answer.read()))
            finally:
                server.kill()
        if work.requests != samples * len(CASES):
            raise RuntimeError(ended.stdout.decode(errors="replace")[-2000:] + ended.stderr.decode(errors="replace"))
        return work, cpu


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="of work for a request")
    parser.add_argument("--spread", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=24, help="requests for each slot")
    parser.add_argument("--length", default="1k")
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print(f"{'workers':>7} {'requests':>9} {'at once':>8} {'busy':>9} {'wall':>9} {'ratio':>6} {'cpu':>9}")
    rows = []
    for workers in map(int, asked.workers.split(",")):
        work, cpu = measured(asked, workers)
        rows.append({"workers": workers, "ratio": work.ratio(asked.slots), "cpu_seconds": cpu} | asdict(work))
        print(
            f"{workers:>7} {work.requests:>9} {work.most_at_once:>8} {work.seconds / asked.slots:>7.1f} s "
            f"{work.wall_seconds:>7.1f} s {work.ratio(asked.slots):>6.2f} {1000 * cpu / work.requests:>6.0f} ms",
            flush=True,
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(float(row["ratio"]) <= MOST_RATIO for row in rows) else 1


def serve(checkpoint: str, slots: str, seconds: str, spread: str) -> None:
    with Server(("127.0.0.1", 0), handler(checkpoint, int(slots), float(seconds), float(spread))) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        sys.exit(main())
