"""Measure which faults the suite catches, by which means and at what cost, and how often it raises a false alarm.

    python -m benchmarks.catch_matrix CKPT --work out/catches --rows rope_theta:1,decode_roll,=sharded

A row is a fault of `python -m benchmarks.faults list`, with a strength, or a harmless change (`=NAME`, see
`benchmarks.harmless_changes`). Each row runs the real commands on the checkpoint, the cheapest first: the load check
(`--plan`), `--preflight` and `--invariance`, until one catches it; and always the paired gate against the sound
checkpoint's report, with up to --samples pairs if nothing caught it and --caught-samples if invariance did. Beside
them stands the practice of comparing two means of 50 samples with a fixed tolerance, by resampling the same scores. A
finished row is a file in --work, and the same command continues; `--table` prints all of them in Markdown. Exit code 1
if a harmless change was caught.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.harmless_changes import EXECUTIONS, FILE_CHANGES, write_changed
from longctx.ci.suite_process import read_report
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.installation import SUITE as REPOSITORY
from longctx.fixtures.records.report import JsonReport

CHECKS = ("load", "preflight", "invariance")
SCORE = "score"
# The practice beside it: samples of each checkpoint, the tolerated loss in points, and replications.
PRACTICE_SAMPLES = 50
PRACTICE_POINTS = 5.0
REPLICATIONS = 10_000
BATCH = "32"
GATES = """
[regression]
drop = 2
"""
TEMPLATE_FAULTS = ("template_lost", "double_bos", "prompt_cut")
PLUGIN = ("-p", "benchmarks.faults.plugin", "--inject-fault")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One finished row; the field names are keys of its file."""

    checkpoint: str
    row: str
    tried: tuple[str, ...]
    """The checks in the order in which they ran."""
    caught_by: str | None
    """The check that caught it, or `score` for the paired gate; None if nothing did."""
    line: str
    """The first line that the suite reported about it; empty if nothing caught it."""
    verdict: str | None
    """The paired gate's; None if it was not measured."""
    reason: str
    """The paired gate's reason."""
    pairs: int
    """Pairs until the verdict of the paired gate."""
    practice: float | None
    """Share of the comparisons of two means that call it a loss; None without pairs."""
    cpu_seconds: float
    """CPU time of all commands of the row."""

    @property
    def is_harmless(self) -> bool:
        return self.row.startswith("=")

    @property
    def is_false_alarm(self) -> bool:
        return self.is_harmless and self.caught_by is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A checkpoint with the fault or the change of a row, and the options under which it runs."""

    model: Path
    options: tuple[str, ...] = ()

    @property
    def has_sound_files(self) -> bool:
        """Tell if only the engine is broken, which neither the load check nor the preflight reads."""
        return "--inject-fault" in self.options


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """An ended command."""

    code: int
    lines: tuple[str, ...]


def prepare(checkpoint: Path, row: str, work: Path) -> Subject:
    """Write the checkpoint of a row, unless it is there already; raise ValueError for an unknown row."""
    if row.startswith("="):
        name = row[1:]
        if name in EXECUTIONS:
            return Subject(model=checkpoint, options=EXECUTIONS[name])
        if name not in FILE_CHANGES:
            raise ValueError(f"--rows: unknown {row!r}; use =NAME with {', '.join((*FILE_CHANGES, *EXECUTIONS))}")
        out = work / "models" / name
        out.parent.mkdir(parents=True, exist_ok=True)
        return Subject(model=out if out.is_dir() else write_changed(checkpoint, out, name))
    from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS
    from benchmarks.faults.engine_faults import find_fault

    name, _, strength = row.partition(":")
    fault = find_fault(name)
    if name not in CHECKPOINT_FAULTS:
        return Subject(model=checkpoint, options=(*PLUGIN, f"{name}:{float(strength or fault.usual):g}"))
    out = work / "models" / row.replace(":", "-")
    if not (out / "fault.json").is_file():
        more = ["--strength", strength] if strength else []
        command = [sys.executable, "-m", "benchmarks.faults", "inject", str(checkpoint), str(out), "--fault", name]
        subprocess.run([*command, *more], cwd=REPOSITORY, check=True, capture_output=True)
    # Without a template --chat auto would quietly use none.
    return Subject(model=out, options=("--chat", "on") if name in TEMPLATE_FAULTS else ())


def pytest(*arguments: str) -> Ended:
    """Run the suite and return its exit code and output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ended(code=ended.returncode, lines=tuple((ended.stdout + ended.stderr).splitlines()))


class Matrix:
    """The rows of one checkpoint."""

    def __init__(self, checkpoint: Path, work: Path, options: argparse.Namespace):
        self.checkpoint = checkpoint
        self.work = work
        self.checks = [check for check in options.means.split(",") if check in CHECKS]
        self.has_score = SCORE in options.means.split(",")
        self.samples = options.samples
        self.caught_samples = options.caught_samples
        self.selection = ("--suite", "ruler", "--lengths", options.lengths, "-k", options.keyword)

    def result(self, row: str) -> Result:
        """Return a row's result, measured unless its file is there."""
        file = self.work / f"{row.replace('=', 'harmless-').replace(':', '-')}.json"
        if file.is_file():
            return Result(**json.loads(file.read_text(encoding="utf-8")))
        measured = self._measure(row)
        write_file(file, (json.dumps(asdict(measured), indent=1) + "\n").encode())
        return measured

    def _measure(self, row: str) -> Result:
        before = _cpu_seconds()
        subject = prepare(self.checkpoint, row, self.work)
        tried, caught_by, line = self._check(subject)
        report = None
        if self.has_score and caught_by not in ("load", "preflight"):
            report = self._compare(subject, row, self.samples if caught_by is None else self.caught_samples)
        gate = None if report is None else next(gate for gate in report.gates if gate.kind == "regression")
        if caught_by is None and gate is not None and gate.verdict == "fail":
            caught_by, line = SCORE, gate.reason
        return Result(
            checkpoint=self.checkpoint.name,
            row=row,
            tried=tuple(tried),
            caught_by=caught_by,
            line=line,
            verdict=None if gate is None else gate.verdict,
            reason="" if gate is None else gate.reason,
            pairs=0 if report is None else sum(case.samples for case in report.cases),
            practice=None if report is None else self._practice(report),
            cpu_seconds=round(_cpu_seconds() - before, 1),
        )

    def _check(self, subject: Subject) -> tuple[list[str], str | None, str]:
        """Run the checks until one raises an alarm; return those that ran, that one and its line."""
        tried: list[str] = []
        for check in self.checks:
            if subject.has_sound_files and check != "invariance":
                continue
            tried.append(check)
            line = self._alarm(check, subject)
            if line:
                return tried, check, line
        return tried, None, ""

    def _alarm(self, check: str, subject: Subject) -> str:
        """Return the first line of an alarm; empty if the check passes."""
        model = (f"--model={subject.model}",)
        if check == "invariance":
            place = ("tests_longctx/test_invariance.py", "--journal", str(self.work / "journal"))
            ended = pytest(*model, "--invariance", *place, "--dtype", "float32", *subject.options)
        else:
            only = ("--plan", "--samples", "2") if check == "load" else ("--preflight", "--samples", "4")
            ended = pytest(*model, *self.selection, *subject.options, *only)
        return next((line.strip() for line in ended.lines if _is_alarm(line, failed=ended.code != 0)), "")

    def _compare(self, subject: Subject, row: str, samples: int) -> JsonReport | None:
        """Return the report of a row that was compared with the sound checkpoint's."""
        sound = self._report("sound", Subject(model=self.checkpoint), self.samples, "--full")
        return read_report(self._report(row, subject, samples, "--baseline", str(sound)))

    def _report(self, name: str, subject: Subject, samples: int, *more: str) -> Path:
        path = self.work / "reports" / f"{name.replace(':', '-')}.json"
        gates = self.work / "gates.toml"
        write_file(gates, GATES.encode())
        if read_report(path) is None:
            ended = pytest(
                f"--model={subject.model}", *self.selection, "--batch-size", BATCH, *subject.options, *more,
                "--samples", str(samples), "--thresholds", str(gates), "--journal", str(self.work / "journal"),
                "--report-json", str(path),
            )  # fmt: skip
            if read_report(path) is None:
                raise RuntimeError(f"{name}: no report; {' '.join(ended.lines[-3:])}")
        return path

    def _practice(self, report: JsonReport) -> float | None:
        """Return the share of pairs of means over 50 samples each, of scores 0 and 1, that differ by the tolerance."""
        sound = read_report(self.work / "reports" / "sound.json")
        cases = [one.cases[0] for one in (sound, report) if one is not None and one.cases]
        if len(cases) < 2 or not all(case.samples for case in cases):
            return None
        before, after = (case.score or 0.0 for case in cases)
        return share_of_two_means(before, after)


def share_of_two_means(before: float, after: float) -> float:
    """Return the share of comparisons of two means of 50 samples that call the second checkpoint worse.

    `before` and `after` are the checkpoints' scores from 0 to 100, of samples that are right or wrong.
    """
    draw = np.random.default_rng(0)
    means = [draw.binomial(PRACTICE_SAMPLES, score / 100, REPLICATIONS) / PRACTICE_SAMPLES for score in (before, after)]
    return round(float(np.mean(100 * (means[0] - means[1]) >= PRACTICE_POINTS)), 3)


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table, the harmless changes last."""
    lines = [
        "| checkpoint | fault or change | caught by | paired gate | two means of 50 | CPU seconds |",
        "|---|---|---|---|---|---|",
    ]
    for result in sorted(results, key=lambda result: (result.is_harmless, result.checkpoint, result.row)):
        caught = result.caught_by or f"nothing ({', '.join(result.tried)})"
        gate = "-" if result.verdict is None else f"{result.verdict}, {result.pairs} pairs"
        practice = "-" if result.practice is None else f"{100 * result.practice:.0f} %"
        row = f"`{result.row.removeprefix('=')}`"
        lines.append(f"| {result.checkpoint} | {row} | {caught} | {gate} | {practice} | {result.cpu_seconds:.0f} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure or print the rows; return 1 if a harmless change was caught, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CKPT")
    add("--work", type=Path, required=True, metavar="DIR")
    add("--rows", default="", metavar="NAME:STRENGTH,=NAME")
    add("--means", default=",".join((*CHECKS, SCORE)), metavar="load,invariance")
    add("--lengths", default="512", help="one length")
    add("--samples", type=int, default=500)
    add("--caught-samples", type=int, default=100, help="pairs of a row that a check caught")
    add("-k", dest="keyword", default="niah_multikey_1", help="one task with scores of 0 and 1")
    add("--table", action="store_true", help="print the finished rows in Markdown")
    options = parser.parse_args(arguments)
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if options.table:
        results = [Result(**json.loads(file.read_text(encoding="utf-8"))) for file in sorted(work.glob("*.json"))]
        print(table(results))
    else:
        matrix = Matrix(options.checkpoint.resolve(), work, options)
        results = []
        for row in filter(None, options.rows.split(",")):
            results.append(matrix.result(row))
            shown = results[-1]
            print(f"{row:24} {shown.caught_by or '-':12} {shown.pairs:4} {shown.line[:140]}", flush=True)
    return int(any(result.is_false_alarm for result in results))


def _is_alarm(line: str, *, failed: bool) -> bool:
    """Return True for a warning and, of a failed run, an error, a failed property or a problem of the preflight."""
    is_failure = line.startswith(("ERROR: ", "invariance FAIL", "FAILED ")) or ": sample " in line
    return line.startswith("warning: ") or (failed and is_failure)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
