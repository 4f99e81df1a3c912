"""Show that a gateway with a cache of replies, filled by another checkpoint, changes no verdict of watch or bisect.

    python -m benchmarks.stored_replies RUNS --out DIR [OPTIONS OF A RUN]

The checkpoints RUNS/step-* of a real model are served by `transformers serve` behind a gateway. First it passes all
requests on, and keeps the first reply to each prompt, so those of the first checkpoint, in a file. Then it answers by
the prompt's text, under new ids, from that file. A watch and a bisection are run both times, from the same command
lines. The table has the verdict of every checkpoint and the end of the bisection. Exits 1 if a run with the stored
replies has another verdict than the one without. Options of a run replace those in RUN.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from longctx.fixtures.engines.openai.endpoint import is_ready
from longctx.fixtures.engines.openai.server_process import free_port
from tests.helpers.servers import ChatServer, Request, Response

RUN = ("--suite", "ruler", "--lengths", "1k", "-k", "niah_single_2", "-n", "0")


def gateway(model: str, port: int, store: Path, *, replays: bool) -> None:
    """Serve a checkpoint on a port until the process is killed; keep its replies, or give those that are kept."""
    inner = free_port()
    command = ["serve", model, "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(inner)]
    server = subprocess.Popen([Path(sys.executable).with_name("transformers"), *command])
    url = f"http://127.0.0.1:{inner}/v1"
    while not is_ready(url):
        if server.poll() is not None:
            raise SystemExit("transformers serve ended")
        time.sleep(0.5)
    lock = threading.Lock()
    kept = json.loads(store.read_text()) if store.is_file() else {}

    def answer(request: Request) -> Response:
        key = json.dumps(request.body.get("prompt", request.body.get("messages")))
        headers = {"Content-Type": "application/json"}
        if key in kept and replays:
            content = kept[key]
        else:
            sent = urllib.request.Request(f"{url}/completions", json.dumps(request.body).encode(), headers)
            try:
                with urllib.request.urlopen(sent, timeout=600) as reply:
                    content = json.load(reply)
            except urllib.error.HTTPError as error:
                return Response(status=error.code, body=error.read(), headers=headers)
            with lock:
                kept.setdefault(key, content)
                store.write_text(json.dumps(kept))
        # One model name for all checkpoints, as gateways have it.
        content |= {"id": uuid4().hex, "created": int(time.time()), "model": request.body["model"]}
        return Response(body=json.dumps(content).encode(), headers=headers)

    outer = ChatServer(port)
    outer.answer = answer
    outer.models = Response(
        body=json.dumps({"data": [{"id": model}]}).encode(), headers={"Content-Type": "application/json"}
    )
    with outer.serving():
        server.wait()


def measure(folder: Path, runs: Path, name: str, serve: str, run: Sequence[str]) -> dict[str, str]:
    """Run a watch and a bisection with a --serve command, and return the verdicts by checkpoint and of the search."""
    command = [sys.executable, "-m", "longctx"]
    out = folder / name
    steps = sorted(runs.glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    journal = ["--journal", str(out / "journal")]
    watch = ["watch", str(runs), "--once", "--out", str(out / "watch"), "--serve", serve, *run, *journal]
    subprocess.run([*command, *watch], check=False)
    history = out / "watch" / "history.jsonl"
    lines = [json.loads(line) for line in history.read_text().splitlines()] if history.is_file() else []
    # The last line of a step counts.
    said = {f"step {line['step']}": str(line["word"]) for line in lines if "word" in line}
    ends = ["--good", str(steps[0]), "--bad", str(steps[-1]), "--checkpoints", str(runs / "step-*")]
    bisect = ["bisect", *ends, "--out", str(out / "bisect"), "--serve", serve, *run, *journal]
    ended = subprocess.run([*command, *bisect], check=False)
    result = out / "bisect" / "bisect.json"
    found = json.loads(result.read_text()) if result.is_file() else {}
    return said | {"bisect": f"exit code {ended.returncode}, first bad step {found.get('first_bad')}"}


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("out/stored-replies"))
    parser.add_argument("--gateway", nargs=4, metavar=("MODEL", "PORT", "KIND", "STORE"), help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.gateway:
        model, port, kind, store = given.gateway
        gateway(model, int(port), Path(store), replays=kind == "with")
        return 0
    folder = given.out.absolute()
    if given.runs is None:
        parser.error("RUNS is missing: the directory with the checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"NO_PROXY": "127.0.0.1", "HF_HUB_OFFLINE": "1"}
    rounds = {}
    for name in ("without", "with"):
        words = [sys.executable, "-m", "benchmarks.stored_replies", "--gateway", "MODEL", "PORT", name]
        serve = shlex.join([*words, str(folder / "store.json")])
        rounds[name] = measure(
            folder,
            given.runs.absolute(),
            name,
            serve.replace("MODEL", "{model}").replace("PORT", "{port}"),
            rest or RUN,
        )
        for what, verdict in rounds[name].items():
            sys.stdout.write(f"{name:8} {what:10} {verdict}\n")
        sys.stdout.flush()
    kept = {what: verdict for what, verdict in rounds["with"].items() if verdict in ("pass", "fail")}
    return int(any(rounds["without"].get(what) != verdict for what, verdict in kept.items()))


if __name__ == "__main__":
    raise SystemExit(main())
