"""Measure how well concurrent requests keep a server busy, in whole runs against a server with a known speed.

    python -m benchmarks.server_busy [--slots 64] [--seconds 10] [--spread 0.5] [--rounds 24] [--json FILE]

The server works a known time on every request: --seconds, plus or minus up to --spread of it, depending on the prompt.
It works on as many requests as it has slots; the others wait. Its busy time is the sum of that work divided by the
slots, which no run can undercut. The wall time is from the first sample's arrival to the last answer, by the server's
clock; cpu is the CPU time of the run's processes for one request, start-up included. One worker that sends as many
requests as there are slots is compared with four that share the slots. A prompt that shares its beginning with another
one is sent after it, so a run needs up to one round more than its number of requests. Limit: exit code 1 if a run takes
more than 1.2 times the server's busy time.
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
MAX_RATIO = 1.2
# Before its first sample a run probes the server with short texts; they are answered at once and do not count.
PROBE_TOKENS = 300
CASES = ("single_1", "single_2", "multikey_1", "multivalue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of a server during a run; the field names are keys of the JSON file."""

    requests: int
    seconds: float
    """Sum of the time it worked on all requests."""
    wall_seconds: float
    """Time from the arrival of the first request to the last answer."""
    most_at_once: int
    """Most requests that were open at the same time."""

    def ratio(self, slots: int) -> float:
        """Return the wall time divided by the busy time of this many slots."""
        return self.wall_seconds * slots / self.seconds


class RequestLog:
    """Counts of open and finished requests; safe to use from several threads."""

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
    """Return the handler of a completions server that works on `slots` requests at a time."""
    tokenizer = Tokenizer.from_file(str(Path(checkpoint, "tokenizer.json")))
    free, log = threading.Semaphore(slots), RequestLog()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            models = {"data": [{"id": checkpoint, "root": checkpoint}]}
            self._send(asdict(log.work()) if self.path == "/work" else models)

        def do_POST(self) -> None:
            prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
            prompt_tokens = len(tokenizer.encode(prompt).ids) if isinstance(prompt, str) else len(prompt)
            if prompt_tokens > PROBE_TOKENS:
                work_seconds = seconds * (1 + spread * random.Random(str(prompt)).uniform(-1, 1))
                log.begin()
                with free:
                    time.sleep(work_seconds)
                log.end(work_seconds)
            choices = [{"text": " seven", "finish_reason": "stop"}]
            self._send({"choices": choices, "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 1}})

        def _send(self, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
            pass

    return Handler


class Server(ThreadingHTTPServer):
    """A server that accepts all requests of a run at the same time."""

    request_queue_size = 1024
    daemon_threads = True


def measure(args: argparse.Namespace, workers: int) -> tuple[Work, float]:
    """Run the suite in full with a server and a journal of its own; return the server's work and the run's CPU seconds.

    Raises RuntimeError if the run sent fewer requests than it has samples.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    samples = -(-args.slots * args.rounds // len(CASES))
    with tempfile.TemporaryDirectory(prefix="server-busy-") as folder:
        build_command = [sys.executable, "-m", "longctx.fixtures.calibration", "--window=512", f"{folder}/model"]
        subprocess.run(build_command, cwd=REPOSITORY, check=True, capture_output=True)
        settings = [str(value) for value in (args.slots, args.seconds, args.spread)]
        serve_command = [sys.executable, __file__, "--serve", f"{folder}/model", *settings]
        with subprocess.Popen(serve_command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = f"http://127.0.0.1:{int(server.stdout.readline())}"
                command = [
                    sys.executable, "-m", "pytest", f"--model={folder}/model", f"--base-url={url}/v1", "--suite=ruler",
                    f"--lengths={args.length}", "--full", f"--samples={samples}", "-k", " or ".join(CASES),
                    "-n", str(workers), f"--batch-size={-(-args.slots // workers)}", "-q",
                    f"--journal={folder}/journal",
                ]  # fmt: skip
                before = _children_cpu_seconds()
                ended = subprocess.run(
                    command, cwd=REPOSITORY, env=inherited | {"NO_PROXY": "127.0.0.1"}, capture_output=True, check=False
                )
                cpu = _children_cpu_seconds() - before
                with urllib.request.urlopen(f"{url}/work") as answer:
                    work = Work(**json.loads(answer.read()))
            finally:
                server.kill()
        # Long canaries come on top of the samples.
        if work.requests < samples * len(CASES):
            raise RuntimeError(ended.stdout.decode(errors="replace")[-2000:] + ended.stderr.decode(errors="replace"))
        return work, cpu


def _children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Print one line for every number of workers; return 1 if a run takes too long, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="work on one request (default: 10)")
    parser.add_argument("--spread", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=24, help="requests for a slot (default: 24)")
    parser.add_argument("--length", default="1k")
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"{'workers':>7} {'requests':>9} {'at once':>8} {'busy':>9} {'wall':>9} {'ratio':>6} {'cpu':>9}")
    rows = []
    for workers in map(int, args.workers.split(",")):
        work, cpu = measure(args, workers)
        rows.append({"workers": workers, "ratio": work.ratio(args.slots), "cpu_seconds": cpu} | asdict(work))
        print(
            f"{workers:>7} {work.requests:>9} {work.most_at_once:>8} {work.seconds / args.slots:>7.1f} s "
            f"{work.wall_seconds:>7.1f} s {work.ratio(args.slots):>6.2f} {1000 * cpu / work.requests:>6.0f} ms",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(float(row["ratio"]) <= MAX_RATIO for row in rows) else 1


def serve(checkpoint: str, slots: str, seconds: str, spread: str) -> None:
    """Serve until killed; print the port first."""
    with Server(("127.0.0.1", 0), handler(checkpoint, int(slots), float(seconds), float(spread))) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        sys.exit(main())
