"""Measure how often a bisect names the right step, and how many samples it takes, on simulated checkpoints.

    python -m benchmarks.bisect_chains --chains 20

No model runs: scores are drawn, and the code of `python -m ci.bisect` makes all decisions. Every series of checkpoints
loses some points at a random step. Besides, some answers flip from checkpoint to checkpoint, as in real training. In a
second table, the case is chosen by a survey of CASES cases, of which one has lost the points, or none.

Limits: exit code 1 if the right step is named less often than PROMISED, if a search takes more than a tenth of the
samples of a linear scan in the mean, or if more than MAX_WRONG of the surveyed searches name a wrong step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ci.bisect.compare import search_bounds
from ci.bisect.endpoints import SURVEY_SAMPLES
from ci.bisect.search import Edge, StepVerdict, max_measurements, search
from fixtures.records import Case
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel
from plugins.gates.sequential import NonInferiority
from plugins.gates.statistics import paired_interval

CASE = Case(
    id="test_ruler[niah_single_2-8k]", suite="ruler", category="retrieval", task="niah_single_2", length=8192,
    samples=250, source="archive", generation_tokens=128,
)  # fmt: skip
CONFIDENCE = 0.99
# Points lost, and the share of searches that must name the right step.
PROMISED = {10: 0.97, 30: 1.0, 90: 1.0}
FLIP_RATES = (0.0, 0.01, 0.03)
# RULER's 13 tasks at three lengths.
CASES = 39
SURVEYED_POINTS = (0, 10, 30)
MAX_WRONG = 0.02
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One search: whether its edge was right, and its cost."""

    is_right: bool
    samples: int
    """Answered samples of all checkpoints, the endpoints included."""
    loads: int
    """Number of checkpoints loaded."""
    rounds: int
    """Number of times that the search waited for measurements."""
    edge: Edge


class Chain:
    """Scores of a series of checkpoints: 90 % right, then `points` fewer from position `edge` on."""

    def __init__(self, *, length: int, edge: int, points: float, flipping: float, rng: np.random.Generator):
        self.edge = edge
        solved = rng.random(CASE.samples) < 0.9
        lost = rng.permutation(np.flatnonzero(solved))[: round(CASE.samples * points / 100)]
        after = solved.copy()
        after[lost] = False
        self.scores: list[Scores] = []
        for position in range(length):
            flips = rng.random(CASE.samples) < flipping
            self.scores.append(((after if position >= edge else solved) ^ flips).astype(float))

    def search(self, parallel: int = 1) -> SearchResult:
        """Search like ci.bisect: the endpoints in full, then as many samples of a step as its verdict needs."""
        last = len(self.scores) - 1
        loss_points = -100 * float((self.scores[last] - self.scores[0]).mean())
        bounds = search_bounds(loss_points, alpha=(1 - CONFIDENCE) / max_measurements(last, parallel=parallel))
        assert bounds.clear_points is not None
        pairing = NonInferiority(
            drop=bounds.drop_points / 100,
            clear=bounds.clear_points / 100,
            alpha=1 - bounds.confidence,
            finite_population=bounds.population,
        )
        panel = Panel("ruler", CASE.length, [CASE], seed=0, hypotheses=(), non_inferiority=pairing)
        good_scores = self._scores(panel, 0)
        samples = {0: CASE.samples, last: CASE.samples}

        rounds = 0

        def measure(positions: Sequence[int]) -> list[StepVerdict]:
            nonlocal rounds
            rounds += 1
            return [compare(position) for position in positions]

        def compare(position: int) -> StepVerdict:
            analysis = panel.analyze_pairs(self._scores(panel, position), good_scores)
            assert analysis.decision is not None
            samples[position] = analysis.samples
            return StepVerdict(
                verdict="bad" if analysis.decision.verdict == "fail" else "good", pairs=analysis.samples, difference=0.0
            )

        edge = search(last, measure, parallel=parallel)
        is_right = (edge.last_good, edge.first_bad) == (self.edge - 1, self.edge)
        return SearchResult(
            is_right=is_right, samples=sum(samples.values()), loads=len(samples), rounds=rounds, edge=edge
        )

    def _scores(self, panel: Panel, position: int) -> dict[SampleRef, float]:
        return {sample: self.scores[position][sample.sample_index] for sample in panel.order}


def survey(points: int, *, flipping: float, rng: np.random.Generator) -> int:
    """Return the case that lost most between the endpoints on the samples of a survey; case 0 has lost the points."""
    differences = [
        _difference(points if case == 0 else 0, SURVEY_SAMPLES, flipping=flipping, rng=rng).mean()
        for case in range(CASES)
    ]
    return int(np.argmin(differences))


def _difference(points: float, samples: int, *, flipping: float, rng: np.random.Generator) -> Scores:
    """Return the score differences of two checkpoints, 90 % right, of which the second has lost some points."""
    solved, lost = rng.random(samples) < 0.9, rng.random(samples) < points / 90
    before, after = solved ^ (rng.random(samples) < flipping), (solved & ~lost) ^ (rng.random(samples) < flipping)
    difference: Scores = after.astype(float) - before.astype(float)
    return difference


def surveyed_search(points: int, *, length: int, flipping: float, rng: np.random.Generator) -> str:
    """Search on the case that a survey chooses; return `right`, `wrong` or `not shown`."""
    case = survey(points, flipping=flipping, rng=rng)
    edge = int(rng.integers(1, length))
    chain = Chain(length=length, edge=edge, points=points if case == 0 else 0, flipping=flipping, rng=rng)
    # All samples of the case, none of which was in the survey, must show the loss.
    if paired_interval(chain.scores[-1] - chain.scores[0], alpha=1 - CONFIDENCE)[1] >= 0:
        return "not shown"
    return "right" if case == 0 and points and chain.search().is_right else "wrong"


def print_surveyed(*, chains: int, length: int, seed: int) -> bool:
    """Print a table of searches on a surveyed case; return False if more than MAX_WRONG of them are wrong."""
    print(f"\nthe worst of {CASES} cases in a survey of {SURVEY_SAMPLES} samples, one or none of which has lost")
    print(f"{'lost':>5} {'flips':>6} {'right':>7} {'not shown':>10} {'wrong':>7}")
    is_kept = True
    for flipping in FLIP_RATES[1:]:
        for points in SURVEYED_POINTS:
            rng = np.random.default_rng([seed, points, round(1000 * flipping)])
            results = [surveyed_search(points, length=length, flipping=flipping, rng=rng) for _ in range(chains)]
            right, unshown, wrong = (results.count(word) / chains for word in ("right", "not shown", "wrong"))
            is_kept &= wrong <= MAX_WRONG
            print(f"{points:>5} {flipping:>6.0%} {right:>7.1%} {unshown:>10.1%} {wrong:>7.1%}")
    return is_kept


def run(points: int, *, chains: int, length: int, flipping: float, seed: int, parallel: int = 1) -> list[SearchResult]:
    """Search this many series of checkpoints, with the loss at a random step of every one."""
    results = []
    for number in range(chains):
        rng = np.random.default_rng([seed, points, number])
        edge = int(rng.integers(1, length))
        results.append(Chain(length=length, edge=edge, points=points, flipping=flipping, rng=rng).search(parallel))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of all losses and flip rates; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chains", type=int, default=20, help="series of checkpoints for every line (default: 20)")
    parser.add_argument("--checkpoints", type=int, default=64, help="checkpoints of a series (default: 64)")
    parser.add_argument("--parallel", type=int, default=1, help="steps to measure at a time (default: 1)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    linear = args.checkpoints * CASE.samples
    print(
        f"{args.chains} series of {args.checkpoints} checkpoints for every line; a linear scan takes {linear} samples"
    )
    print(
        f"{'lost':>5} {'flips':>6} {'right':>7} {'samples':>8} {'most':>6} {'of linear':>10} {'loads, most':>12} "
        f"{'rounds':>7}"
    )
    is_kept = True
    for flipping in FLIP_RATES:
        for points, promised in PROMISED.items():
            results = run(
                points, chains=args.chains, length=args.checkpoints, flipping=flipping, seed=args.seed,
                parallel=args.parallel,
            )  # fmt: skip
            right = sum(result.is_right for result in results) / len(results)
            samples = sum(result.samples for result in results) / len(results)
            is_kept &= right >= promised and samples <= linear / 10
            print(
                f"{points:>5} {flipping:>6.0%} {right:>7.1%} {samples:>8.0f} "
                f"{max(result.samples for result in results):>6} {'1/' + format(linear / samples, '.1f'):>10} "
                f"{max(result.loads for result in results):>12} "
                f"{sum(result.rounds for result in results) / len(results):>7.1f}"
            )
    is_kept &= print_surveyed(chains=args.chains, length=args.checkpoints, seed=args.seed)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
