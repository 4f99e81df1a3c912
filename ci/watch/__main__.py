"""Measures each checkpoint as training writes it: `python -m ci.watch runs/a --every 30s`

Waits until a checkpoint is whole, runs the gates on it, compares it with the last one that passed, and
tells of a failure. All other options are pytest's: --lengths, -k, -n, --budget, ... Started again, it
goes on where it was: OUT/history.jsonl says what was measured, the journal what was answered.

Ends with Ctrl-C or SIGTERM, or with --once when nothing whole is left. Exit codes: 0 no checkpoint
failed, 1 one did, 4 wrong use.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from ci.suite_process import Ran, run_suite
from ci.watch.checkpoint_watcher import Watcher, Whole
from ci.watch.history import History, Measured, Word
from ci.watch.notify import Notices
from fixtures.cli import CommandParser

UNITS = {"s": 1, "m": 60, "h": 3600}


class Stop(BaseException):
    """Asked to end; passes through whatever is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line, read. Times are seconds; `gpus` are numbers as in CUDA_VISIBLE_DEVICES."""

    directory: Path
    every: float
    newest_first: bool
    marker: str | None
    gpus: tuple[str, ...]
    most_gpu_seconds: float | None
    notices: Notices
    out: Path
    once: bool
    options: Sequence[str]


class Watch:
    """One directory, one history."""

    def __init__(self, asked: Arguments):
        self.asked = asked
        self.watcher = Watcher(asked.directory, asked.marker)
        self.history = History(asked.out)
        self._said: dict[str, str] = {}

    def run(self) -> int:
        """Until asked to stop. One look finds what is new, the next that it has not changed."""
        quiet_looks = 0
        while True:
            waiting = self._look()
            if not waiting:
                quiet_looks += 1
            while waiting and not self._is_spent():
                self._measure(waiting[0])
                quiet_looks = 0
                # What came meanwhile may be newer.
                waiting = self._look()
            self._tell()
            if self._is_spent():
                say("the GPU budget is spent; what is left waits for a larger one")
                break
            if self.asked.once and quiet_looks >= 2:
                break
            time.sleep(self.asked.every)
        return self.code

    @property
    def code(self) -> int:
        """The command's exit code by what was measured, in earlier starts too."""
        return int(any(each.word != "pass" for each in self.history.measured.values()))

    def _look(self) -> list[Whole]:
        try:
            found = self.watcher.look()
        except OSError as error:
            self._say_once("DIR", f"{self.asked.directory} cannot be read ({error.strerror})")
            return []
        for name, reason in self.watcher.waiting.items():
            self._say_once(name, f"{name}: waiting: {reason}")
        new = [each for each in found if not self.history.knows(each.step.path, each.fingerprint)]
        return new[::-1] if self.asked.newest_first else new

    def _measure(self, whole: Whole) -> None:
        step, asked = whole.step, self.asked
        last_good = self.history.last_good(step.number)
        say(f"{step.name}: measuring" + (f", against step {last_good.step}" if last_good else ""))
        report = asked.out / f"{step.name}-{whole.fingerprint[:12]}.json"
        started = time.monotonic()
        ran = run_suite(
            [
                *asked.options, *(["-n", str(len(asked.gpus))] if len(asked.gpus) > 1 else []),
                "--model", str(step.path), *(["--baseline", last_good.report] if last_good else []),
                "--junitxml", str(report.with_suffix(".xml")),
            ],
            report=report,
            log=report.with_suffix(".log"),
            again=True,
            environment={"CUDA_VISIBLE_DEVICES": ",".join(asked.gpus)} if asked.gpus else None,
        )  # fmt: skip
        seconds = (time.monotonic() - started) * max(1, len(asked.gpus))
        word, failed = verdict(ran)
        measured = Measured(
            step=step.number,
            checkpoint=str(step.path),
            fingerprint=whole.fingerprint,
            word=word,
            code=ran.code,
            failed=failed,
            report=str(report),
            baseline=last_good.step if last_good else None,
            effective_length=ran.report["ruler"]["effective_length_label"] if ran.report else None,
            gpu_seconds=round(seconds, 1),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.history.add(measured)
        say(f"{step.name}: {word}" + "".join(f"\n    {line}" for line in failed))
        self._tell()

    def _tell(self) -> None:
        for measured in self.history.untold:
            problem = self.asked.notices.tell(measured)
            if problem is None:
                self.history.note_told(measured)
            else:
                self._say_once(f"notice {measured.step}", f"{problem}; it is tried again")

    def _is_spent(self) -> bool:
        most = self.asked.most_gpu_seconds
        return most is not None and self.history.gpu_seconds >= most

    def _say_once(self, about: str, line: str) -> None:
        if self._said.get(about) != line:
            self._said[about] = line
            say(line)


def verdict(ran: Ran) -> tuple[Word, tuple[str, ...]]:
    """What a run says of its checkpoint, and why."""
    if ran.report is None:
        return "error", (ran.reason,)
    gates = [gate for gate in ran.report["gates"] if gate["blocking"] and gate["verdict"] in ("fail", "error")]
    cases = [case for case in ran.report["cases"] if case["verdict"] in ("fail", "error")]
    broken = any(each["verdict"] == "error" for each in (*gates, *cases))
    failed = tuple(
        [f"{gate['name']}: {gate['reason']}" for gate in gates]
        + [f"{case['id']}: {case['error'] or case['decided_by']}" for case in cases]
    )
    if ran.code == 0:
        return "pass", ()
    return ("error" if broken else "fail"), failed or (f"pytest ended with code {ran.code}",)


def main(arguments: list[str] | None = None) -> int:
    try:
        asked = _read(arguments)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 4
    watch = Watch(asked)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        known = len(watch.history.measured)
        say(f"watching {asked.directory}" + (f", {known} measured before" if known else ""))
        return watch.run()
    except Stop:
        say("stopped; the same command goes on from here")
        return watch.code


def say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stop


def _read(arguments: list[str] | None) -> Arguments:
    parser = CommandParser(
        prog="python -m ci.watch", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="where training writes checkpoints, such as step-3000")
    add("--every", default="30s", metavar="30s", help="how often to look (default: 30s)")
    add("--order", choices=("oldest", "newest"), default="oldest", help="which of several is first")
    add("--done-marker", metavar="FILE", help="a file that training writes last into each checkpoint")
    add("--gpus", default="", metavar="0,1", help="GPUs to use, one worker each (default: all, pytest's -n)")
    add("--gpu-budget", metavar="8h", help="stop after so much time on a GPU, summed over GPUs and checkpoints")
    add("--on-failure", metavar="COMMAND", help="run by a shell; LONGCTX_STEP, LONGCTX_REPORT, ... tell which")
    add("--webhook", metavar="URL", help="is sent the failure as JSON; has a `text` as chat servers want it")
    add("--out", type=Path, default=Path("out/watch"), metavar="DIR", help="history and reports")
    add("--once", action="store_true", help="end when nothing whole is left, for cron")
    given, options = parser.parse_known_args(arguments)
    if not given.directory.is_dir():
        raise ValueError(
            f"DIR: no such directory {str(given.directory)!r}; give the one training writes to, before all options"
        )
    if given.webhook is not None and not given.webhook.startswith(("http://", "https://")):
        raise ValueError("--webhook: not an address; give one that begins with https:// or http://")
    gpus = tuple(filter(None, given.gpus.split(",")))
    return Arguments(
        directory=given.directory.resolve(),
        every=_seconds(given.every, "--every"),
        newest_first=given.order == "newest",
        marker=given.done_marker,
        gpus=gpus,
        most_gpu_seconds=None if given.gpu_budget is None else _seconds(given.gpu_budget, "--gpu-budget"),
        notices=Notices(command=given.on_failure, webhook=given.webhook),
        out=given.out.resolve(),
        once=given.once,
        options=options,
    )


def _seconds(text: str, option: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if found is None or not float(found[1]):
        raise ValueError(f"{option}: unknown {text!r}; write 30s, 5m or 8h")
    return float(found[1]) * UNITS[found[2]]


if __name__ == "__main__":
    sys.exit(main())
