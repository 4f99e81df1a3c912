"""Find the step at which a training run became worse.

    longctx bisect --good runs/a/step-2000 --bad runs/a/step-9000 --checkpoints 'runs/a/step-*'

A noisy binary search over the checkpoints on one case: the case that lost most, or the one of --case or --gate. Steps
answer samples on which the endpoints differ, and more of them where answers flip. The result is a step or a range of
steps, with the probability that the run became worse there. All other options are those of longctx run: --lengths, -k,
-n, ... The same command continues a search that was stopped.

Exit codes: 0 the first bad step, or a range of steps with it, was found; 1 no loss is shown; 2 the first bad step may
also be a step that could not be measured; 3 the endpoints could not be compared; 4 wrong use.
"""

import argparse
import math
import signal
import sys
from collections.abc import Mapping, Sequence

from longctx.ci.bisect.compare import EndpointsError, Suite, choose_cases, measure_endpoints
from longctx.ci.bisect.measurements import Bisection, confirm
from longctx.ci.bisect.posterior import Posterior
from longctx.ci.bisect.report import step_line, step_verdict, write_result
from longctx.ci.bisect.search import StepResult, search
from longctx.ci.checkpoint_dirs import StepReader, between
from longctx.ci.launch import read_execution
from longctx.ci.run_file import command_options, run_options, split_config
from longctx.ci.suite_options import suite_thresholds
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.plugins.config.options import add_own_options, check_own_values, refused_option
from longctx.plugins.thresholds.records import SHIPPED

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command: print every step's verdict, write the page, the data and the chart, and return the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        parsed = _parse(sys.argv[1:] if arguments is None else arguments)
        with parsed.suite.execution:
            return _search(parsed)
    except ValueError as error:
        return report_wrong_use(str(error))
    except EndpointsError as error:
        report_wrong_use(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        report_wrong_use("stopped; the same command continues")
        return INTERRUPTED


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options, with the suite that they describe and the gate itself; raise ValueError."""
    parser = CommandParser(prog="longctx bisect", description=__doc__, allow_abbrev=False)
    add_own_options(parser, "bisect")
    file, words = split_config(arguments, "bisect")
    from_file = [] if file is None else [*run_options(file, "bisect"), *command_options(file, "bisect")]
    parsed, options = parser.parse_known_args([*from_file, *words])
    if refused := refused_option(options, "bisect"):
        raise ValueError(refused)
    check_own_values(parsed, "bisect")
    execution = read_execution(parsed.launch, parsed.parallel, print_line)
    if parsed.gate is not None:
        thresholds = parsed.thresholds or SHIPPED
        gates = {known.name: known for known in suite_thresholds(thresholds, options).gates}
        if parsed.gate not in gates:
            known_names = ", ".join(gates) or "none"
            raise ValueError(f"--gate: no gate {parsed.gate!r} in {thresholds}; known gates: {known_names}")
        parsed.gate = gates[parsed.gate]
    parsed.suite = Suite(folder=absolute(parsed.out), options=options, samples=parsed.samples, execution=execution)
    return parsed


def _search(parsed: argparse.Namespace) -> int:
    steps = between(parsed.checkpoints, parsed.good, parsed.bad, StepReader(pattern=parsed.step_pattern))
    good, bad, last = steps[0], steps[-1], len(steps) - 1
    print_line(f"{len(steps)} checkpoints from {good.name} (good) to {bad.name} (bad)")
    suite, confidence = parsed.suite, parsed.confidence
    cases = tuple(dict.fromkeys(parsed.case or ())) or choose_cases(suite, good, bad, parsed.gate, confidence)
    endpoints = measure_endpoints(suite, good, bad, cases, confidence)
    if endpoints.doubt:
        raise EndpointsError(1, endpoints.doubt)
    bisection = Bisection(suite, steps, endpoints, confidence=confidence)
    parallel = suite.execution.parallel
    print_line(f"endpoints  {endpoints.evidence} over {endpoints.pairs} pairs")
    rounds = math.ceil(math.log(last, parallel + 1))
    print_line(f"searching  {last - 1} steps between them, about {min(last - 1, rounds * parallel)} to measure")

    def note(results: Mapping[int, StepResult], posterior: Posterior, measured: Sequence[int]) -> None:
        for position in measured:
            verdict = step_verdict(bisection, posterior, position, results[position])
            print_line(step_line(verdict))

    bisection.note = note
    edge = search(last, bisection, confidence=confidence, parallel=parallel)
    for line in write_result(bisection, edge, confirm(bisection, edge) if edge.is_shown else None):
        print_line(line)
    if not edge.is_shown:
        return 1
    return 2 if edge.is_step and edge.skipped else 0
