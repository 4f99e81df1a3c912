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

from __future__ import annotations

import argparse
import json
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from longctx.ci.bisect.compare import Bounds, regression_gate
from longctx.ci.suite_process import LocalProcesses, SuiteRun, run_suite
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.shown_text import one_line
from longctx.fixtures.tokenization.load import TokenizerError, load_tokenizer
from longctx.plugins.config.options import SUITE_OPTIONS
from longctx.plugins.report.sections.server import notes_of

SAMPLES = 32
MOST_SHOWN = 3
NOT_COMPARABLE = 3
SHOWN_CHARACTERS = 60
# Less is the noise of number formats, however many samples show it.
LEAST_RISE_NATS = 0.005
BOUNDS = Bounds(confidence=0.99, drop_points=2.0)
# Begins the error of a server that gives no log-probabilities of a prompt.
NO_LIKELIHOODS = "--signal:"

Verdict = Literal["equal", "within noise", "worse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two runs."""

    name: str
    """`model` or `against`."""
    options: tuple[str, ...]
    """Options of this run alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """A sample that the two sides answered with different texts."""

    sample: str
    token: int
    """The number of the first token that differs, from 1."""
    answer: str
    """The answer from that token on."""
    other: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = CommandParser(
        prog="longctx compare", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
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
    if given.against_url is None and not against and given.base_url is None:
        return report_wrong_use("--against: both sides are the same; give other options, or a server")
    sides, options = _sides(given, against, options)
    common = [*options, "--model", given.model, "--samples", given.samples, "--full"]
    try:
        return _compare(absolute(given.out), common, sides, given.model)
    except OSError as error:
        return report_wrong_use(f"--out: cannot use {error.filename} ({error.strerror}); name a folder to write to")
    except KeyboardInterrupt:
        return report_wrong_use("stopped; the same command continues")


def _sides(
    given: argparse.Namespace, against: Sequence[str], options: list[str]
) -> tuple[tuple[_Side, ...], list[str]]:
    """Return the two sides and the options that are for both.

    If only one side has a server, the options of one engine are for the side that has it.
    """
    url = given.against_url or (given.base_url if against and "--engine" not in against else None)
    addresses = {"against": url, "model": given.base_url}
    differ = bool(url) != bool(given.base_url)
    sides = []
    for name, address in addresses.items():
        own = _options_of(options, "openai" if address else "hf") if differ else []
        where = ["--base-url", address] if address else ["--engine", "hf", *_own_template(options)]
        sides.append(_Side(name=name, options=(*where, *own, *(against if name == "against" else ()))))
    return tuple(sides), _options_of(options, None) if differ else options


def _own_template(options: Sequence[str]) -> list[str]:
    """Return the option of the side without a server if the other one is asked by its chat API."""
    words = list(options)
    asks_chat_api = "--chat=server" in words or ["--chat", "server"] in [words[at : at + 2] for at in range(len(words))]
    return ["--chat", "auto"] if asks_chat_api else []


def _options_of(options: Sequence[str], engine: str | None) -> list[str]:
    """Return the options that are for one engine, or those that are for both, with their values."""
    engines = {option.flag: option.engine for option in SUITE_OPTIONS if option.engine}
    kept: list[str] = []
    takes_value = False
    for at, word in enumerate(options):
        if takes_value:
            takes_value = False
            continue
        flag, equals, _ = word.partition("=")
        takes_value = flag in engines and not equals
        if engines.get(flag) == engine:
            kept += options[at : at + 1 + takes_value]
    return kept


def _compare(folder: Path, common: Sequence[str], sides: Sequence[_Side], model: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    thresholds = folder / "thresholds.toml"
    write_file(thresholds, BOUNDS.as_toml().encode())
    common = [*common, "--thresholds", str(thresholds)]
    signal = ["--signal", "both"] if not any(word.startswith("--signal") for word in common) else []
    runs: list[SuiteRun] = []
    for side in sides:
        baseline = ["--baseline", str(folder / "against.json")] if side.name == "model" else []
        run = _run(folder, side, [*common, *signal, *baseline])
        if run.report is None and signal and run.reason.startswith(NO_LIKELIHOODS):
            print_line(f"answers only: {run.reason.removeprefix(NO_LIKELIHOODS).partition(';')[0].strip()}")
            signal = []
            if side.name == "model":
                runs[0] = _run(folder, sides[0], common)
            run = _run(folder, side, [*common, *baseline])
        errors = [case.error for case in run.report.cases if case.error] if run.report else [run.reason]
        if errors or run.report is None:
            print_line(f"{side.name}: {errors[0]}", sys.stderr)
            return NOT_COMPARABLE if run.report is None else 1
        runs.append(run)
    report = runs[-1].report
    assert report is not None
    others, answers = (_answers(folder / f"{side.name}.jsonl") for side in sides)
    try:
        tokenizer: Any = load_tokenizer(model)
    except TokenizerError:
        # Of a model that only the servers know.
        tokenizer = None
    differences = list(_differences(others, answers, tokenizer))
    verdict = _verdict(report, differences)
    for line in _lines(report, verdict, len(answers.keys() & others.keys()), differences):
        print_line(line)
    print_line(f"reports    {folder}/model.json, {folder}/against.json")
    return int(verdict == "worse")


def _run(folder: Path, side: _Side, options: Sequence[str]) -> SuiteRun:
    """Run one side into a journal of its own, because two servers of one checkpoint have the same execution."""
    name = folder / side.name
    print_line(f"measuring  {side.name}: {shlex.join(side.options)}")
    arguments = [*options, *side.options, "--journal", f"{name}-journal", "--samples-jsonl", f"{name}.jsonl"]
    return run_suite(
        arguments, report=name.with_suffix(".json"), log=name.with_suffix(".log"), fingerprints=(),
        executor=LocalProcesses(cancelled=threading.Event()), again=True,
    )  # fmt: skip


def _answers(path: Path) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the samples of one side by case and index."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(line["case"], line["index"]): line for line in lines}


def _differences(
    others: Mapping[tuple[str, int], Mapping[str, Any]],
    answers: Mapping[tuple[str, int], Mapping[str, Any]],
    tokenizer: Any,
) -> Iterator[_Difference]:
    """Yield the samples with different texts. The hf engine ends an answer once nothing can change its score."""
    for key in sorted(answers.keys() & others.keys()):
        one, other = answers[key]["answer"], others[key]["answer"]
        ends_early = "decided" in (answers[key]["finish"], others[key]["finish"])
        if one == other or (ends_early and (one.startswith(other) or other.startswith(one))):
            continue
        ids, other_ids = _tokens(tokenizer, one), _tokens(tokenizer, other)
        pairs = enumerate(zip_longest(ids, other_ids))
        at = next((at for at, (first, second) in pairs if first != second), 0)
        yield _Difference(
            sample=f"{key[0]} {key[1]}",
            token=at + 1,
            answer=_text(tokenizer, ids[at:]),
            other=_text(tokenizer, other_ids[at:]),
        )


def _tokens(tokenizer: Any, text: str) -> list[Any]:
    return text.split() if tokenizer is None else list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _text(tokenizer: Any, tokens: Sequence[Any]) -> str:
    text = " ".join(tokens) if tokenizer is None else str(tokenizer.decode(list(tokens)))
    return one_line(text, SHOWN_CHARACTERS)


def _rises(report: JsonReport) -> list[tuple[str, float, float, float]]:
    """Return the rise of the gold answers' loss by panel, in nats a token, with its confidence interval."""
    panels = report.likelihood.panels if report.likelihood else ()
    changes = [(f"{panel.family} {panel.length}", panel.change.nll) for panel in panels if panel.change]
    return [(name, nll.mean, nll.interval[0], nll.interval[1]) for name, nll in changes if nll]


def _verdict(report: JsonReport, differences: Sequence[_Difference]) -> Verdict:
    gate = regression_gate(report)
    loses_likelihood = any(mean > LEAST_RISE_NATS and low > 0 for _, mean, low, _ in _rises(report))
    if (gate is not None and gate.verdict == "fail") or loses_likelihood:
        return "worse"
    is_same = not differences and all(abs(mean) <= LEAST_RISE_NATS for _, mean, _, _ in _rises(report))
    return "equal" if is_same else "within noise"


def _lines(report: JsonReport, verdict: Verdict, samples: int, differences: Sequence[_Difference]) -> Iterator[str]:
    words = {
        "equal": "equal", "within noise": "different, within noise", "worse": "worse than the other side",
    }  # fmt: skip
    yield f"verdict    {words[verdict]}"
    yield f"answers    {samples - len(differences)} of {samples} texts are equal"
    gate = regression_gate(report)
    if gate is not None and gate.measured is not None and gate.interval is not None:
        low, high = gate.interval
        yield f"scores     {gate.measured:+.1f} points ({low:+.1f} to {high:+.1f}) on {gate.samples} samples"
    for name, mean, low, high in _rises(report):
        yield f"gold       {name}: loss {mean:+.4f} nats a token ({low:+.4f} to {high:+.4f})"
    for each in differences[:MOST_SHOWN]:
        yield f"differs    {each.sample}, token {each.token}: {each.answer!r}, and on the other side {each.other!r}"
    for note in notes_of(report):
        yield f"server     {note}"


if __name__ == "__main__":
    sys.exit(main())
