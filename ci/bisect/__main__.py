"""Find the step at which a training run became worse.

    longctx bisect --good runs/a/step-2000 --bad runs/a/step-9000 --checkpoints 'runs/a/step-*'

A binary search over the checkpoints on one case: the case that lost most, or the one of --case or --gate. Every step
is compared with the good endpoint sample by sample, only until the verdict is certain. All other options are pytest's:
--lengths, -k, -n, ... The same command continues a search that was stopped.

Exit codes: 0 the first bad step was found; 1 the endpoints show no loss; 2 the first bad step may also be a step that
could not be measured; 3 the endpoints could not be compared; 4 wrong use. With --test, the codes of `git bisect run`:
0 good, 1 bad, 125 cannot be tested, 128 stop, for everything that says nothing about the checkpoint.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed, wait
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from ci.bisect.bisection import Bisection
from ci.bisect.compare import Suite, compare_step, search_bounds
from ci.bisect.confirm import confirm
from ci.bisect.endpoints import Endpoints, EndpointsError, choose_cases, measure_endpoints
from ci.bisect.report import BisectLog, step_line
from ci.bisect.search import StepVerdict, max_measurements, search
from ci.checkpoint_dirs import CheckpointsError, Step, between, fingerprint_of
from ci.parallel import Execution, add_execution_options, read_execution
from ci.run_file import SET_BY_COMMAND, RunFileError, command_options, run_options, split_config
from ci.suite_thresholds import suite_thresholds
from fixtures.checkpoints.checkpoint import CheckpointError
from fixtures.cli import CommandParser, print_line, report_wrong_use
from fixtures.outside_files import absolute
from plugins.gates.thresholds import SHIPPED, Gate, ThresholdsError

CANNOT_TEST, STOP_GIT = 125, 128
INTERRUPTED = 130
Measurement = Callable[[int], StepVerdict]
# Options of pytest that a search sets for every run or that would apply to each of them anew, with what to use instead.
# A file with options for all commands may have them.
NOT_PASSED_ON = {
    **dict.fromkeys(SET_BY_COMMAND, "its results are in --out"),
    **dict.fromkeys(("--model", "--baseline", "--step"), "use --good, --bad and --checkpoints"),
    "--invariance": "and check the engine once with pytest --model CKPT --invariance",
    **dict.fromkeys(("--plan", "--preflight"), "and use pytest itself"),
}
# `git bisect run` does not say how many commits it has; a search of as many steps has these bounds.
GIT_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line."""

    good: Path
    bad: Path
    checkpoints: tuple[str, ...]
    """Patterns of the checkpoints between the two."""
    case: str | None
    gate: Gate | None
    test: Path | None
    """The only checkpoint to measure, for `git bisect run`."""
    confidence: float
    suite: Suite
    execution: Execution


def main(arguments: list[str] | None = None) -> int:
    """Run the command: print every step's verdict, write the page, the data and the chart, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Read from the raw arguments: git must learn about wrong use of the other options too.
    is_test = any(argument.partition("=")[0] == "--test" for argument in arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        parsed = _parse(arguments)
        with parsed.execution:
            return _test(parsed) if parsed.test is not None else _search(parsed)
    except (CheckpointError, CheckpointsError, RunFileError, ThresholdsError) as error:
        return _fail(str(error), STOP_GIT if is_test else 4)
    except EndpointsError as error:
        return _fail(str(error), STOP_GIT if is_test else error.exit_code)
    except KeyboardInterrupt:
        return _fail("stopped; the same command continues", INTERRUPTED)
    except SystemExit:  # argparse has printed an error or the help; neither says that a checkpoint is good
        if not is_test:
            raise
        return STOP_GIT
    except Exception as error:  # Python would exit with 1, which git takes for a bad checkpoint
        if not is_test:
            raise
        return _fail(f"{type(error).__name__}: {error}", STOP_GIT)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def bisect_parser() -> CommandParser:
    """Return the parser of the bisection's own options."""
    parser = CommandParser(
        prog="longctx bisect", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--good", type=Path, required=True, metavar="CKPT", help="a checkpoint before the loss")
    add("--bad", type=Path, required=True, metavar="CKPT", help="a checkpoint after it")
    add(
        "--checkpoints", nargs="+", default=[], metavar="PATTERN",
        help="the checkpoints between the two; the last number of a name is its step",
    )  # fmt: skip
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument(
        "--case", metavar="ID", help="search on this case, such as 'test_ruler[niah_single_2-8k]' (default: the worst)"
    )
    selection.add_argument(
        "--gate", metavar="NAME", help="search on the mean over this gate's cases, at the length that lost most"
    )
    add("--test", type=Path, metavar="CKPT", help="only test whether this checkpoint is good, for git bisect run")
    add("--samples", type=int, default=500, metavar="N", help="most samples of a case (default: 500)")
    add(
        "--confidence", type=float, default=0.99, metavar="P",
        help="probability that the step is right (default: 0.99)",
    )  # fmt: skip
    add(
        "--thresholds", type=Path, default=SHIPPED, metavar="FILE",
        help="the file that defines the gate of --gate (default: thresholds.toml of the suite)",
    )  # fmt: skip
    add(
        "--out", type=Path, default=Path("out/bisect"), metavar="DIR",
        help="folder for reports, bisect.html, bisect.json and bisect.svg (default: out/bisect)",
    )  # fmt: skip
    add_execution_options(parser, parallel="steps to measure at a time; they cut the range into N + 1 parts")
    add("--config", metavar="FILE", help="a file with options, in TOML (default: longctx.toml, if there is one)")
    return parser


def _parse(arguments: list[str]) -> Arguments:
    parser = bisect_parser()
    file, words = split_config(arguments)
    from_file = [] if file is None else [*run_options(file, NOT_PASSED_ON), *command_options(file, "bisect", parser)]
    parsed, options = parser.parse_known_args([*from_file, *words])
    for option in options:
        if (name := option.partition("=")[0]) in NOT_PASSED_ON:
            raise CheckpointsError(f"{name}: not for the runs of a search; leave it out, {NOT_PASSED_ON[name]}")
    if not 0.5 <= parsed.confidence <= 0.999 or parsed.samples < 1:
        raise CheckpointsError("--confidence must be 0.5 to 0.999, and --samples at least 1")
    try:
        execution = read_execution(parsed.launch, parsed.parallel, print_line)
    except ValueError as error:
        raise CheckpointsError(str(error)) from error
    return Arguments(
        good=parsed.good,
        bad=parsed.bad,
        checkpoints=tuple(parsed.checkpoints),
        case=parsed.case,
        gate=None if parsed.gate is None else _load_gate(parsed.gate, parsed.thresholds, options),
        test=parsed.test,
        confidence=parsed.confidence,
        suite=Suite(folder=absolute(parsed.out), options=options, samples=parsed.samples, execution=execution),
        execution=execution,
    )


def _load_gate(name: str, thresholds: Path, options: Sequence[str]) -> Gate:
    gates = {gate.name: gate for gate in suite_thresholds(thresholds, options).gates}
    if name not in gates:
        raise ThresholdsError(f"--gate: no gate {name!r} in {thresholds}; known gates: {', '.join(gates) or 'none'}")
    return gates[name]


def _endpoints(arguments: Arguments, good: Step, bad: Step) -> Endpoints:
    suite, confidence = arguments.suite, arguments.confidence
    if arguments.case is not None:
        return measure_endpoints(suite, good, bad, (arguments.case,), confidence, None)
    cases, survey = choose_cases(suite, good, bad, arguments.gate, confidence)
    return measure_endpoints(suite, good, bad, cases, confidence, survey)


def _search(arguments: Arguments) -> int:
    steps = between(arguments.checkpoints, arguments.good, arguments.bad)
    good, bad, last = steps[0], steps[-1], len(steps) - 1
    print_line(f"{len(steps)} checkpoints from {good.name} (good) to {bad.name} (bad)")
    endpoints = _endpoints(arguments, good, bad)
    print_line(f"endpoints  {endpoints.summary}")
    execution = arguments.execution
    bisection = Bisection(
        suite=arguments.suite, steps=steps, endpoints=endpoints, confidence=arguments.confidence,
        parallel=execution.parallel,
    )  # fmt: skip
    if last > 1 and bisection.telling.values:
        # Measured before several threads ask for it.
        print_line(f"screening  {bisection.rise_between_endpoints.line}")
    log = BisectLog(bisection=bisection)
    most = max_measurements(last, parallel=execution.parallel)
    print_line(f"searching  {last - 1} steps between them, about {most} to measure")

    def measure(positions: Sequence[int], how: Measurement = bisection.measure) -> list[StepVerdict]:
        measuring = {execution.submit(how, position): position for position in positions}
        for future in as_completed(measuring):
            verdict = future.result()
            print_line(step_line(steps[measuring[future]], verdict))
            log.add(measuring[future], verdict)
        return [future.result() for future in measuring]

    def screen(positions: Sequence[int]) -> list[StepVerdict]:
        return measure(positions, bisection.screen)

    early: list[Future[StepVerdict]] = []

    def confirm_early(last_good: int, first_bad: int) -> None:
        # The report of this comparison is read again by `confirm`, unless the edge turns out to be a dip.
        if execution.parallel > 1:
            early.append(execution.submit(bisection.compare, first_bad, last_good))

    edge = search(
        last, measure, screen=screen if bisection.telling.values else None, parallel=execution.parallel,
        on_edge=confirm_early,
    )  # fmt: skip
    wait(early)
    for line in log.finish(edge, confirm(bisection, edge)):
        print_line(line)
    return 2 if edge.skipped else 0


def _test(arguments: Arguments) -> int:
    """Test one checkpoint, and return the exit code for `git bisect run`."""
    assert arguments.test is not None
    # Commits are searched, not steps, so that the endpoints need no step in their names.
    good, bad = (Step(number=0, path=absolute(path)) for path in (arguments.good, arguments.bad))
    for endpoint, option in ((good, "--good"), (bad, "--bad")):
        # The suite would name its own options in an error about them.
        fingerprint_of(endpoint.path, option=option, options=arguments.suite.options)
    endpoints = _endpoints(arguments, good, bad)
    print_line(f"endpoints  {endpoints.summary}")
    bounds = search_bounds(endpoints.loss_points, alpha=(1 - arguments.confidence) / max_measurements(GIT_STEPS))
    result = compare_step(arguments.suite, arguments.test.resolve(), good.path, bounds, endpoints.cases)
    print_line(
        f"{arguments.test}: {result.verdict}"
        + (f": {result.reason}" if result.reason else f", {result.difference:+.1f}")
    )
    return {"good": 0, "bad": 1, "skipped": CANNOT_TEST}[result.verdict]


def _fail(line: str, exit_code: int) -> int:
    report_wrong_use(line)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
