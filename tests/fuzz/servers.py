"""Run the suite against a hostile server: `python -m tests.fuzz.servers [--kind NAME] [--jobs N]`.

Every behaviour gets a run of its own through the command, with a short --budget and a key. Prints a line for each run
that does not end as it must, and a table by kind. Exits 1 if there was one.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import importlib
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tokenizers import Tokenizer

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.cli import CommandParser
from longctx.fixtures.engines.openai.server_process import free_port
from tests.fuzz.hostile_server import Behaviour, HostileServer
from tests.fuzz.programs import SMALL, suite
from tests.fuzz.sandbox import Outcome, run_forked
from tests.fuzz.server_behaviours import BEHAVIOURS, KEY, key_forms
from tests.helpers.servers import KEYS

# With the start of pytest and the writing of reports, a run takes less than the 20 s that the sandbox allows.
BUDGET_SECONDS = 12.0
MOST_TOKENS = 10**6
# A shorter piece of a key may be a coincidence.
PIECE = 8
ESCAPE = re.compile(r"\\+(?:u00|x)([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that has ended."""

    behaviour: Behaviour
    outcome: Outcome
    folder: Path
    requests: int
    """The requests that the behaviour replied to."""

    @property
    def results(self) -> int:
        """The number of results in the journal."""
        lines = [line for file in self.folder.glob("journal/*/*.jsonl") for line in file.read_text().splitlines()]
        return sum('"element"' in line for line in lines)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with this end, in a few words each."""
        if problem := self.outcome.problem:
            yield problem
        if not self.requests:
            yield "was not reached"
        if not self.behaviour.is_sound and self.results:
            yield "an error is scored"
        if self.behaviour.is_sound and not self.results:
            yield "an answer is not scored"
        if leak := leaked(self._text()):
            yield f"the key is in a file or an output ({leak})"
        yield from self._report_problems()

    def _text(self) -> str:
        files = [file for file in self.folder.rglob("*") if file.is_file()]
        return "\n".join(
            [self.outcome.output, self.outcome.errors, *(file.read_text("utf-8", "replace") for file in files)]
        )

    def _report_problems(self) -> Iterator[str]:
        file = self.folder / "report.json"
        if not file.is_file():
            return
        report = json.loads(file.read_text())
        tokens = [count for count in report["run"]["tokens"].values() if count is not None]
        if not all(type(count) is int and 0 <= count < MOST_TOKENS for count in tokens):
            yield f"counts {tokens} in the report"
        for case in report["cases"]:
            if case["error"] is not None and ("\n" in case["error"] or case["score"] is not None):
                yield "a case with an error has a score, or more than one line"


def leaked(text: str) -> str:
    """Return the form in which a text contains the key or a part of it; empty if it does not."""
    texts = {
        "plain": text,
        "url": urllib.parse.unquote(text),
        "html": html.unescape(text),
        "escapes": ESCAPE.sub(lambda match: chr(int(match[1], 16)), text),
    }
    pieces = {KEY[start : start + PIECE] for start in range(len(KEY) - PIECE + 1)}
    forms = [name for name, said in texts.items() if any(piece in said for piece in pieces)]
    encoded = {KEY.encode().hex()} | {base64.b64encode(b"x" * offset + KEY.encode()).decode() for offset in range(3)}
    parts = {whole[start : start + 12] for whole in encoded for start in range(6, len(whole) - 16)}
    forms += ["encoded"] * any(part in text for part in parts)
    return ", ".join(forms + [name for name, form in key_forms(KEY).items() if form in text])


def run_against(behaviour: Behaviour, url: str, checkpoint: Path, folder: Path) -> Outcome:
    """Run the suite against one behaviour, with every report in `folder`."""
    arguments = (
        f"--model={checkpoint}", "--suite=ruler", "--lengths=512", "--samples=2", "-k", "niah_single_1", "--full",
        f"--base-url={url}", f"--budget={BUDGET_SECONDS / 60}",
        f"--journal={folder}/journal", f"--report-json={folder}/report.json", f"--report-html={folder}/report.html",
        f"--report-md={folder}/report.md", f"--junitxml={folder}/junit.xml", "-p", "no:xdist",
    )  # fmt: skip
    for name in KEYS:
        os.environ.pop(name, None)
    os.environ |= {"LONGCTX_API_KEY": KEY, "NO_PROXY": "127.0.0.1"}
    return run_forked(suite(*arguments))


def end_of(behaviour_path: str, port: int, checkpoint: Path) -> tuple[str, float, list[str], str]:
    """Return a behaviour's path, the seconds and the problems of a run against it, and its last line of output."""
    behaviour = BEHAVIOURS[behaviour_path]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_against(behaviour, f"{address}/{behaviour_path}/v1", checkpoint, Path(folder))
        with urllib.request.urlopen(f"{address}/requests") as reply:
            requests = json.load(reply).get(f"{behaviour_path} {behaviour.stage}", 0)
        ended = Ended(behaviour=behaviour, outcome=outcome, folder=Path(folder), requests=requests)
        said = (outcome.output + outcome.errors).strip().splitlines() or [""]
        return behaviour_path, outcome.elapsed_seconds, list(ended.problems()), said[-1][:200]


def serve(port: int, checkpoint: str) -> None:
    """Serve all behaviours until the process ends."""
    tokenizer = Tokenizer.from_file(f"{checkpoint}/tokenizer.json")

    def count(prompt: str | list[int]) -> int:
        return len(tokenizer.encode(prompt).ids) if isinstance(prompt, str) else len(prompt)

    with HostileServer(BEHAVIOURS, checkpoint, count, port).serving():
        time.sleep(1e6)


def load_modules(checkpoint: Path) -> None:
    """Load all modules of a run into this process, so that its forked copies need not."""
    for name in ("engines.openai.engine", "http.exchange"):
        importlib.import_module(f"longctx.fixtures.{name}")
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        suite(f"--model={checkpoint}", *SMALL, "--preflight", f"--journal={folder}")()


def chosen_paths(kind: str | None, name: str, each: int) -> list[str]:
    """Return the paths of some behaviours, `each` at most of a kind and spread over it; the kinds take turns."""
    by_kind: dict[str, list[str]] = {}
    for path, behaviour in BEHAVIOURS.items():
        if kind in (None, behaviour.kind) and name in path:
            by_kind.setdefault(behaviour.kind, []).append(path)
    spread = [paths[:: max(1, -(-len(paths) // each))] for paths in by_kind.values()]
    return [path for row in zip_longest(*spread) for path in row if path is not None]


def main() -> int:
    """Return the exit code."""
    parser = CommandParser(prog="python -m tests.fuzz.servers", description=__doc__)
    parser.add_argument("--kind", choices=sorted({each.kind for each in BEHAVIOURS.values()}), help="only this kind")
    parser.add_argument("--name", default="", help="only behaviours with this in their path")
    parser.add_argument("--each", type=int, default=1000, help="most behaviours of one kind (default: all)")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time (default: 4)")
    given = parser.parse_args()
    chosen = chosen_paths(given.kind, given.name, given.each)
    ends: Counter[tuple[str, str]] = Counter()
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = build(parse_spec("512"), Path(folder) / "checkpoint")
        port = free_port()
        server = fork.Process(target=serve, args=(port, str(checkpoint)), daemon=True)
        server.start()
        load_modules(checkpoint)
        with ProcessPoolExecutor(given.jobs, mp_context=fork) as pool:
            run = functools.partial(end_of, port=port, checkpoint=checkpoint)
            for path, seconds, problems, said in pool.map(run, chosen):
                ends[BEHAVIOURS[path].kind, "; ".join(problems) or "as it must"] += 1
                if problems:
                    sys.stdout.write(f"{path}: {'; '.join(problems)} ({seconds:.1f} s): {said!r}\n")
                    sys.stdout.flush()
        server.terminate()
    for (kind, end), number in sorted(ends.items()):
        sys.stdout.write(f"{kind:24} {end:60} {number}\n")
    sys.stdout.write(f"{len(chosen)} behaviours\n")
    return any(end != "as it must" for _, end in ends)


if __name__ == "__main__":
    raise SystemExit(main())
