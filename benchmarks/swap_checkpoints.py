"""Test that a checkpoint which is replaced during a run is never scored under the name of another one.

    python -m benchmarks.swap_checkpoints --rounds 30

Every round starts a run on a calibration checkpoint with an empty journal, replaces the checkpoint or one of its files
by those of another effective length at a random moment, and leaves it so until the run has ended. Then the round puts
the true checkpoint back and runs the same command again (with --repeat-every 8, every eighth round only). The runs are
in one process, with two workers, against a baseline that is replaced, and as a watch. With --model, checkpoints that
you give are used instead.

Limits: exit code 1 if an answer in the journal is not the one of the checkpoint that it is stored under, if a run on a
replaced checkpoint ends without an error although answers are missing, or if the second run does not end with the
scores of an undisturbed run.
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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoint_changes import CHANGES
from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.installation import SUITE as REPOSITORY

SMALL = (
    "--lengths", "512", "--samples", "30", "--full", "-k", "single_2", "--batch-size", "1", "-p", "no:cacheprovider",
)  # fmt: skip
TRUE, OTHER = "400-chat", "200-blind=0.5-chat"
TIMEOUT_SECONDS = 600
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# The text of every error about a replaced checkpoint.
ERROR = "replaced"
Answers = Mapping[str, tuple[float, str]]
"""Score and text by the key of the sample."""


# CPU time of the commands, as multiples of a run in one process.
COST = {"-n 0": 1.0, "-n 2": 2.0, "--baseline": 1.3, "watch": 1.3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that measures a checkpoint."""

    name: str
    arguments: Callable[[Path, Path], Sequence[str]]
    """Returns the arguments of `python -m` for the checkpoint that is replaced and a working folder."""


def commands(good: Path, options: Sequence[str]) -> list[Command]:
    """Return the four commands; `good` is a checkpoint that is not replaced."""

    def suite(*more: str) -> Callable[[Path, Path], Sequence[str]]:
        def arguments(checkpoint: Path, folder: Path) -> Sequence[str]:
            report = ("--journal", f"{folder}/journal", "--report-json", f"{folder}/report.json")
            return ("pytest", *options, "--thresholds", "ci/demo.toml", *report, "--model", str(checkpoint), *more)

        return arguments

    def against(checkpoint: Path, folder: Path) -> Sequence[str]:
        return (*suite("-n", "0")(good, folder), "--baseline", str(checkpoint))

    def watch(checkpoint: Path, folder: Path) -> Sequence[str]:
        folders = ("--out", f"{folder}/out", "--journal", f"{folder}/journal", "--thresholds", "ci/demo.toml")
        return ("longctx.ci.watch", str(checkpoint.parent), "--every", "1s", "--once", *options, *folders)

    return [
        Command(name="-n 0", arguments=suite("-n", "0")),
        Command(name="-n 2", arguments=suite("-n", "2")),
        Command(name="--baseline", arguments=against),
        Command(name="watch", arguments=watch),
    ]


def start(arguments: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command with its output in a file of the folder."""
    folder.mkdir(exist_ok=True, parents=True)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=REPOSITORY, env=inherited, stdout=output, stderr=output
        )


def children_of(parent: int) -> list[tuple[int, float]]:
    """Return a process and all processes below it, with the CPU seconds of each."""
    processes: dict[int, tuple[int, float]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        processes[int(status.parent.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND
    family = {parent}
    while more := {pid for pid, (above, _) in processes.items() if above in family} - family:
        family |= more
    return [(pid, processes[pid][1]) for pid in family if pid in processes]


def wait_for_cpu(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Wait until a command has used this much CPU time or has ended; return the CPU seconds used.

    On a busy machine, CPU time says better than a clock how far a run is.
    """
    used = 0.0
    while process.poll() is None and used < seconds:
        time.sleep(0.05)
        used = max(used, sum(cpu for _, cpu in children_of(process.pid)))
    return used


def answers(journal: Path) -> dict[str, dict[str, list[tuple[float, str]]]]:
    """Return all answers of a journal by fingerprint and sample."""
    stored: dict[str, dict[str, list[tuple[float, str]]]] = {}
    for subject in journal.glob("*/subject.json"):
        samples = stored.setdefault(json.loads(subject.read_text())["fingerprint"], {})
        for path in subject.parent.glob("*.jsonl"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                data = json.loads(line)
                if "element" in data:
                    outcome = data["outcome"]
                    answer = (outcome["score"]["value"], outcome["generation"]["text"])
                    samples.setdefault(data["element"], []).append(answer)
    return stored


def build_pair(true: Path, other: Path) -> tuple[Path, Path]:
    """Build two calibration checkpoints that differ in weights, config, tokenizer, template and generation config."""
    build(parse_spec(TRUE), true)
    build(parse_spec(OTHER), other)
    for name, key, value in (
        ("tokenizer.json", "normalizer", {"type": "Lowercase"}),
        ("tokenizer_config.json", "chat_template", "{% for m in messages %}{{ m['content'] }}{% endfor %}"),
        ("generation_config.json", "temperature", 0.5),
    ):
        content = json.loads((other / name).read_text())
        (other / name).write_text(json.dumps({**content, key: value}))
    return true, other


class Truth:
    """The answers of undisturbed runs, by fingerprint."""

    def __init__(self, folder: Path, command: Command):
        self.folder = folder
        self.command = command
        self._answers: dict[str, Answers] = {}
        self.cpu_seconds = 0.0
        """The CPU time of the last undisturbed run."""

    def of(self, checkpoint: Path) -> Answers:
        """Return the answers of a checkpoint, which is measured at the first call for its content."""
        fingerprint = read_checkpoint(str(checkpoint)).fingerprint
        if fingerprint not in self._answers:
            folder = self.folder / fingerprint
            process = start(self.command.arguments(checkpoint, folder), folder)
            self.cpu_seconds = wait_for_cpu(process, TIMEOUT_SECONDS)
            stored = answers(folder / "journal").get(fingerprint, {})
            self._answers[fingerprint] = {key: given[0] for key, given in stored.items()}
        return self._answers[fingerprint]

    def wrong(self, journal: Path) -> int:
        """Return how many answers of a journal are not those of the checkpoint that they are stored under."""
        return sum(
            answer != self._answers.get(fingerprint, {}).get(key)
            for fingerprint, samples in answers(journal).items()
            for key, given in samples.items()
            for answer in given
        )


def run_round(
    command: Command, change: str, true: Path, other: Path, folder: Path, truth: Truth, cpu_seconds: float,
    is_repeated: bool,
) -> tuple[str, int]:  # fmt: skip
    """Replace the checkpoint during a run; return the outcome in words, and the number of wrong answers.

    With `is_repeated` the true checkpoint is put back, and the same command runs again.
    """
    folder.mkdir()
    checkpoint = Path(shutil.copytree(true, folder / "steps" / "step-1"))
    process = start(command.arguments(checkpoint, folder), folder)
    wait_for_cpu(process, cpu_seconds)
    CHANGES[change](checkpoint, other)
    exit_code = process.wait(TIMEOUT_SECONDS)
    text = (folder / "output").read_text(errors="replace")
    stored = answers(folder / "journal")
    if (changed := read_checkpoint(str(checkpoint)).fingerprint) in stored:
        truth.of(checkpoint)
    outcome = "error" if ERROR in text else f"exit code {exit_code}"
    if exit_code == -signal.SIGBUS and change == "weights copied over":
        # The system ends a process that reads a mapped file which was cut. Nothing is stored then.
        outcome = "ended by SIGBUS"
    elif exit_code < 0 or "INTERNALERROR" in text or "Traceback" in text:
        outcome = f"CRASH {exit_code}"
    elif ERROR not in text:
        # Not noticed: then all answers were there before, or the run has seen the new files only.
        counts = [len(samples) for samples in stored.values()]
        outcome += " after the replacement" if changed in stored else " before the replacement"
        outcome += "" if counts and min(counts) >= len(truth.of(true)) else " INCOMPLETE"
    wrong = truth.wrong(folder / "journal")
    if not is_repeated:
        return outcome, wrong
    shutil.rmtree(folder / "steps")
    shutil.copytree(true, checkpoint)
    start(command.arguments(checkpoint, folder), folder).wait(TIMEOUT_SECONDS)
    after = answers(folder / "journal").get(read_checkpoint(str(true)).fingerprint, {})
    if {key: given[0] for key, given in after.items()} != truth.of(true):
        outcome += " NOT RESTORED"
    return outcome, wrong + truth.wrong(folder / "journal")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for every round; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat-every", type=int, default=1, metavar="N", help="repeat the run of every Nth round")
    parser.add_argument("--model", type=Path, nargs=2, metavar=("TRUE", "OTHER"), help="two checkpoints of one shape")
    parser.add_argument("--only", action="append", choices=("-n 0", "-n 2", "--baseline", "watch"), default=[])
    parser.add_argument("--change", action="append", choices=tuple(CHANGES), default=[])
    args, options = parser.parse_known_args(arguments)
    rng = random.Random(args.seed)
    root = Path(tempfile.mkdtemp(prefix="swapped-"))
    true, other = args.model or build_pair(root / "true", root / "other")
    good = build(parse_spec("full-chat"), root / "good") if args.model is None else true
    chosen = [command for command in commands(good, options or SMALL) if not args.only or command.name in args.only]
    changes = args.change or list(CHANGES)
    truth = Truth(root, commands(good, options or SMALL)[0])
    truth.of(good)
    truth.of(true)
    faults, outcomes = 0, Counter[str]()
    for number in range(args.rounds):
        command, change = chosen[number % len(chosen)], changes[number % len(changes)]
        moment = rng.random() * truth.cpu_seconds * COST[command.name]
        is_repeated = number % args.repeat_every == args.repeat_every - 1
        outcome, wrong = run_round(command, change, true, other, root / str(number), truth, moment, is_repeated)
        faults += wrong > 0 or outcome != outcome.lower()
        outcomes[outcome] += 1
        print(
            f"{number:>3} {command.name:>10} {change:>20} after {moment:4.1f} CPU s: {outcome}, {wrong} wrong",
            flush=True,
        )
        shutil.rmtree(root / str(number))
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) + f"; {faults} faults")
    shutil.rmtree(root)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
