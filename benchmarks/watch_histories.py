"""Measure how soon a watch fails a loss, how often it fails without one, and what a checkpoint costs.

    python -m benchmarks.watch_histories --histories 20

Every history is kept in --rows as soon as it has ended, so that the same command continues a stopped one. With
--verdicts-only the verdicts are the same in a quarter of the time, but samples are not counted.

No model runs: scores are drawn, and the code of `longctx watch` and of the gates makes all decisions, from the
choice of baselines and the next samples to the confirmation of failures. A history is a series of checkpoints on
RULER's 13 tasks at one length, with unequal accuracies. The answers of checkpoints flip besides the loss, and answers
on one haystack may flip together. Losses are one-way: samples that were solved are failed from some step on.

Limits: exit code 1 unless a loss of 5 points at a random step is failed at this step or the next in 95 % of histories,
one of 10 points in all, one of 5 points after a gain of 4 in 95 %, a decay of 1 point a step before it has lost 6
points in 95 %, and no step of 100 unchanged ones in 99 %. Besides the comparisons there is a gate on the mean, half a
point below that of the unchanged model (--above).
"""

import argparse
import itertools
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from msgspec import structs

from benchmarks.kept_rows import KeptRows
from benchmarks.simulated_watch import MEAN, RULER, SimulatedRun, SimulatedSuite
from longctx.ci.checkpoint_dirs import CompleteCheckpoint, Step
from longctx.ci.suite_options import SuiteOptions
from longctx.ci.watch.baselines import ANCHOR, Baselines
from longctx.ci.watch.history import History, WatchedCheckpoint
from longctx.ci.watch.measure import SuiteRunner
from longctx.fixtures.tasks import FAMILIES
from longctx.plugins.evidence import statistics
from longctx.plugins.thresholds.records import SHIPPED, Gate, load_thresholds

ROWS = Path("out/watch_histories.jsonl")
STEPS, UNCHANGED_STEPS = 12, 100
# Points that training gains after its first step, where it gains any.
GAIN_POINTS = 4.0
Loss = Callable[[int, int], float]
"""The points that a step has lost, given the step and that of the edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of history and what a watch must do with it."""

    name: str
    loss: Loss
    steps: int
    share: float
    """The share of histories that must be right."""

    def is_right(self, failed: int | None, edge: int) -> bool:
        """Return True if the first failed step, if there is any, is one that had to fail."""
        if self.steps == UNCHANGED_STEPS:
            return failed is None
        if self.name.startswith("decay"):
            return failed is not None and self.loss(failed, edge) < 6
        return failed in (edge, edge + 1)


KINDS = (
    Kind(name="-5 at a step", loss=lambda step, edge: 5.0 * (step >= edge), steps=STEPS, share=0.95),
    Kind(name="-10 at a step", loss=lambda step, edge: 10.0 * (step >= edge), steps=STEPS, share=1.0),
    Kind(
        name="+4, -5 at a step",
        loss=lambda step, edge: 5.0 * (step >= edge) - GAIN_POINTS * (step > 1),
        steps=STEPS,
        share=0.95,
    ),
    Kind(name="decay of 1 a step", loss=lambda step, _: float(step - 1), steps=STEPS, share=0.95),
    Kind(name="100 unchanged", loss=lambda *_: 0.0, steps=UNCHANGED_STEPS, share=0.99),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One watched history."""

    is_right: bool
    verdicts: Mapping[str, int]
    """The number of steps by verdict."""
    samples: float
    """Answers for each checkpoint, those of its baselines included."""
    runs: float
    """Runs of pytest for each checkpoint."""


def watch(
    kind: Kind, *, samples: int, flips: float, correlation: float, horizon: int, above: float, doublings: int,
    seed: int, verdicts_only: bool,
) -> Watched:  # fmt: skip
    """Watch one history until a step fails or it ends."""
    edge = int(np.random.default_rng([seed, 7]).integers(3, STEPS))
    training = SimulatedRun(
        samples=samples << doublings, flips=flips, correlation=correlation, loss=lambda step: kind.loss(step, edge),
        seed=seed,
    )  # fmt: skip
    # A flip of a right answer, which most are, lowers the mean.
    mean = 100 * (MEAN - (2 * MEAN - 1) * flips / 2)
    gate = Gate(name="mean", kind="level", above=mean - above)
    thresholds = replace(load_thresholds(SHIPPED, known_tasks=FAMILIES), gates=(gate,))
    suite = SimulatedSuite(training, thresholds, samples=samples, verdicts_only=verdicts_only)
    options = SuiteOptions(
        given=(), checks_engine=False, seed_by_step=False, confidence=thresholds.verdict.confidence,
        drop_points=thresholds.regression.drop,
    )  # fmt: skip
    runner = SuiteRunner(options=options, gpus=(), horizon=horizon, doublings=doublings, run=suite)
    with tempfile.TemporaryDirectory() as name:
        history = History(Path(name))
        baselines = Baselines(history, None, drop_points=options.drop_points, needs_checkpoint=False)
        for number in range(1, kind.steps + 1):
            measurement = _measure(Path(name), number, history, baselines, runner)
            if measurement.verdict in ("fail", "error"):
                break
    failed = number if measurement.verdict == "fail" else None
    return Watched(
        is_right=kind.is_right(failed, edge),
        verdicts=dict(Counter(each.verdict for each in history.measurements.values())),
        samples=suite.answered / number,
        runs=suite.runs / number,
    )


def _measure(
    folder: Path, number: int, history: History, baselines: Baselines, runner: SuiteRunner
) -> WatchedCheckpoint:
    path = folder / f"step-{number}"
    path.mkdir()
    checkpoint = CompleteCheckpoint(step=Step(number=number, path=path), fingerprint=str(number))
    report = folder / f"step-{number}.json"
    compared = baselines.of(checkpoint.step, ())
    anchor = next((baseline for baseline in compared if baseline.role == ANCHOR), None)
    result = runner.measure(checkpoint, compared, report)
    measurement = structs.replace(result, anchor=anchor.name if anchor else None)
    history.add(measurement)
    return measurement


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for every kind of history and flip rate; return 1 if a limit is exceeded, else 0."""
    args = _parse(arguments)
    planned = args.samples * len(RULER)
    print(f"{args.histories} histories for every line, {planned} samples planned, horizon {args.horizon}")
    print(
        f"{'history':<18} {'flips':>6} {'correlation':>11} {'right':>6} {'undecided':>12} "
        f"{'samples a checkpoint':>20} {'of planned':>10} {'runs':>5} {'limit':>9}"
    )
    if args.verdicts_only:
        # Intervals decide nothing.
        statistics.BISECTIONS = 0
    is_kept, rows = True, KeptRows(args.rows, ("ci/watch", "plugins/evidence", "plugins/verdicts"))
    for flips, kind in itertools.product(args.flips, KINDS):
        if args.only and args.only not in kind.name:
            continue
        histories = []
        for number in range(args.histories):
            settings = {
                "samples": args.samples, "flips": flips, "correlation": args.correlation, "horizon": args.horizon,
                "above": args.above, "doublings": args.doublings, "seed": 1000 * args.seed + number,
            }  # fmt: skip
            key = {"history": kind.name} | settings
            of_verdicts = key | {"verdicts_only": True}
            kept = rows.get(key) or (rows.get(of_verdicts) if args.verdicts_only else None)
            if kept is None:
                kept = asdict(watch(kind, **settings, verdicts_only=args.verdicts_only))
                rows.add(of_verdicts if args.verdicts_only else key, kept)
            histories.append(Watched(**kept))
        right = sum(history.is_right for history in histories) / len(histories)
        is_kept &= right >= kind.share
        samples = math.nan if args.verdicts_only else sum(history.samples for history in histories) / len(histories)
        steps = sum(sum(history.verdicts.values()) for history in histories)
        print(
            f"{kind.name:<18} {flips:>6.0%} {args.correlation:>11g} {right:>6.0%} "
            f"{sum(history.verdicts.get('undecided', 0) for history in histories) / steps:>12.1%} {samples:>20.0f} "
            f"{samples / planned:>10.2f} {sum(history.runs for history in histories) / len(histories):>5.2f} "
            f"{'ok' if right >= kind.share else 'EXCEEDED':>9}",
            flush=True,
        )
    return 0 if is_kept else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--histories", type=int, default=20, help="histories of every kind (default: 20)")
    add("--samples", type=int, default=100, help="samples of each task (default: 100)")
    add(
        "--flips", type=float, nargs="+", default=[0.01, 0.02], help="shares of answers that flip (default: 1 and 2 %%)"
    )
    add("--correlation", type=float, default=0.1, help="correlation of flips on a haystack (default: 0.1)")
    add("--horizon", type=int, default=100, help="--horizon of the watch (default: 100)")
    add(
        "--doublings", type=int, default=2, metavar="N",
        help="--doublings of the watch (default: 2)",
    )  # fmt: skip
    add(
        "--above", type=float, default=0.5, metavar="POINTS",
        help="distance of the unchanged mean from its gate (default: 0.5)",
    )  # fmt: skip
    add("--verdicts-only", action="store_true", help="count no samples, which is faster")
    add("--only", metavar="TEXT", help="only the kinds of history whose name contains this")
    add("--seed", type=int, default=0)
    add("--rows", type=Path, default=ROWS, metavar="FILE", help=f"file that keeps every history (default: {ROWS})")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
