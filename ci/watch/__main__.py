"""Measure every checkpoint while training writes them.

    longctx watch runs/a --every 30s

The watch waits until a checkpoint is complete, runs the gates on it, compares it with an anchor and, where that is
better by more than the allowed loss, with the last good one, and notifies you of a failure. All other options are
those of longctx run: --lengths, -k, -n, --budget, ... With --seed step, every checkpoint has other samples. A restart
continues: the history is in OUT/history.jsonl, the finished samples are in the journal. One watch at a time measures
into OUT.

Ends with Ctrl-C or SIGTERM, and with --once when every complete checkpoint is measured. Exit codes: 0 all checkpoints
on disk were accepted, or with --once another watch measures into OUT; 1 one was not accepted, or all were refused
before they were measured; 4 wrong use.
"""

import os
import re
import signal
import sys
from pathlib import Path

from longctx.ci.checkpoint_dirs import StepReader
from longctx.ci.launch import read_execution
from longctx.ci.run_file import command_options, run_options, split_config
from longctx.ci.suite_options import check_suite_options, read_suite_options
from longctx.ci.watch.baselines import check_anchor
from longctx.ci.watch.history import locked
from longctx.ci.watch.loop import Watch, WatchSettings, print_timed
from longctx.ci.watch.measure import SuiteRunner
from longctx.ci.watch.notify import Notifier, read_on_failure
from longctx.fixtures.atomic_files import PARTIAL
from longctx.fixtures.cli import CommandParser, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.plugins.config.options import add_own_options, check_own_values

SECONDS = {"s": 1, "m": 60, "h": 3600}


def main(arguments: list[str] | None = None) -> int:
    """Run the command until it is stopped, and return its exit code."""
    try:
        settings = _parse(sys.argv[1:] if arguments is None else arguments)
    except ValueError as error:
        return report_wrong_use(str(error))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        with locked(settings.out, waits=not settings.once, show=print_timed) as holds:
            return _watch(settings) if holds else 0
    except KeyboardInterrupt:
        print_timed("stopped; the same command continues")
        return 0


def _watch(settings: WatchSettings) -> int:
    for left in settings.out.rglob(f".*{PARTIAL}"):
        # Of a watch that was killed.
        left.unlink(missing_ok=True)
    watch = Watch(settings)
    try:
        known = len(watch.history.measurements)
        print_timed(f"watching {settings.directory}" + (f", {known} measured before" if known else ""))
        watch.run()
    except KeyboardInterrupt:
        watch.print_summary()
        print_timed("stopped; the same command continues")
    else:
        watch.print_summary()
    return watch.exit_code


def _parse(arguments: list[str]) -> WatchSettings:
    parser = CommandParser(prog="longctx watch", description=__doc__, allow_abbrev=False)
    help_line = "where training writes checkpoints such as step-3000"
    parser.add_argument("directory", type=Path, metavar="DIR", help=help_line)
    add_own_options(parser, "watch")
    file, words = split_config(arguments, "watch")
    own = [] if file is None else command_options(file, "watch")
    parsed, options = parser.parse_known_args([*own, *words])
    # This parser would take a value with spaces for DIR.
    options = [*([] if file is None else run_options(file, "watch")), *options]
    if not os.path.isdir(parsed.directory):
        raise ValueError(
            f"DIR: no such directory {str(parsed.directory)!r}; give the one training writes to, before all options"
        )
    searches, command = read_on_failure(parsed.on_failure or [])
    check_own_values(parsed, "watch")
    converts = any(word.partition("=")[0] == "--convert" for word in options)
    steps = StepReader(pattern=parsed.step_pattern, converts=converts)
    if parsed.anchor is not None:
        check_anchor(parsed.anchor, parsed.directory, parsed.out, options, steps)
    gpus = tuple(filter(None, parsed.gpus.split(",")))
    _check_gpus(parsed.launch, parsed.parallel, gpus)
    execution = read_execution(parsed.launch, parsed.parallel, print_timed)
    suite = read_suite_options(options)
    check_suite_options(suite)
    runner = SuiteRunner(
        options=suite, gpus=(), horizon=parsed.horizon, doublings=parsed.doublings, executor=execution.executor
    )
    return WatchSettings(
        directory=parsed.directory.resolve(),
        interval_seconds=_seconds(parsed.every),
        marker=parsed.done_marker,
        gpus=gpus,
        notifier=Notifier(command=command),
        searches=searches,
        every_nth=parsed.every_nth,
        out=absolute(parsed.out),
        once=parsed.once,
        anchor=parsed.anchor,
        runner=runner,
        steps=steps,
        execution=execution,
        launch=parsed.launch,
    )


def _check_gpus(launch: str | None, parallel: int, gpus: tuple[str, ...]) -> None:
    if launch is not None and gpus:
        raise ValueError(f"--gpus: {','.join(gpus)!r} with --launch, but the scheduler assigns GPUs; leave it out")
    if gpus and len(gpus) % parallel:
        fault = f"{parallel} measurements cannot share the {len(gpus)} GPUs of --gpus evenly"
        raise ValueError(f"--parallel: {fault}; give a number that divides {len(gpus)}")


def _seconds(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if match is None or not float(match[1]):
        raise ValueError(f"--every: unknown {text!r}; write 30s, 5m or 8h")
    return float(match[1]) * SECONDS[match[2]]
