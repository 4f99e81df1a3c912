"""Disturb watches: start several of one folder and kill some, or delete a checkpoint while it is measured.

    python -m benchmarks.disturbed_watches --rounds 20 --deletions 10

Each round has its own --out, and two calibration checkpoints, of which the second one is bad. In a round, two or three
watches start within 0 to 20 seconds, some with --once as from cron, and some are killed with SIGKILL; then a last one
ends what they have left. In a deletion, the bad checkpoint is deleted at a random moment. With --launch, a scheduler
runs the measurements.

Limits: exit code 1 if, in a round, a checkpoint was not measured exactly once, the failure was not notified exactly
once, a finished sample was computed again, or a watch ended otherwise than its folder says; or if a deleted checkpoint
counts as a failure or an error, or was notified after it was gone.
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

from benchmarks.kill_ci import GATES, computed_again
from longctx.ci.watch.lock import LOCK
from longctx.fixtures.calibration import build, parse_spec
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
            str(Path(sys.executable).with_name("longctx")), "watch", str(self.run), "--every", "1s",
            "--out", f"{self.folder}/out", "--journal", f"{self.folder}/journal",
            "--thresholds", f"{self.folder}/gates.toml", "--lengths", "256", "--samples", "24", "-k", "single_2",
            "--on-failure", f'echo "$LONGCTX_STEP" >> {self.folder}/notified',
            *(["--once"] if once else []), *(["--launch", self.launch] if self.launch else []),
        ]  # fmt: skip
        with (self.folder / "output").open("ab") as output:
            inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
            return subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=output, env=inherited)

    @property
    def notified(self) -> list[str]:
        """The steps that were notified."""
        path = self.folder / "notified"
        return path.read_text().split() if path.exists() else []

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
            if holder is not None and holder not in killed:
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
    codes = {process.returncode for process in running}
    # A killed watch ends with 1 or -9.
    wrong += [f"watches ended with {codes}"] * (not codes <= {0, 1, -signal.SIGTERM, -signal.SIGKILL})
    last = round_.start(once=True).wait(TIMEOUT_SECONDS)
    wrong += [f"the last watch ended with {last}"] * (last != 1)
    notified = round_.notified
    wrong += [f"measured {round_.measured}"] * (sorted(round_.measured) != list(expected))
    wrong += [f"notified {notified}"] * (notified != [str(expected[-1][0])])
    wrong += [f"{again} samples computed again" for again in (computed_again(round_.folder),) if again]
    kinds = ["once" if ends else "waiting" for ends in once]
    print(f"{', '.join(kinds)}; {len(killed)} killed: {'; '.join(wrong) or 'right'}", flush=True)
    return wrong


def delete(round_: Round, rng: random.Random, longest_seconds: float) -> list[str]:
    """Delete the bad checkpoint within some seconds after its measurement began; return what went wrong."""
    wrong: list[str] = []
    process = round_.start(once=True)
    output = round_.folder / "output"
    while b"step-2: measuring" not in output.read_bytes() and process.poll() is None:
        time.sleep(0.1)
    seconds = rng.uniform(0, longest_seconds)
    time.sleep(seconds)
    before = round_.notified
    shutil.rmtree(round_.run / "step-2")
    code = process.wait(TIMEOUT_SECONDS)
    # A watch that had ended by then learns of it at its next start.
    code = round_.start(once=True).wait(TIMEOUT_SECONDS) if before else code
    wrong += [f"ended with {code}"] * (code != 0)
    verdicts = [word for step, word in round_.measured if step == 2]
    wrong += [f"measured as {verdicts}"] * (verdicts not in (["gone"], ["fail"]))
    wrong += [f"notified {round_.notified}"] * (round_.notified != before)
    gone = b"2: gone" in output.read_bytes()
    wrong += ["not named as gone"] * (not gone)
    print(f"deleted after {seconds:.1f} s, {verdicts}: {'; '.join(wrong) or 'right'}", flush=True)
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all rounds, and print a line for each; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds (default: 20)")
    parser.add_argument("--deletions", type=int, default=10, help="deleted checkpoints (default: 10)")
    parser.add_argument("--seconds", type=float, default=15, help="longest time to a deletion (default: 15)")
    parser.add_argument("--launch", metavar="TEMPLATE", help="that of longctx watch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="disturbed-watches-"))
    run = root / "run"
    for step, spec in ((1, "512"), (2, "512-blind=0.99")):
        build(parse_spec(f"{spec}-step={step}"), run / f"step-{step}")
    wrong = []
    for number in range(args.rounds + args.deletions):
        folder, rng = root / f"round-{number}", random.Random(f"{args.seed} {number}")
        folder.mkdir()
        (folder / "gates.toml").write_text(GATES)
        if number < args.rounds:
            wrong += play(Round(run=run, folder=folder, launch=args.launch), rng, [(1, "pass"), (2, "fail")])
        else:
            own = shutil.copytree(run, folder / "run")
            wrong += delete(Round(run=own, folder=folder, launch=args.launch), rng, args.seconds)
    if not wrong:
        shutil.rmtree(root)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
