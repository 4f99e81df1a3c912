"""Chains of checkpoints with a planted loss: does a search by halves name its step, and what does it take?

    python -m benchmarks.bisect_chains --chains 20

No model: scores are drawn, everything that decides is the code that `python -m ci.bisect` runs. Each
checkpoint flips some answers of its own besides the planted loss, as checkpoints do. Exit code 1 where
an edge is missed more often than promised, or a search takes more than a tenth of a linear scan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ci.bisect.compare import search_bounds
from ci.bisect.search import Found, StepVerdict, most_questions, search
from fixtures.records import Case
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel
from plugins.gates.sequential import NonInferiority

CASE = Case(
    id="test_ruler[niah_single_2-8k]", suite="ruler", category="retrieval", task="niah_single_2", length=8192,
    samples=250, source="archive", generation_tokens=128,
)  # fmt: skip
CONFIDENCE = 0.99
# Points lost, and the share of chains in which the step must be right.
PROMISED = {10: 0.97, 30: 1.0, 90: 1.0}
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """One chain: whether the step was right, and what it took. Samples count the ends' too."""

    right: bool
    samples: int
    loads: int
    found: Found


class Chain:
    """Scores of all checkpoints on all samples: 90 % right, then `points` fewer from place `edge` on."""

    def __init__(self, *, length: int, edge: int, points: float, flipping: float, chance: np.random.Generator):
        solved = chance.random(CASE.samples) < 0.9
        lost = chance.permutation(np.flatnonzero(solved))[: round(CASE.samples * points / 100)]
        after = solved.copy()
        after[lost] = False
        self.scores: list[Scores] = []
        for place in range(length):
            flips = chance.random(CASE.samples) < flipping
            self.scores.append(((after if place >= edge else solved) ^ flips).astype(float))

    def search(self) -> Searched:
        """As ci.bisect: the ends in full, then as many samples of a step as its answer takes."""
        last = len(self.scores) - 1
        lost = -100 * float((self.scores[last] - self.scores[0]).mean())
        bounds = search_bounds(lost, alpha=(1 - CONFIDENCE) / most_questions(last))
        assert bounds.clear is not None
        pairing = NonInferiority(
            drop=bounds.drop / 100,
            clear=bounds.clear / 100,
            alpha=1 - bounds.confidence,
            finite_population=bounds.population,
        )
        panel = Panel("ruler", CASE.length, [CASE], seed=0, hypotheses=(), non_inferiority=pairing)
        good = self._elements(panel, 0)
        taken = {0: CASE.samples, last: CASE.samples}

        def ask(place: int) -> StepVerdict:
            look = panel.analyze_pairs(self._elements(panel, place), good)
            assert look.decision is not None
            taken[place] = look.samples
            return StepVerdict(
                word="bad" if look.decision.verdict == "fail" else "good", pairs=look.samples, difference=0.0
            )

        found = search(last, ask)
        return Searched(right=False, samples=sum(taken.values()), loads=len(taken), found=found)

    def _elements(self, panel: Panel, place: int) -> dict[SampleRef, float]:
        return {element: self.scores[place][element.sample_index] for element in panel.order}


def run(points: int, *, chains: int, length: int, flipping: float, seed: int) -> list[Searched]:
    """So many chains with the loss at a random place."""
    found = []
    for number in range(chains):
        chance = np.random.default_rng([seed, points, number])
        edge = int(chance.integers(1, length))
        searched = Chain(length=length, edge=edge, points=points, flipping=flipping, chance=chance).search()
        right = (searched.found.last_good, searched.found.first_bad) == (edge - 1, edge)
        found.append(Searched(right=right, samples=searched.samples, loads=searched.loads, found=searched.found))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--chains", type=int, default=20)
    parser.add_argument("--checkpoints", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    linear = asked.checkpoints * CASE.samples
    print(f"{asked.chains} chains of {asked.checkpoints} checkpoints each; a linear scan takes {linear} samples")
    print(f"{'lost':>5} {'flips':>6} {'right':>7} {'samples':>8} {'most':>6} {'of linear':>10} {'loads, most':>12}")
    kept = True
    for flipping in (0.0, 0.01, 0.03):
        for points, promised in PROMISED.items():
            found = run(points, chains=asked.chains, length=asked.checkpoints, flipping=flipping, seed=asked.seed)
            right = sum(each.right for each in found) / len(found)
            samples = sum(each.samples for each in found) / len(found)
            kept &= right >= promised and samples <= linear / 10
            print(
                f"{points:>5} {flipping:>6.0%} {right:>7.1%} {samples:>8.0f} {max(e.samples for e in found):>6} "
                f"{'1/' + format(linear / samples, '.1f'):>10} {max(e.loads for e in found):>12}"
            )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
