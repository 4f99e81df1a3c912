"""Measure how often a bisect names the right step, and how many samples it takes, on simulated checkpoints.

    python -m benchmarks.bisect_chains --chains 20

No model runs: scores are drawn, and the code of `python -m ci.bisect` makes all decisions. Every series of checkpoints
loses some points at a random step. Besides, some answers flip from checkpoint to checkpoint, as in real training. In a
second table, the case is chosen by a survey of CASES cases, of which one has lost the points, or none.

With --likelihood the steps are screened by the likelihood of gold answers first, as the command does where it has one.
The losses of the gold answers are drawn as they were measured on SmolLM2-135M-Instruct with noise on its weights.

Limits: exit code 1 if the right step is named less often than PROMISED, if a search takes more than a tenth of the
samples of a linear scan in the mean, or if more than MAX_WRONG of the surveyed searches name a wrong step.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ci.bisect.compare import SCREEN_ALPHA, Bounds, search_bounds
from ci.bisect.endpoints import EARLY_SHARE, SURVEY_SAMPLES, is_loss
from ci.bisect.gold_answers import CONTEXTS, verdict_by_rise
from ci.bisect.journal_stats import Flip
from ci.bisect.search import Edge, StepVerdict, max_measurements, search
from ci.bisect.telling_samples import telling_samples
from fixtures.records import Case
from plugins.config.chosen_samples import only_samples
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
FLIP_RATES = (0.0, 0.01, 0.03, 0.1)
# Where more answers flip, steps differ by chance as much as by the smallest loss.
MOST_PROMISED_FLIPS = 0.03
# Mean and standard deviation of a sample's loss of the gold answer, less that of the good endpoint and relative to that
# between the endpoints: before the edge, and from there on. Noise of 0.05 flips 22 % of the answers and loses nothing,
# and noise of 0.1 loses 18 points (`benchmarks.likelihood_pairs`).
RISES = (0.18, 0.08), (1.0, 0.3)
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
    """Answered and scored samples of all checkpoints, the endpoints included."""
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

    def search(self, parallel: int = 1, *, rng: np.random.Generator | None = None) -> SearchResult | None:
        """Search like ci.bisect: as many samples as a verdict needs, first of those on which the endpoints differ.

        With `rng`, which draws losses of gold answers, they are screened by likelihood first.

        Return None if the endpoints show no loss.
        """
        last, answered = len(self.scores) - 1, dict[int, set[SampleRef]]()
        rounds = 0
        ends = self._compare(last, Bounds(confidence=1 - EARLY_SHARE * (1 - CONFIDENCE), population=True), answered)
        if ends.verdict != "bad" or not is_loss(*self._votes(ends.pairs), CONFIDENCE):
            ends = self._compare(last, Bounds(confidence=CONFIDENCE), answered, full=True)
            if paired_interval(self.scores[-1] - self.scores[0], alpha=1 - CONFIDENCE)[1] >= 0:
                return None
        assert ends.difference is not None
        loss_points = -ends.difference
        alpha = (1 - CONFIDENCE) / max_measurements(last, parallel=parallel)
        telling = telling_samples(self._flips(answered[last]), {CASE.id: 1})
        (telling_case,) = only_samples([CASE], telling.values)

        def measure(positions: Sequence[int]) -> list[StepVerdict]:
            nonlocal rounds
            rounds += math.ceil(len(positions) / parallel)
            bounds = search_bounds(loss_points, alpha=alpha)
            return [self._compare(position, bounds, answered) for position in positions]

        scored = 0 if rng is None else 2 * CONTEXTS

        def screen(positions: Sequence[int]) -> list[StepVerdict]:
            nonlocal rounds, scored
            rounds += math.ceil(len(positions) / parallel)
            bounds = search_bounds(telling.loss_points, alpha=SCREEN_ALPHA)
            verdicts = []
            for position in positions:
                verdict = None
                if rng is not None:
                    scored += CONTEXTS
                    answered.setdefault(position, set())
                    verdict = verdict_by_rise(float(rng.normal(*RISES[position >= self.edge], CONTEXTS).mean()), 1.0)
                verdicts.append(
                    self._compare(position, bounds, answered, case=telling_case)
                    if verdict is None
                    else StepVerdict(verdict=verdict, pairs=CONTEXTS)
                )
            return verdicts

        edge = search(last, measure, screen=screen, parallel=parallel)
        return SearchResult(
            is_right=(edge.last_good, edge.first_bad) == (self.edge - 1, self.edge),
            samples=sum(map(len, answered.values())) + scored,
            loads=len(answered),
            rounds=rounds,
            edge=edge,
        )

    def _compare(
        self, position: int, bounds: Bounds, answered: dict[int, set[SampleRef]], *, case: Case = CASE,
        full: bool = False,
    ) -> StepVerdict:  # fmt: skip
        """Compare a position with the first one, and add the samples that both answer for it."""
        clear = bounds.drop_points / 2 if bounds.clear_points is None else bounds.clear_points
        pairing = NonInferiority(
            drop=bounds.drop_points / 100, clear=clear / 100, alpha=1 - bounds.confidence,
            finite_population=bounds.population,
        )  # fmt: skip
        panel = Panel("ruler", CASE.length, [case], seed=0, hypotheses=(), non_inferiority=pairing)
        analysis = panel.analyze_pairs(self._scores(panel, position), self._scores(panel, 0))
        seen = panel.order if full else panel.order[: analysis.samples]
        for one in (0, position):
            answered.setdefault(one, set()).update(seen)
        differences = [self.scores[position][ref.sample_index] - self.scores[0][ref.sample_index] for ref in seen]
        is_bad = analysis.decision is not None and analysis.decision.verdict == "fail"
        return StepVerdict(
            verdict="bad" if is_bad else "good", pairs=len(seen), difference=100 * float(np.mean(differences))
        )

    def _flips(self, seen: Collection[SampleRef]) -> list[Flip]:
        before, after = self.scores[0], self.scores[-1]
        return [
            Flip(
                case=CASE.id, index=index, expected=(), depth=None, before=before[index], after=after[index],
                answer_before="", answer_after="",
            )
            for _, index in sorted(seen)
            if before[index] != after[index]
        ]  # fmt: skip

    def _votes(self, pairs: int) -> tuple[int, int]:
        """Return how many of the first samples became worse, and how many better."""
        order = Panel("ruler", CASE.length, [CASE], seed=0, hypotheses=()).order[:pairs]
        differences = [self.scores[-1][ref.sample_index] - self.scores[0][ref.sample_index] for ref in order]
        return sum(each < 0 for each in differences), sum(each > 0 for each in differences)

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
    # Samples of the case, none of which was in the survey, must show the loss.
    result = chain.search()
    if result is None:
        return "not shown"
    return "right" if case == 0 and points and result.is_right else "wrong"


def print_surveyed(*, chains: int, length: int, seed: int) -> bool:
    """Print a table of searches on a surveyed case; return False if more than MAX_WRONG of them are wrong."""
    print(f"\nthe worst of {CASES} cases in a survey of {SURVEY_SAMPLES} samples, one or none of which has lost")
    print(f"{'lost':>5} {'flips':>6} {'right':>7} {'not shown':>10} {'wrong':>7}")
    is_kept = True
    for flipping in FLIP_RATES[1:3]:
        for points in SURVEYED_POINTS:
            rng = np.random.default_rng([seed, points, round(1000 * flipping)])
            results = [surveyed_search(points, length=length, flipping=flipping, rng=rng) for _ in range(chains)]
            right, unshown, wrong = (results.count(word) / chains for word in ("right", "not shown", "wrong"))
            is_kept &= wrong <= MAX_WRONG
            print(f"{points:>5} {flipping:>6.0%} {right:>7.1%} {unshown:>10.1%} {wrong:>7.1%}")
    return is_kept


def run(
    points: int, *, chains: int, length: int, flipping: float, seed: int, parallel: int = 1, likelihood: bool = False
) -> list[SearchResult]:
    """Search this many series of checkpoints, with the loss at a random step of every one.

    Series whose endpoints show no loss are left out.
    """
    results = []
    for number in range(chains):
        rng = np.random.default_rng([seed, points, number])
        edge = int(rng.integers(1, length))
        chain = Chain(length=length, edge=edge, points=points, flipping=flipping, rng=rng)
        results.append(chain.search(parallel, rng=rng if likelihood else None))
    return [result for result in results if result is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of all losses and flip rates; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chains", type=int, default=20, help="series of checkpoints for every line (default: 20)")
    parser.add_argument("--checkpoints", type=int, default=64, help="checkpoints of a series (default: 64)")
    parser.add_argument("--parallel", type=int, default=1, help="steps to measure at a time (default: 1)")
    parser.add_argument("--likelihood", action="store_true", help="screen by the likelihood of gold answers first")
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
                parallel=args.parallel, likelihood=args.likelihood,
            )  # fmt: skip
            if not results:
                print(f"{points:>5} {flipping:>6.0%}   the endpoints of no series show the loss; give more --chains")
                is_kept = False
                continue
            right = sum(result.is_right for result in results) / len(results)
            samples = sum(result.samples for result in results) / len(results)
            is_kept &= (right >= promised or flipping > MOST_PROMISED_FLIPS) and samples <= linear / 10
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
