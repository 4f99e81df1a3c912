"""Start two or three watches of one folder at a time, and kill some: every checkpoint is measured and notified once.

    python -m benchmarks.overlapping_watches --rounds 20

Each round has its own --out. Its watches start within 0 to 20 seconds on calibration checkpoints, the last of which is
bad, some with --once as from cron, and some are killed with SIGKILL. Then a last one ends what they have left. With
--launch, a scheduler runs the measurements.

Limits: exit code 1 if a checkpoint was not measured exactly once, a verdict was wrong, the failure was not notified
exactly once, a finished sample was computed again, or a watch ended otherwise than its folder says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kill_ci import GATES, build_checkpoints, computed_again
from longctx.ci.watch.lock import LOCK
from longctx.fixtures.installation import SUITE as REPOSITORY

LATEST_START_SECONDS = 20.0
TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The folders and options of the watches of one round."""

    run: Path
    """The checkpoints."""
    folder: Path
    launch: str | None

    def start(self, *, once: bool) -> subprocess.Popen[bytes]:
        """Start a watch, whose output is appended to a file."""
        command = [
            sys.executable, "-m", "longctx.ci.watch", str(self.run), "--every", "1s", "--out", f"{self.folder}/out",
            "--journal", f"{self.folder}/journal", "--thresholds", f"{self.folder}/gates.toml", "--lengths", "512",
            "--samples", "24", "-k", "single_2", "--on-failure", f'echo "$LONGCTX_STEP" >> {self.folder}/notified',
            *(["--once"] if once else []), *(["--launch", self.launch] if self.launch else []),
        ]  # fmt: skip
        with (self.folder / "output").open("ab") as output:
            inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
            return subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output, env=inherited)

    @property
    def holder(self) -> int | None:
        """The process that holds the lock."""
        try:
            return int((self.folder / "out" / LOCK).read_text().split()[1])
        except (OSError, IndexError):
            return None

    @property
    def measured(self) -> list[tuple[int, str]]:
        """The steps and verdicts of all measurements."""
        path = self.folder / "out" / "history.jsonl"
        events = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        return [(event["step"], event["word"]) for event in events if event["event"] == "measured"]


def play(round_: Round, rng: random.Random, expected: Sequence[tuple[int, str]]) -> list[str]:
    """Start and kill the watches of a round; return what went wrong."""
    starts = sorted(rng.uniform(0, LATEST_START_SECONDS) for _ in range(rng.choice((2, 3))))
    once, kills = [rng.random() < 0.5 for _ in starts], rng.choice((0, 1, 2))
    running: list[subprocess.Popen[bytes]] = []
    wrong: list[str] = []
    killed: set[int] = set()
    began = time.monotonic()
    while starts or any(process.poll() is None for process in running):
        now = time.monotonic() - began
        if starts and now >= starts[0]:
            running.append(round_.start(once=once[len(running)]))
            starts.pop(0)
        if kills and now > LATEST_START_SECONDS / 2 and rng.random() < 0.1:
            holder = round_.holder
            if holder is not None and any(each.pid == holder and each.poll() is None for each in running):
                os.kill(holder, signal.SIGKILL)
                killed.add(holder)
                kills -= 1
        if not starts and len(round_.measured) >= len(expected):
            # Watches without --once go on for ever.
            for process, ends in zip(running, once, strict=True):
                if not ends and process.poll() is None:
                    process.terminate()
        if now > TIMEOUT_SECONDS:
            wrong.append("a watch did not end")
            break
        time.sleep(0.2)
    wrong += [f"a watch ended with {process.returncode}" for process in running
              if process.pid not in killed and process.returncode not in (0, 1)]  # fmt: skip
    last = round_.start(once=True).wait(TIMEOUT_SECONDS)
    wrong += [f"the last watch ended with {last}"] * (last != 1)
    notified = (round_.folder / "notified").read_text().split() if (round_.folder / "notified").exists() else []
    wrong += [f"measured {round_.measured}"] * (sorted(round_.measured) != list(expected))
    wrong += [f"notified {notified}"] * (notified != [str(expected[-1][0])])
    wrong += [f"{again} samples computed again" for again in (computed_again(round_.folder),) if again]
    kinds = ["once" if ends else "waiting" for ends in once]
    print(f"{', '.join(kinds)}; {len(killed)} killed: {'; '.join(wrong) or 'right'}", flush=True)
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all rounds, and print a line for each; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds (default: 20)")
    parser.add_argument("--launch", metavar="TEMPLATE", help="that of longctx watch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    # A directory that all nodes of a scheduler see.
    root = Path(tempfile.mkdtemp(prefix="overlapping-watches-"))
    run = build_checkpoints(root / "run", 2)
    wrong = []
    for number in range(args.rounds):
        folder = root / f"round-{number}"
        folder.mkdir()
        (folder / "gates.toml").write_text(GATES)
        round_ = Round(run=run, folder=folder, launch=args.launch)
        wrong += play(round_, random.Random(f"{args.seed} {number}"), [(1, "pass"), (2, "fail")])
    if not wrong:
        shutil.rmtree(root)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
