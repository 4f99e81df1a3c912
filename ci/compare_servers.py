"""Ask two servers, or a server and a checkpoint, the same samples, and say how their answers differ.

    longctx compare --model /ckpt --base-url http://node7:8000/v1 --against-url http://node8:8000/v1
    longctx compare --model /ckpt --base-url http://node7:8000/v1
    longctx compare --model /ckpt --base-url http://node7:8000/v1 --against '--chat server'

The second form compares the server with the checkpoint, loaded on this machine. --against takes options of the run that
is compared with; all other options are those of longctx run, for both runs: --lengths, --suite, -k, ... The
answers are compared sample by sample, and the log-probabilities of the gold answers where both sides give them. The
same command continues a comparison that was stopped.

Exit codes: 0 equal, or different within noise; 1 worse, or an error in a run; 3 not comparable; 4 wrong use.
"""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import UnsetType

from longctx.ci.bisect.compare import Bounds, regression_gate
from longctx.ci.suite_options import without_options
from longctx.ci.suite_process import LocalProcesses, SuiteRun, run_suite
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.fixtures.words import equal_start
from longctx.plugins.config.options import RUN_OPTIONS

SAMPLES = 32
MOST_SHOWN = 3
NOT_COMPARABLE = 3
SHOWN_CHARACTERS = 60
# Less is the noise of number formats, however many samples show it.
LEAST_RISE_NATS = 0.005
BOUNDS = Bounds(confidence=0.99, drop_points=2.0)
# Begins the error of a server that gives no log-probabilities of a prompt.
NO_LIKELIHOODS = "--signal:"

Samples = Mapping[tuple[str, int], Mapping[str, Any]]
"""The samples of one side by case and index."""

Sides = Mapping[str, Sequence[str]]
"""The options of each run alone, by `against` and `model`."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = CommandParser(prog="longctx compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", required=True, metavar="PATH", help="the checkpoint that both sides have")
    parser.add_argument("--base-url", metavar="URL", help="the server to compare (default: the checkpoint itself)")
    parser.add_argument("--against-url", metavar="URL", help="the server to compare with (default: the checkpoint)")
    parser.add_argument("--against", default="", metavar="OPTIONS", help="options of the run to compare with alone")
    parser.add_argument("--samples", default=str(SAMPLES), metavar="N", help=f"samples of a case (default: {SAMPLES})")
    parser.add_argument(
        "--out", type=Path, default=Path("out/compare"), metavar="DIR",
        help="folder for the reports, samples and journals of both runs (default: out/compare)",
    )  # fmt: skip
    given, options = parser.parse_known_args(list(sys.argv[1:] if arguments is None else arguments))
    try:
        against = shlex.split(given.against)
    except ValueError as error:
        return report_wrong_use(f"--against: cannot read {given.against!r} ({error}); quote it as a shell does")
    if not (given.base_url or given.against_url or against):
        return report_wrong_use("--base-url: two sides are needed; give --base-url, --against-url or --against")
    url = given.against_url or (given.base_url if against and "--engine" not in against else None)
    # If only one side has a server, the options of one engine are for the side that has it.
    differ = bool(url) != bool(given.base_url)
    sides = {}
    for name, address, alone in (("against", url, against), ("model", given.base_url, [])):
        where = ["--base-url", address] if address else ["--engine", "hf", *_own_template(options)]
        own = _without_engines(options, "", "hf" if address else "openai") if differ else []
        sides[name] = [*where, *own, *alone]
    common = _without_engines(options, "hf", "openai") if differ else options
    try:
        return _compare(absolute(given.out), [*common, "--model", given.model, "--samples", given.samples], sides)
    except KeyboardInterrupt:
        return report_wrong_use("stopped; the same command continues")


def _own_template(options: Sequence[str]) -> list[str]:
    """Return the option of the side without a server if the other one is asked by its chat API."""
    asks_chat_api = "--chat=server" in options or ("--chat", "server") in pairwise(options)
    return ["--chat", "auto"] if asks_chat_api else []


def _without_engines(options: Sequence[str], *engines: str) -> list[str]:
    return without_options(options, [option for option in RUN_OPTIONS.values() if option.engine in engines])


def _compare(folder: Path, options: Sequence[str], sides: Sides) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    thresholds = folder / "thresholds.toml"
    write_file(thresholds, BOUNDS.as_toml().encode())
    options = [*options, "--full", "--thresholds", str(thresholds)]
    signal = [] if any(word.startswith("--signal") for word in options) else ["--signal", "both"]
    name, run = _measure(folder, [*options, *signal], sides)
    if signal and run.report is None and run.reason.startswith(NO_LIKELIHOODS):
        why, _, _ = run.reason.removeprefix(NO_LIKELIHOODS).partition(";")
        print_line(f"answers only: {why.strip()}")
        name, run = _measure(folder, options, sides)
    report, error = run.report, _error(run)
    if report is None or error is not None:
        print_line(f"{name}: {error}", sys.stderr)
        return NOT_COMPARABLE if report is None else 1
    against, answers = (_read_samples(folder / f"{name}.jsonl") for name in sides)
    differences, rises = list(_differences(against, answers)), [mean for _, mean, _, _ in _rises(report)]
    is_worse = _is_worse(report)
    word = "worse than the other side" if is_worse else "different, within noise"
    if not is_worse and not differences and all(abs(rise) <= LEAST_RISE_NATS for rise in rises):
        word = "equal"
    shared = len(answers.keys() & against.keys())
    print_line(f"verdict    {word}")
    print_line(f"answers    {shared - len(differences)} of {shared} texts are equal")
    for line in [*_score_lines(report), *differences[:MOST_SHOWN]]:
        print_line(line)
    server = report.server
    for note in () if isinstance(server, UnsetType) else server.notes:
        print_line(f"server     {note}")
    print_line(f"reports    {folder}/model.json, {folder}/against.json")
    return int(is_worse)


def _measure(folder: Path, options: Sequence[str], sides: Sides) -> tuple[str, SuiteRun]:
    """Run the sides one after the other, up to one with an error; return the name and the run of the last one.

    Each has a journal of its own, because two servers of one checkpoint have the same execution.
    """
    baseline: list[str] = []
    for name, own in sides.items():
        print_line(f"measuring  {name}: {shlex.join(own)}")
        file = folder / name
        files = ["--journal", f"{file}-journal", "--samples-jsonl", f"{file}.jsonl"]
        run = run_suite(
            [*options, *baseline, *own, *files], report=file.with_suffix(".json"), fingerprints=(),
            executor=LocalProcesses(), again=True,
        )  # fmt: skip
        if _error(run) is not None:
            break
        baseline = ["--baseline", f"{file}.json"]
    return name, run


def _error(run: SuiteRun) -> str | None:
    if run.report is None:
        return run.reason
    return next((case.error for case in run.report.cases if case.error), None)


def _read_samples(path: Path) -> Samples:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(line["case"], line["index"]): line for line in lines}


def _differences(against: Samples, answers: Samples) -> Iterator[str]:
    """Yield a line for every sample with different texts, from the first character on that differs.

    The hf engine ends an answer once nothing can change its score.
    """
    for case, index in sorted(answers.keys() & against.keys()):
        sample, other_sample = answers[case, index], against[case, index]
        text, other = sample["answer"], other_sample["answer"]
        at = equal_start(text, other)
        is_part = at in (len(text), len(other))
        if text == other or (is_part and "decided" in (sample["finish"], other_sample["finish"])):
            continue
        shown = one_line(text[at:], SHOWN_CHARACTERS)
        other_shown = one_line(other[at:], SHOWN_CHARACTERS)
        yield f"differs    {case} {index}, character {at + 1}: {shown!r}, and on the other side {other_shown!r}"


def _is_worse(report: JsonReport) -> bool:
    gate = regression_gate(report)
    loses_likelihood = any(mean > LEAST_RISE_NATS and low > 0 for _, mean, low, _ in _rises(report))
    return loses_likelihood or (gate is not None and gate.verdict == "fail")


def _rises(report: JsonReport) -> list[tuple[str, float, float, float]]:
    """Return the rise of the gold answers' loss by panel, in nats a token, with its confidence interval."""
    rises = []
    for panel in report.likelihood.panels if report.likelihood else ():
        if panel.change is not None and panel.change.nll is not None:
            low, high = panel.change.nll.interval
            rises.append((f"{panel.family} {panel.length}", panel.change.nll.mean, low, high))
    return rises


def _score_lines(report: JsonReport) -> Iterator[str]:
    gate = regression_gate(report)
    if gate is not None and gate.measured is not None and gate.interval is not None:
        low, high = gate.interval
        yield f"scores     {gate.measured:+.1f} points ({low:+.1f} to {high:+.1f}) on {gate.samples} samples"
    for name, mean, low, high in _rises(report):
        yield f"gold       {name}: loss {mean:+.4f} nats a token ({low:+.4f} to {high:+.4f})"
