"""Find the step at which a training run became worse.

    longctx bisect --good runs/a/step-2000 --bad runs/a/step-9000 --checkpoints 'runs/a/step-*'

A noisy binary search over the checkpoints on one case: the case that lost most, or the one of --case or --gate. Steps
answer samples on which the endpoints differ, and more of them where answers flip. The result is a step or a range of
steps, with the probability that the run became worse there. All other options are those of longctx run: --lengths, -k,
-n, ... The same command continues a search that was stopped.

Exit codes: 0 the first bad step, or a range of steps with it, was found; 1 no loss is shown; 2 the first bad step may
also be a step that could not be measured; 3 the endpoints could not be compared; 4 wrong use. With --test, the codes
of `git bisect run`: 0 good, 1 bad, 125 cannot be tested, 128 stop, for everything that says nothing about the
checkpoint.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from longctx.ci.bisect.compare import Suite, compare_step, search_bounds
from longctx.ci.bisect.endpoints import Endpoints, EndpointsError, choose_cases, measure_endpoints
from longctx.ci.bisect.measurements import Bisection, confirm
from longctx.ci.bisect.posterior import Posterior
from longctx.ci.bisect.report import BisectLog, step_line
from longctx.ci.bisect.search import StepResult, expected_measurements, search
from longctx.ci.checkpoint_dirs import CheckpointsError, Step, StepReader, between, fingerprint_of
from longctx.ci.launch import read_execution
from longctx.ci.run_file import RunFileError, command_options, run_options, split_config
from longctx.ci.suite_options import suite_thresholds
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.plugins.config.options import add_own_options, check_own_values, refused_option
from longctx.plugins.thresholds.records import SHIPPED, Gate, ThresholdsError

CANNOT_TEST, STOP_GIT = 125, 128
INTERRUPTED = 130
# `git bisect run` does not say how many commits it has. So many tests, enough for 1000, share the probability of error.
GIT_MEASUREMENTS = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line."""

    good: Path
    bad: Path
    checkpoints: tuple[str, ...]
    """Patterns of the checkpoints between the two."""
    cases: tuple[str, ...]
    """The cases to search on; empty to choose them."""
    gate: Gate | None
    test: Path | None
    """The only checkpoint to measure, for `git bisect run`."""
    confidence: float
    steps: StepReader
    suite: Suite


def main(arguments: list[str] | None = None) -> int:
    """Run the command: print every step's verdict, write the page, the data and the chart, and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Read from the raw arguments: git must learn about wrong use of the other options too.
    is_test = any(argument.partition("=")[0] == "--test" for argument in arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        parsed = _parse(arguments)
        with parsed.suite.execution:
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


def _parse(arguments: list[str]) -> Arguments:
    parser = CommandParser(prog="longctx bisect", description=__doc__, allow_abbrev=False)
    add_own_options(parser, "bisect")
    file, words = split_config(arguments, "bisect")
    from_file = [] if file is None else [*run_options(file, "bisect"), *command_options(file, "bisect")]
    parsed, options = parser.parse_known_args([*from_file, *words])
    if refused := refused_option(options, "bisect"):
        raise CheckpointsError(refused)
    try:
        check_own_values(parsed, "bisect")
        execution = read_execution(parsed.launch, parsed.parallel, print_line)
    except ValueError as error:
        raise CheckpointsError(str(error)) from error
    gate = None
    if parsed.gate is not None:
        thresholds = parsed.thresholds or SHIPPED
        gates = {known.name: known for known in suite_thresholds(thresholds, options).gates}
        if parsed.gate not in gates:
            known_names = ", ".join(gates) or "none"
            raise ThresholdsError(f"--gate: no gate {parsed.gate!r} in {thresholds}; known gates: {known_names}")
        gate = gates[parsed.gate]
    return Arguments(
        good=parsed.good,
        bad=parsed.bad,
        checkpoints=tuple(parsed.checkpoints),
        cases=tuple(dict.fromkeys(parsed.case or ())),
        gate=gate,
        test=parsed.test,
        confidence=parsed.confidence,
        steps=StepReader(pattern=parsed.step_pattern),
        suite=Suite(folder=absolute(parsed.out), options=options, samples=parsed.samples, execution=execution),
    )


def _endpoints(arguments: Arguments, good: Step, bad: Step) -> Endpoints:
    suite, confidence = arguments.suite, arguments.confidence
    if arguments.cases:
        return measure_endpoints(suite, good, bad, arguments.cases, confidence, None)
    cases, survey = choose_cases(suite, good, bad, arguments.gate, confidence)
    return measure_endpoints(suite, good, bad, cases, confidence, survey)


def _search(arguments: Arguments) -> int:
    steps = between(arguments.checkpoints, arguments.good, arguments.bad, arguments.steps)
    good, bad, last = steps[0], steps[-1], len(steps) - 1
    print_line(f"{len(steps)} checkpoints from {good.name} (good) to {bad.name} (bad)")
    endpoints = _endpoints(arguments, good, bad)
    parallel = arguments.suite.execution.parallel
    bisection = Bisection(arguments.suite, steps, endpoints, confidence=arguments.confidence)
    if endpoints.doubt:
        raise EndpointsError(1, endpoints.doubt)
    print_line(f"endpoints  {endpoints.summary}")
    log = BisectLog(bisection=bisection)
    most = expected_measurements(last, parallel=parallel)
    print_line(f"searching  {last - 1} steps between them, about {most} to measure")

    def note(results: Mapping[int, StepResult], posterior: Posterior, measured: Sequence[int]) -> None:
        verdicts = log.note(results, posterior)
        for position in measured:
            print_line(step_line(steps[position], verdicts[position]))

    bisection.note = note
    edge = search(last, bisection, confidence=arguments.confidence, parallel=parallel)
    for line in log.finish(edge, confirm(bisection, edge) if edge.is_shown else None):
        print_line(line)
    if not edge.is_shown:
        return 1
    return 2 if edge.is_step and edge.skipped else 0


def _test(arguments: Arguments) -> int:
    """Test one checkpoint, and return the exit code for `git bisect run`."""
    assert arguments.test is not None
    # Commits are searched, not steps, so that the endpoints need no step in their names.
    good, bad = (Step(number=0, path=absolute(path)) for path in (arguments.good, arguments.bad))
    for endpoint, option in ((good, "--good"), (bad, "--bad")):
        # The suite would name its own options in an error about them.
        fingerprint_of(endpoint.path, option=option, options=arguments.suite.options)
    endpoints = _endpoints(arguments, good, bad)
    if endpoints.doubt:
        raise EndpointsError(1, endpoints.doubt)
    print_line(f"endpoints  {endpoints.summary}")
    bounds = search_bounds(endpoints.loss_points, alpha=(1 - arguments.confidence) / GIT_MEASUREMENTS)
    result = compare_step(arguments.suite, arguments.test.resolve(), good.path, bounds, endpoints.cases)
    print_line(
        f"{arguments.test}: {result.verdict}"
        + (f": {result.reason}" if result.reason else f", {result.difference:+.1f}")
    )
    return {"good": 0, "bad": 1, "skipped": CANNOT_TEST}[result.verdict]


def _fail(line: str, exit_code: int) -> int:
    report_wrong_use(line)
    return exit_code
