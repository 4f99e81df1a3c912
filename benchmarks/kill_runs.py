"""Test that runs of the suite survive signals: the same report as an undisturbed run, and no work done twice.

    python -m benchmarks.kill_runs --kills 100
    python -m benchmarks.kill_runs --kills 100 --model ckpt --base-url http://localhost:8000/v1

Every round begins with an empty journal and sends several signals to a worker, the controller or all processes while
samples are being answered: TERM, INT, KILL, or STOP and then CONT. It starts the same command again whenever the run
has ended, and compares the report with that of an undisturbed run. Other options are pytest's and replace those of the
benchmark. Limits: exit code 1 if a report differs, or if a finished sample was computed again.
"""

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longctx.plugins.journal import Entry
from longctx.plugins.journal.lines import decode_line

REPOSITORY = Path(__file__).parents[1]
TARGETS = ("worker", "controller", "all")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSTOP)
KILLS = tuple((target, number) for number in SIGNALS for target in TARGETS)
KILLS_PER_ROUND = 4
# A worker that is stopped for longer than a lease loses its claims; most are not.
STOP_SECONDS, LONG_STOP_SECONDS = 3.0, 75.0
RUN = (
    "--model", "calibration:1k", "--suite", "ruler", "--lengths", "512,2k", "--samples", "10",
    "-k", "single or multikey", "--thresholds", "ci/demo.toml", "-n", "2", "-p", "no:cacheprovider",
)  # fmt: skip
# Options of the command line that replace some of these.
EXTRA: list[str] = []
TIMEOUT_SECONDS = 240


def start(journal: Path, report: Path) -> subprocess.Popen[bytes]:
    """Start the suite in a process group of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *RUN, *EXTRA, "--journal", str(journal), "--report-json", str(report)]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=inherited, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip


def workers_of(controller: int) -> list[int]:
    """Return the process ids of a run's workers."""
    workers = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == controller:
            workers.append(int(status.parent.name))
    return sorted(workers)


def finished_samples(journal: Path) -> Counter[str]:
    """Return how often the journal holds every finished sample."""
    lines = (line for path in journal.glob("*/*.jsonl") for line in path.read_bytes().split(b"\n")[:-1])
    records = map(decode_line, lines)
    return Counter(record.key for record in records if isinstance(record, Entry))


def wait_for_samples(process: subprocess.Popen[bytes], journal: Path, at_least: int) -> int:
    """Wait until so many samples are finished or the run has ended; return the number of finished samples."""
    while process.poll() is None and len(finished_samples(journal)) < at_least:
        time.sleep(0.02)
    return len(finished_samples(journal))


def send(process: subprocess.Popen[bytes], target: str, number: signal.Signals, stop_seconds: float) -> bool:
    """Send a signal to processes of a run, and continue those that it stopped; return False if the run has ended."""
    workers = workers_of(process.pid)
    victims = {"worker": workers[:1], "controller": [process.pid], "all": [process.pid, *workers]}[target]
    if process.poll() is not None or not victims:
        return False
    _signal(victims, number)
    if number == signal.SIGSTOP:
        time.sleep(stop_seconds)
        _signal(victims, signal.SIGCONT)
    return True


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue


def comparable(report: Path) -> dict[str, Any]:
    """Return the part of a report that is about the model, without the facts about the run."""
    written = json.loads(report.read_text())
    return {name: written[name] for name in ("cases", "gates", "ruler", "regression")} | {
        # Computed tokens depend, like times, on the prompts that a worker had read before.
        "tokens": {name: written["run"]["tokens"][name] for name in ("prompt", "generated")},
        "model": written["model"],
    }


def strip_seconds(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report without the seconds of its cases, which differ from run to run."""
    return report | {"cases": [{name: case[name] for name in case if name != "seconds"} for case in report["cases"]]}


def run_with_kills(
    folder: Path, kills: Sequence[tuple[str, signal.Signals]], rng: random.Random, most: int, long_stop: bool = False
) -> tuple[dict[str, Any], Counter[tuple[str, str]], int]:
    """Run one round; return the report, the signals that a living run received, and the samples computed again.

    The signals follow random numbers of finished samples below `most`.
    """
    journal, report = folder / "journal", folder / "report.json"
    process, received = start(journal, report), Counter[tuple[str, str]]()
    try:
        for at_least, (target, number) in zip(sorted(rng.sample(range(1, most), len(kills))), kills, strict=True):
            wait_for_samples(process, journal, at_least)
            time.sleep(rng.random() * 0.3)
            stop_seconds = LONG_STOP_SECONDS if long_stop else rng.uniform(0.2, STOP_SECONDS)
            received[target, number.name] += send(process, target, number, stop_seconds)
            if target != "worker" and number != signal.SIGSTOP:
                process.wait(TIMEOUT_SECONDS)
                time.sleep(rng.random())
                process = start(journal, report)
        process.wait(TIMEOUT_SECONDS)
        if not report.is_file():
            # A signal came too late for another start, or a worker handed it to its run.
            start(journal, report).wait(TIMEOUT_SECONDS)
    finally:
        _end(process)
    computed_again = sum(count - 1 for count in finished_samples(journal).values())
    return strip_seconds(comparable(report)), received, computed_again


def _end(process: subprocess.Popen[bytes]) -> None:
    for leftover in (process.pid, *workers_of(process.pid)):
        try:
            os.killpg(leftover, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    process.wait()


def main() -> int:
    """Print one line for every round; return 1 if a limit is exceeded, else 0."""
    # A shell lets its background processes ignore it, and so would the runs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=48)
    parser.add_argument("--long-stops", type=int, default=0, help="rounds with one stop of a worker beyond a lease")
    parser.add_argument("--seed", type=int, default=0)
    args, options = parser.parse_known_args()
    EXTRA.extend(options)
    rng = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp(prefix="killed-"))
    start(folder / "journal", folder / "report.json").wait(TIMEOUT_SECONDS)
    expected = strip_seconds(comparable(folder / "report.json"))
    samples = sum(case["samples"] for case in expected["cases"])
    print(f"undisturbed: {samples} samples counted, {len(finished_samples(folder / 'journal'))} computed")
    faults, received, number = 0, Counter[tuple[str, str]](), 0
    kinds: list[tuple[str, signal.Signals]] = []
    while received.total() < args.kills or number < args.long_stops:
        kinds = kinds or rng.sample(KILLS, len(KILLS))
        is_long = number < args.long_stops
        kills = [("worker", signal.SIGSTOP)] if is_long else [kinds.pop() for _ in range(KILLS_PER_ROUND)]
        round_folder = folder / str(number)
        round_folder.mkdir()
        report, delivered, again = run_with_kills(round_folder, kills, rng, samples, is_long)
        is_same, number = report == expected, number + 1
        faults += not is_same or again > 0
        received += delivered
        names = ", ".join(f"{target} {name}" for target, name in delivered)
        print(
            f"{number:>3} {names}: {again} computed again, {'same report' if is_same else 'OTHER REPORT'}", flush=True
        )
        shutil.rmtree(round_folder)
    print(", ".join(f"{count} {target} {name}" for (target, name), count in sorted(received.items())))
    print(f"{received.total()} signals in {number} rounds, {faults} faults")
    shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
