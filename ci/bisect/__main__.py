"""At which step did a run become worse? `python -m ci.bisect --good A --bad B --checkpoints 'runs/a/step-*'`

Searches by halves on one case (the one that lost most, or --case, or --gate), sample by sample against the
good end, and stops each look as soon as it is sure. All other options are pytest's: --lengths, -k, -n, ...
Given the same command again, it goes on where it was stopped.

Exit codes: 0 the first bad step was found; 1 the ends are not what they were called; 2 found up to steps
that could not be looked at; 3 the ends could not be compared; 4 wrong use. With --test, those of
`git bisect run`: 0 good, 1 bad, 125 cannot be tested, 128 stop, for whatever says nothing of the checkpoint.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.bisect.compare import Suite, asked, search_bounds
from ci.bisect.endpoints import Endpoints, EndsError, compare_ends, worst_cases
from ci.bisect.report import BisectLog, conclude, look_line
from ci.bisect.search import StepVerdict, most_questions, search
from ci.checkpoint_dirs import CheckpointsError, Step, between, read_step
from ci.suite_process import REPOSITORY
from fixtures.checkpoints.checkpoint import CheckpointError, read_checkpoint
from fixtures.cli import CommandParser
from fixtures.tasks import FAMILIES
from plugins.gates.thresholds import Gate, ThresholdsError, load_thresholds

CANNOT_TEST, STOP_GIT = 125, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The command line, read."""

    good: Path
    bad: Path
    checkpoints: tuple[str, ...]
    case: str | None
    gate: Gate | None
    test: Path | None
    confidence: float
    suite: Suite


def main(arguments: list[str] | None = None) -> int:
    """Prints each look as it is done, writes bisect.json and bisect.svg, returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # From what was typed, since what is wrong with the rest has to be told to git as well.
    testing = any(each.partition("=")[0] == "--test" for each in arguments)
    try:
        given = _read(arguments)
        return _test(given) if given.test is not None else _search(given)
    except (CheckpointError, CheckpointsError, ThresholdsError) as error:
        return _refused(str(error), STOP_GIT if testing else 4)
    except EndsError as error:
        return _refused(str(error), STOP_GIT if testing else error.code)
    except KeyboardInterrupt:
        return _refused("stopped; the same command goes on from here", STOP_GIT + 2)
    except SystemExit:  # argparse has told of wrong use, or what there is: neither says that a checkpoint is good
        if not testing:
            raise
        return STOP_GIT
    except Exception as error:  # Python would end with 1, which git takes for a bad checkpoint
        if not testing:
            raise
        return _refused(f"{type(error).__name__}: {' '.join(str(error).split())}", STOP_GIT)


def _read(arguments: list[str]) -> Arguments:
    parser = CommandParser(
        prog="python -m ci.bisect", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--good", type=Path, required=True, metavar="CKPT", help="a checkpoint before the loss")
    add("--bad", type=Path, required=True, metavar="CKPT", help="a checkpoint after it")
    add("--checkpoints", nargs="+", default=[], metavar="PATTERN", help="those between; the last number is the step")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--case", metavar="ID", help="such as 'test_ruler[niah_single_2-8k]' (default: what lost most)")
    which.add_argument("--gate", metavar="NAME", help="the mean over a gate's cases, at the length that lost most")
    add("--test", type=Path, metavar="CKPT", help="only say of this one whether it is good, for git bisect run")
    add("--samples", type=int, default=500, metavar="N", help="per case, at most (default: 500)")
    add("--confidence", type=float, default=0.99, metavar="P", help="that the step is right (default: 0.99)")
    add("--thresholds", type=Path, default=REPOSITORY / "thresholds.toml", metavar="FILE", help="where --gate is")
    add("--out", type=Path, default=Path("out/bisect"), metavar="DIR", help="reports, bisect.json, bisect.svg")
    given, options = parser.parse_known_args(arguments)
    if not 0.5 <= given.confidence <= 0.999 or given.samples < 1:
        raise CheckpointsError("--confidence runs from 0.5 to 0.999, --samples from 1 on")
    return Arguments(
        good=given.good,
        bad=given.bad,
        checkpoints=tuple(given.checkpoints),
        case=given.case,
        gate=None if given.gate is None else _gate(given.gate, given.thresholds),
        test=given.test,
        confidence=given.confidence,
        suite=Suite(folder=given.out.resolve(), options=options, samples=given.samples),
    )


def _gate(name: str, thresholds: Path) -> Gate:
    gates = {gate.name: gate for gate in load_thresholds(thresholds, known_tasks=FAMILIES).gates}
    if name not in gates:
        raise ThresholdsError(f"--gate: no gate {name!r} in {thresholds}; known are {', '.join(gates) or 'none'}")
    return gates[name]


def _ends(given: Arguments, good: Step, bad: Step) -> Endpoints:
    if given.case is not None:
        return compare_ends(given.suite, good, bad, (given.case,), given.confidence, None)
    cases, survey = worst_cases(given.suite, good, bad, given.gate, given.confidence)
    return compare_ends(given.suite, good, bad, cases, given.confidence, survey)


def _search(given: Arguments) -> int:
    steps = between(given.checkpoints, given.good, given.bad)
    good, bad, last = steps[0], steps[-1], len(steps) - 1
    _say(f"{len(steps)} checkpoints: {good.name} is called good, {bad.name} bad")
    ends = _ends(given, good, bad)
    _say(f"ends       {ends.told}")
    bounds = search_bounds(ends.lost, alpha=(1 - given.confidence) / most_questions(last) if last > 1 else 0.01)
    told = BisectLog(steps=steps, ends=ends, suite=given.suite, bounds=bounds, confidence=given.confidence)
    _say(f"searching  {last - 1} steps between, about {most_questions(last)} to look at")

    def ask(place: int) -> StepVerdict:
        found, _ = asked(given.suite, steps[place].path, good.path, bounds, ends.cases)
        _say(look_line(steps[place], found))
        told.note(place, found)
        return found

    found = search(last, ask)
    code, lines = conclude(told, found)
    for line in lines:
        _say(line)
    return code


def _test(given: Arguments) -> int:
    """One checkpoint for `git bisect run`; bounds as in a search of 1000 steps."""
    assert given.test is not None
    good, bad = (read_step(path, option=option) for path, option in ((given.good, "--good"), (given.bad, "--bad")))
    for end, option in ((good, "--good"), (bad, "--bad")):
        # The suite would call them by its own options.
        read_checkpoint(str(end.path), option=option)
    ends = _ends(given, good, bad)
    _say(f"ends       {ends.told}")
    bounds = search_bounds(ends.lost, alpha=(1 - given.confidence) / most_questions(1000))
    found, _ = asked(given.suite, given.test.resolve(), good.path, bounds, ends.cases)
    _say(
        f"{given.test}: {found.word}"
        + (f": {found.reason}" if found.reason else f", {asdict(found)['difference']:+.1f}")
    )
    return {"good": 0, "bad": 1, "skipped": CANNOT_TEST}[found.word]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _refused(line: str, code: int) -> int:
    sys.stderr.write(f"error: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
