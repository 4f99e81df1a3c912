"""Measure how often `longctx bisect` names the right step, and its cost, on real calibration checkpoints.

    python -m benchmarks.bisect_checkpoints --chains 20 --work out/chains

The benchmark builds its checkpoints once: good ones, as many as a series has steps, which all differ by noise, and for
every planted loss as many bad ones that cannot see a share of all keys. A series is a directory of links to them, good
before its edge and bad from there on. The real command searches every series in a process of its own.

All series share one journal to save time: a checkpoint would give the same answers again in the next series. The cost
of a search is therefore counted from its reports, which say how many samples a comparison used, and not from computed
tokens. Comparisons use samples in one fixed order, so a checkpoint needs as many samples as its longest comparison,
and the telling samples that it answered.
With a journal of its own, a search would load a checkpoint's weights for every comparison that uses more samples than
those before it. A single series (`--chains 1 --points 30` and a new --work) has such a journal.

The same command continues a benchmark that was stopped. Limits: exit code 1 if the right step is named less often
than PLANTED says, if a search takes more than a tenth of the samples of a linear scan in the mean, or if one checkpoint
is loaded more than MAX_LOADS times. `benchmarks.bisect_chains` simulates thousands of series, also with answers that
flip besides the loss.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from longctx.ci.suite_process import read_report
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.calibration import cached, parse_spec
from longctx.fixtures.installation import SUITE as REPOSITORY
from longctx.fixtures.records.report import JsonReport

CASE = "test_ruler[niah_single_2-512]"
LENGTH = "512"
# Points lost; the share of unseen keys that loses them (10.0, 29.6 and 100 on 250 samples); share of right searches.
PLANTED = {10: ("0.09", 0.97), 30: ("0.31", 1.0), 100: ("0.999999", 1.0)}
MAX_LOADS = 8


class ChainError(RuntimeError):
    """A search that did not complete; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The cost of one checkpoint in a search."""

    samples: int = 0
    """Samples of its longest comparison on samples drawn from all."""
    telling: int = 0
    """Telling samples that it answered; a longer comparison on them includes the shorter ones."""
    likelihoods: int = 0
    """Samples whose gold answers were scored."""
    loads: int = 0
    """Times its weights would be loaded with a journal of its own."""

    def with_likelihoods(self, samples: int) -> Usage:
        """Return the usage after the gold answers of some samples, which are always the same, are scored."""
        if samples <= self.likelihoods:
            return self
        return replace(self, likelihoods=samples, loads=self.loads + 1)

    def with_telling(self, samples: int) -> Usage:
        """Return the usage after a comparison on telling samples, counted as if no other comparison had them."""
        if samples <= self.telling:
            return self
        return replace(self, telling=samples, loads=self.loads + 1)

    def with_comparison(self, samples: int) -> Usage:
        """Return the usage after one more comparison over the first `samples` samples."""
        if samples <= self.samples:
            return self
        return replace(self, samples=samples, loads=self.loads + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result and the cost of one search; the field names are the keys of `found.json`."""

    points: int
    """Points of loss that were planted."""
    number: int
    """Number of the series among those with this loss."""
    edge: int
    """The first bad step."""
    named: int
    """The first bad step by the search."""
    right: bool
    """True if both steps of the edge are right."""
    lost: float
    """Points of loss measured between the endpoints."""
    samples: int
    """Answers, and samples whose gold answers were scored, of all checkpoints."""
    checkpoints: int
    """Number of checkpoints measured."""
    loads: int
    """Loads of the checkpoint that was loaded most often."""
    processes: int
    """Runs of the suite."""


def usage_by_checkpoint(reports: Iterable[JsonReport]) -> dict[str, Usage]:
    """Return the usage of every checkpoint by fingerprint, from the reports of a search's comparisons."""
    usage: dict[str, Usage] = {}
    for report in sorted(reports, key=lambda report: report.run.started):
        both = [
            model.fingerprint for model in (report.model, report.regression and report.regression.baseline) if model
        ]
        if report.likelihood:
            scored = sum(panel.samples for panel in report.likelihood.panels)
            usage |= {fingerprint: usage.get(fingerprint, Usage()).with_likelihoods(scored) for fingerprint in both}
            continue
        samples = sum(case.samples for case in report.cases)
        if report.run.options["only_samples"]:
            # The endpoint that it is compared with has answered these samples before.
            fingerprint = report.model.fingerprint
            usage[fingerprint] = usage.get(fingerprint, Usage()).with_telling(samples)
            continue
        for fingerprint in both:
            usage[fingerprint] = usage.get(fingerprint, Usage()).with_comparison(samples)
    return usage


def link_checkpoints(chain: Path, pool: Path, blind: str, *, checkpoints: int, edge: int) -> None:
    """Fill a directory with links to good checkpoints before step `edge` and to bad ones from there on."""
    chain.mkdir(parents=True, exist_ok=True)
    for step in range(1, checkpoints + 1):
        loss = f"-blind={blind}" if step >= edge else ""
        link = chain / f"step-{step:04}"
        if not link.is_symlink():
            link.symlink_to(cached(parse_spec(f"full{loss}-step={step}"), pool).resolve())


def search_chain(work: Path, points: int, number: int, *, checkpoints: int, samples: int, seed: int) -> SearchResult:
    """Build one series and search it; reuse the results of an earlier run. Raises ChainError."""
    edge = random.Random(f"{seed} {points} {number}").randint(2, checkpoints)
    chain = work / f"lost-{points}" / f"chain-{number:02}-of-{checkpoints}"
    out = chain / "out"
    link_checkpoints(chain, work / "pool", PLANTED[points][0], checkpoints=checkpoints, edge=edge)
    command = [
        sys.executable, "-m", "longctx", "bisect",
        "--good", f"{chain}/step-0001", "--bad", f"{chain}/step-{checkpoints:04}",
        "--checkpoints", f"{chain}/step-*", "--case", CASE, "--out", str(out), "--samples", str(samples),
        "--suite", "ruler", "--lengths", LENGTH, "--journal", f"{work}/journal",
    ]  # fmt: skip
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    process = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ChainError(f"{chain}: ended with code {process.returncode}: {(process.stderr or process.stdout).strip()}")
    result = json.loads((out / "bisect.json").read_text(encoding="utf-8"))
    reports = [report for path in out.glob("*.json") if (report := read_report(path)) is not None]
    usages = usage_by_checkpoint(reports).values()
    return SearchResult(
        points=points,
        number=number,
        edge=edge,
        named=result["first_bad"],
        right=(result["last_good"], result["first_bad"]) == (edge - 1, edge),
        lost=result["loss"],
        samples=sum(usage.samples + usage.telling + usage.likelihoods for usage in usages),
        checkpoints=len(usages),
        loads=max(usage.loads for usage in usages),
        processes=len(reports),
    )


def is_within_limits(results: Sequence[SearchResult], linear_samples: int) -> bool:
    """Return True if the searches of one planted loss keep all limits."""
    right = sum(result.right for result in results) / len(results)
    samples = sum(result.samples for result in results) / len(results)
    loads = max(result.loads for result in results)
    return right >= PLANTED[results[0].points][1] and samples <= linear_samples / 10 and loads <= MAX_LOADS


def line(result: SearchResult) -> str:
    """Return one search as a line."""
    return (
        f"lost {result.points}, chain {result.number}: edge {result.edge}, named {result.named}, {result.samples} "
        f"samples, {result.checkpoints} checkpoints, one loaded {result.loads} times, {result.processes} runs"
    )


def table(results: Sequence[SearchResult], linear_samples: int) -> list[str]:
    """Return a heading and one line for every planted loss."""
    lines = [
        f"{'lost':>5} {'measured':>8} {'chains':>6} {'right':>6} {'samples':>7} {'most':>5} {'of a scan':>9} "
        f"{'checkpoints':>11} {'loads of one, most':>18} {'limits':>8}"
    ]
    for points in dict.fromkeys(result.points for result in results):
        chains = [result for result in results if result.points == points]
        samples = sum(result.samples for result in chains) / len(chains)
        lines.append(
            f"{points:>5} {sum(result.lost for result in chains) / len(chains):>8.1f} {len(chains):>6} "
            f"{sum(result.right for result in chains) / len(chains):>6.0%} {samples:>7.0f} "
            f"{max(result.samples for result in chains):>5} {f'1/{linear_samples / samples:.1f}':>9} "
            f"{max(result.checkpoints for result in chains):>11} {max(result.loads for result in chains):>18} "
            f"{'ok' if is_within_limits(chains, linear_samples) else 'EXCEEDED':>8}"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Search all series and print a table; return 1 if a limit is exceeded, 3 if a search fails, else 0."""
    args = _parse(arguments)
    work, linear, deadline = args.work.resolve(), args.checkpoints * args.samples, time.time() + 60 * args.minutes

    def search_in_time(number: int, points: int) -> SearchResult | None:
        if time.time() > deadline:
            return None
        return search_chain(work, points, number, checkpoints=args.checkpoints, samples=args.samples, seed=args.seed)

    # The losses take turns, so that a benchmark that is stopped early has searched as many series of every loss.
    order = [(number, points) for number in range(args.chains) for points in args.points]
    results: list[SearchResult] = []
    try:
        with ThreadPoolExecutor(args.jobs) as pool:
            for result in pool.map(search_in_time, *zip(*order, strict=True)):
                if result is not None:
                    results.append(result)
                    print(line(result), flush=True)
                    text = json.dumps([asdict(result) for result in results], indent=1)
                    write_file(work / "found.json", f"{text}\n".encode())
    except ChainError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    results.sort(key=lambda result: args.points.index(result.points))
    print("\n".join(table(results, linear)))
    by_loss = [[result for result in results if result.points == points] for points in args.points]
    return 0 if all(is_within_limits(chains, linear) for chains in by_loss if chains) else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--chains", type=int, default=20, help="series of checkpoints for every loss (default: 20)")
    add("--checkpoints", type=int, default=64, help="checkpoints of a series (default: 64); 24 MB for one and a loss")
    add("--samples", type=int, default=250, help="samples of the case (default: 250)")
    add("--points", type=int, nargs="+", default=list(PLANTED), choices=PLANTED, help="losses (default: all)")
    add("--seed", type=int, default=0, help="seed of the edges (default: 0)")
    add("--jobs", type=int, default=1, help="searches at a time (default: 1)")
    add("--minutes", type=float, default=float("inf"), help="start no search after this time (default: no limit)")
    add("--work", type=Path, required=True, metavar="DIR", help="folder for checkpoints, journal, reports, found.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
