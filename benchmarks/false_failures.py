"""Measure how often a run fails an unchanged model, which losses it finds, and how many pairs that takes.

    python -m benchmarks.false_failures --runs 6000

No model runs: differences between model and baseline are drawn on the samples of RULER's 13 tasks with the haystacks
that these tasks have, and the code and thresholds of the suite decide. The models of a pair are equal, or one has lost
points; besides, some answers flip. `correlation` is that of the differences on one haystack. With --doublings, a run
that suspects a loss is repeated on twice as many samples, as a watch does it.

Limits: exit code 1 if more than 1 % of the runs of a cell fail an unchanged model, by more than chance explains.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from longctx.fixtures.records import Case
from longctx.fixtures.tasks import FAMILIES, TASKS
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.thresholds.records import SHIPPED, load_thresholds
from longctx.plugins.verdicts.hypotheses import Scope, build_panels
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.queues import compare_panels

THRESHOLDS = load_thresholds(SHIPPED, known_tasks=FAMILIES)
RULER = {name: task.category for name, task in TASKS.items() if task.suite == "ruler"}
# A needle task whose samples share haystacks.
ALONE = "niah_single_2"
# Sizes of tasks that differ by a factor of eight, as in HELMET's recall.
UNEQUAL = (160, 160, 128, 128, 96, 96, 80, 64, 48, 48, 32, 32, 20)
PROMISED = 0.01
Floats = NDArray[np.float64]
About = Literal["model", "samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The cases of a run: tasks, lengths and samples."""

    name: str
    tasks: tuple[str, ...]
    samples: tuple[int, ...]
    """Of every task."""
    lengths: int
    parts: int = 1
    """The number of parts of an answer, each of which is right or wrong."""


def _design(samples: int, lengths: int) -> Design:
    name = f"13 x {samples}" + (f" x {lengths}" if lengths != 6 else "")
    return Design(name=name, tasks=tuple(RULER), samples=(samples,) * 13, lengths=lengths)


DESIGNS = (
    _design(8, 6), _design(16, 6), _design(24, 6), _design(24, 48), _design(100, 6), _design(500, 6),
    _design(24, 1), _design(100, 1),
    Design(name="2 x 100", tasks=(ALONE, "niah_multikey_1"), samples=(100, 100), lengths=1),
    Design(name="1 x 48", tasks=(ALONE,), samples=(48,), lengths=1),
    Design(name="1 x 500", tasks=(ALONE,), samples=(500,), lengths=1),
    Design(name="13 unequal", tasks=tuple(RULER), samples=UNEQUAL, lengths=1),
    Design(name="13 x 24 of 4 parts", tasks=tuple(RULER), samples=(24,) * 13, lengths=6, parts=4),
)  # fmt: skip


ComparedPanels = list[tuple[Panel, dict[SampleRef, float], dict[SampleRef, float]]]
"""The panels of a run with the scores of the model and of its baseline."""


class SimulatedPairs:
    """Draws of the pairs of whole runs of one design.

    `larger` is the same design with twice as many samples, for runs that suspect a loss.
    """

    def __init__(
        self, design: Design, *, series: int = 1, doublings: int = 0, about: About = "model",
        changed: float | None = None,
        is_first: bool = True,
    ):  # fmt: skip
        more = replace(design, samples=tuple(2 * samples for samples in design.samples))
        # Half of the error belongs to the first look, as in a watch.
        share = series * 2 * max(1, doublings) if is_first else series
        self.larger = SimulatedPairs(more, series=share, doublings=doublings - 1, is_first=False) if doublings else None
        if is_first and doublings:
            series *= 2
        lengths = tuple(1024 * (number + 1) for number in range(design.lengths))
        cases = [
            Case(
                id=f"test_ruler[{task}-{length}]", suite="ruler", category=RULER[task], task=task, length=length,
                samples=samples, source="archive", generation_tokens=32, shares_haystacks=TASKS[task].shares_haystacks,
                group=TASKS[task].group,
            )
            for length in lengths
            for task, samples in zip(design.tasks, design.samples, strict=True)
        ]  # fmt: skip
        scope = Scope(
            lengths=lengths, cases=cases, reference=THRESHOLDS.references["base"], ruler_aspects=RULER,
            claimed_length=lengths[-1], has_baseline=True, task_families=FAMILIES, series=series,
        )  # fmt: skip
        regression = msgspec.structs.replace(THRESHOLDS.regression, about=about, changed=changed)
        thresholds = replace(THRESHOLDS, gates=(), regression=regression)
        self.design = design
        self.panels: list[Panel] = list(build_panels(thresholds, scope).values())
        self.pairs = sum(len(panel.order) for panel in self.panels)
        self._haystacks = [_numbers(panel) for panel in self.panels]

    def draw(
        self, rng: np.random.Generator, *, flips: float, correlation: float, lost: Sequence[float]
    ) -> ComparedPanels:
        """Return the scores of a model and of its baseline on all panels.

        `lost` has the points that the model has lost, at all lengths or at each.
        """
        if self.larger is not None:
            return self.with_own_panels(self.larger.draw(rng, flips=flips, correlation=correlation, lost=lost))
        compared: ComparedPanels = []
        for place, (panel, haystacks) in enumerate(zip(self.panels, self._haystacks, strict=True)):
            loss = lost[place % len(lost)] / 100
            own, shared = rng.random(haystacks.size), rng.random(haystacks.max() + 1)[haystacks]
            together = rng.random(haystacks.size) < math.sqrt(correlation)
            draws = np.where(together, shared, own)
            differences = (draws < flips / 2).astype(float) - (draws > 1 - flips / 2)
            size = rng.integers(1, self.design.parts + 1, haystacks.size) / self.design.parts
            is_lost = (rng.random(haystacks.size) < loss / (1 - flips / 2)) & (differences <= 0)
            differences = np.where(is_lost, -1.0, size * differences)
            compared.append(
                (
                    panel,
                    dict(zip(panel.order, ((1 + differences) / 2).tolist(), strict=True)),
                    dict(zip(panel.order, ((1 - differences) / 2).tolist(), strict=True)),
                )
            )
        return compared

    def with_own_panels(self, compared: ComparedPanels) -> ComparedPanels:
        """Return the panels of this design with the scores of one with more samples, all of which stay known."""
        return [(panel, scores, baseline) for panel, (_, scores, baseline) in zip(self.panels, compared, strict=True)]


def _numbers(panel: Panel) -> NDArray[np.intp]:
    """Return the haystack of every sample of a panel, from 0."""
    places = [(ref.case_id, panel.cases[ref.case_id].haystack(ref.sample_index)) for ref in panel.order]
    numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
    return np.array([numbers[place] for place in places])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What many runs of one cell ended with."""

    failed: float
    """The share of runs with a failed panel."""
    not_shown: float
    """The share of runs without a failed panel, but with one whose loss is not shown for the model."""
    pairs: float
    """The mean number of pairs of a panel."""
    median: float
    """The median number of pairs of a run's first failed panel; NaN without any."""


def measure(
    simulated: SimulatedPairs, *, runs: int, seed: int, flips: float, correlation: float, lost: Sequence[float] = (0.0,)
) -> Result:
    """Simulate runs, and return what they ended with."""
    rng = np.random.default_rng([seed, round(1000 * flips), round(100 * correlation), *map(round, lost)])
    failed = not_shown = 0
    pairs, decided = [], []
    for _ in range(runs):
        look, compared = simulated, simulated.draw(rng, flips=flips, correlation=correlation, lost=lost)
        comparisons = compare_panels(compared)
        known: list[set[SampleRef]] = [set() for _ in compared]
        while look.larger is not None and any(each.is_suspected for each in comparisons):
            for refs, panel in zip(known, look.panels, strict=True):
                refs.update(panel.order)
            look = look.larger
            compared = look.with_own_panels(compared)
            comparisons = compare_panels(compared)
        words = [comparison.decision for comparison in comparisons]
        failed += "fail" in words
        not_shown += "fail" not in words and any(comparison.is_not_shown for comparison in comparisons)
        # Where one panel was in doubt at a look, all panels were measured up to it.
        doubts = [share for each in comparisons for share in each.analysis.doubts] if len(comparisons) > 1 else []
        last = min([each.look for each in comparisons if each.look] or [max(doubts, default=0.0)])
        seen = []
        for refs, (panel, *_), each in zip(
            known, compared, comparisons[:: len(comparisons) // len(compared)], strict=True
        ):
            own = math.ceil(each.look * len(panel.order)) if each.look else each.analysis.samples
            seen.append(len(refs.union(panel.order[: max(own, math.ceil(last * len(panel.order)))])))
        pairs.append(float(np.mean(seen)))
        if "fail" in words:
            decided.append(seen[words.index("fail") * len(compared) // len(comparisons)])
    return Result(
        failed=failed / runs, not_shown=not_shown / runs, pairs=float(np.mean(pairs)),
        median=float(np.median(decided)) if decided else math.nan,
    )  # fmt: skip


def false_failures(
    simulated: Sequence[SimulatedPairs], *, flip_rates: Sequence[float], correlations: Sequence[float], runs: int,
    seed: int,
) -> Iterator[float]:  # fmt: skip
    """Print a line for every cell of unchanged models, and yield the share of its runs that fail."""
    print(f"{'design':<20} {'panels':>6} {'flips':>6} {'correlation':>11} {'runs':>6} {'fail':>7} {'not shown':>10} "
          f"{'pairs a panel':>14}")  # fmt: skip
    for pairs in simulated:
        design, count = pairs.design, max(200, min(runs, round(runs * MOST_PAIRS / pairs.pairs)))
        for flips in flip_rates:
            for correlation in correlations:
                result = measure(pairs, runs=count, seed=seed, flips=flips, correlation=correlation)
                print(
                    f"{design.name:<20} {design.lengths:>6} {flips:>6.0%} {correlation:>11g} {count:>6} "
                    f"{result.failed:>7.2%} {result.not_shown:>10.2%} {result.pairs:>14.0f}",
                    flush=True,
                )
                # The upper end of what chance explains where 1 % is true.
                yield result.failed - 3 * math.sqrt(PROMISED * (1 - PROMISED) / count)


FLIPS, CORRELATIONS = (0.01, 0.05, 0.1, 0.2), (0.0, 0.1, 0.3, 0.6)
# Larger designs are simulated less often.
MOST_PAIRS = 8000


def print_power(simulated: Sequence[SimulatedPairs], *, runs: int, seed: int) -> None:
    """Print how often losses are found, and the pairs that takes."""
    print(f"\n{'design':<20} {'flips':>6} {'correlation':>11} {'lost points':<22} {'fail':>7} {'not shown':>10} "
          f"{'pairs a panel':>14} {'until the failure, median':>26}")  # fmt: skip
    for pairs in simulated:
        design, count = pairs.design, max(100, min(runs, round(runs * MOST_PAIRS / pairs.pairs)))
        at_one = [0.0] * (design.lengths - 1)
        for flips, correlation in ((0.0, 0.0), (0.01, 0.3), (0.05, 0.3), (0.1, 0.3)):
            for name, lost in (
                ("2", [2.0]), ("4", [4.0]), ("6", [6.0]), ("10", [10.0]), ("30", [30.0]),
                *((("6 at one length", [*at_one, 6.0]), ("10 at one length", [*at_one, 10.0])) if at_one else ()),
            ):  # fmt: skip
                result = measure(pairs, runs=count, seed=seed, flips=flips, correlation=correlation, lost=lost)
                print(
                    f"{design.name:<20} {flips:>6.0%} {correlation:>11g} {name:<22} {result.failed:>7.1%} "
                    f"{result.not_shown:>10.1%} {result.pairs:>14.0f} {result.median:>26.0f}",
                    flush=True,
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000, help="runs of every cell of a small design (default: 1000)")
    parser.add_argument("--designs", default="", help="only these designs, separated by commas")
    parser.add_argument("--flips", type=float, nargs="+", default=FLIPS, help="shares of answers (default: 1 to 20 %%)")
    parser.add_argument(
        "--correlations", type=float, nargs="+", default=CORRELATIONS, help="on a haystack (default: 0 to 0.6)"
    )
    parser.add_argument("--series", type=int, default=1, help="the runs that share the probability (default: 1)")
    parser.add_argument("--doublings", type=int, default=0, help="looks at twice as many samples (default: 0)")
    parser.add_argument(
        "--about", choices=("model", "samples"), default="model", help="the key of [regression] (default: model)"
    )
    parser.add_argument("--changed", type=float, help="the key of [regression], in points (default: none)")
    parser.add_argument("--power", action="store_true", help="measure which losses are found instead")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    simulated = [
        SimulatedPairs(design, series=args.series, doublings=args.doublings, about=args.about, changed=args.changed)
        for design in DESIGNS
        if not args.designs or design.name in args.designs.split(",")
    ]
    if args.power:
        print_power(simulated, runs=args.runs, seed=args.seed)
        return 0
    cells = {"flip_rates": args.flips, "correlations": args.correlations}
    excess = list(false_failures(simulated, **cells, runs=args.runs, seed=args.seed))
    return int(max(excess) > PROMISED)


if __name__ == "__main__":
    sys.exit(main())
