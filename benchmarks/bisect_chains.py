"""Measure how often a bisect is right, whether its probabilities are, and how many samples it takes, on simulated runs.

    python -m benchmarks.bisect_chains --chains 200

Every search is kept in --rows as soon as it has ended, so that the same command continues a stopped one.

No model runs: scores are drawn, and the code of `longctx bisect` makes all decisions, with its defaults. A series has
64 checkpoints and a case of 500 samples, of which the sound model answers 90 % right. Besides the loss, every
checkpoint flips some of its answers. The histories:

* step: the points are lost at one random step;
* dip: as many points are lost for 1 to 8 steps and come back, and later the permanent loss begins;
* decay: the points are lost evenly over 6 to 20 steps;
* two: a third, a half or two thirds of the points are lost at one step, the others at another;
* recovery: twice the points are lost at one step, and half of them come back later;
* none: nothing is lost.

The statement of a search is *the run became worse here*: at the named step, or in the named range. It is **right** if
the true score, the mean over endless flips, falls from the last good step to the first bad one by at least a quarter of
the true loss between the endpoints. So the step of the loss is right; in a dip also the beginning of the dip, which the
table counts once more; each of two faults that makes up a quarter; the first loss of a recovery; and of a decay every
range that has a quarter of it, but none of its steps alone. Without a loss nothing is right. A search that names the
whole series, or nothing, counts as *not shown*.

Exit code 1 if, in a cell, more than MAX_WRONG of the searches are wrong, or if the stated probability of a bin with
at least LEAST_IN_BIN searches exceeds the share that is right by more than MAX_MISCALIBRATED.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.kept_rows import KeptRows
from longctx.ci.bisect.compare import EARLY_SHARE, Bounds
from longctx.ci.bisect.journal_stats import Flip
from longctx.ci.bisect.measurements import TellingSamples, edge_bounds, telling_samples
from longctx.ci.bisect.posterior import FALL_SHARE, EndpointVotes, Posterior
from longctx.ci.bisect.report import MOST_CERTAIN
from longctx.ci.bisect.search import Edge, Request, StepResult, search
from longctx.fixtures.records import HAYSTACKS, Case
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.sequential import NonInferiority
from longctx.plugins.verdicts.panels import Comparison, Panel

SAMPLES = 500
CASE = Case(
    id="test_ruler[niah_single_2-8k]", suite="ruler", category="retrieval", task="niah_single_2", length=8192,
    samples=SAMPLES, source="archive", generation_tokens=128,
)  # fmt: skip
CONFIDENCE = 0.99
SOLVED = 0.9
POINTS = (10, 30)
FLIP_RATES = (0.01, 0.03, 0.1, 0.2)
ROWS = Path("out/bisect_chains.jsonl")
NOT_KEPT = KeptRows(None)
HISTORIES = ("step", "dip", "decay", "two", "recovery")
MAX_WRONG = 0.01
MAX_MISCALIBRATED, LEAST_IN_BIN = 0.03, 50
# Edges of the bins of stated probability.
BINS = (0.0, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 1.0)

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One search: its statement, whether that is right, and its cost."""

    word: str
    """The column of the table that counts this search: "not shown" if it names nothing or the whole series."""
    probability: float | None
    """The stated probability of a statement; None for one that is not shown."""
    width: int
    """The number of steps that a statement names; 0 for one that is not shown."""
    is_dip: bool
    """True if it names the beginning of a dip."""
    samples: int
    """Answered samples of all checkpoints, the endpoints included."""
    loads: int
    """Number of checkpoints loaded."""
    rounds: int
    """Number of times that the search waited for measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Which answers of the sound model a run loses at each step, and where a dip begins."""

    lost: Flags
    """By position and sample."""
    dip: int | None = None


def draw_history(kind: str, solved: Flags, points: float, length: int, rng: np.random.Generator) -> History:
    """Return a random history of a kind, in which this many points of all samples are lost at the end."""
    order = rng.permutation(np.flatnonzero(solved))
    lost, count, dip = np.zeros((length, solved.size), dtype=bool), round(solved.size * points / 100), None
    first, second = sorted(rng.choice(np.arange(1, length), 2, replace=False)) if length > 2 else (1, 1)
    if kind == "step":
        lost[int(rng.integers(1, length)) :, order[:count]] = True
    elif kind == "dip":
        edge = int(rng.integers(3, length))
        width = int(rng.integers(1, min(8, edge - 2) + 1))
        dip = int(rng.integers(1, edge - width))
        lost[dip : dip + width, rng.permutation(order)[:count]] = True
        lost[edge:, order[:count]] = True
    elif kind == "decay":
        width = min(int(rng.integers(6, 21)), length - 1)
        start = int(rng.integers(1, length - width + 1))
        for number, sample in enumerate(order[:count]):
            lost[start + number * width // count :, sample] = True
    elif kind == "two":
        early = int(count * rng.choice([1 / 3, 1 / 2, 2 / 3]))
        lost[first:, order[:early]] = True
        lost[second:, order[early:count]] = True
    elif kind == "recovery":
        lost[first:second, order[: 2 * count]] = True
        lost[second:, order[:count]] = True
    return History(lost=lost, dip=dip)


class Chain:
    """Scores of a series of checkpoints, and the interface through which a search measures them."""

    def __init__(self, history: History, solved: Flags, *, flipping: float, rng: np.random.Generator):
        truth = solved & ~history.lost
        self.history = history
        self.true_scores: Scores = truth.mean(axis=1) * (1 - 2 * flipping) + flipping
        self.scores: Scores = (truth ^ (rng.random(truth.shape) < flipping)).astype(float)
        self.answered: dict[int, set[int]] = {}
        self.rounds = 0

    def search(self, parallel: int = 1, *, confidence: float = CONFIDENCE) -> SearchResult:
        """Search as the command does where it has no likelihoods."""
        last = len(self.scores) - 1
        doubt = self._measure_endpoints(confidence)
        self._telling = self._choose(None)
        if doubt:
            return self._result(None)
        edge = search(last, self, confidence=confidence, parallel=parallel)
        loss = 100 * float(self.scores[0].mean() - self.scores[-1].mean())
        self._compare(edge.first_bad, edge.last_good, edge_bounds(max(loss, 1.0)))
        return self._result(edge)

    def _result(self, edge: Edge | None) -> SearchResult:
        last, true = len(self.scores) - 1, self.true_scores
        word, probability, width, is_dip = "not shown", None, 0, False
        if edge is not None and edge.is_shown and (last == 1 or (edge.last_good, edge.first_bad) != (0, last)):
            loss, fall = true[0] - true[-1], true[edge.last_good] - true[edge.first_bad]
            is_right = loss > 1e-9 and fall >= FALL_SHARE * loss - 1e-9
            word = f"{'step' if edge.is_step else 'range'} {'right' if is_right else 'wrong'}"
            probability, width = min(MOST_CERTAIN, edge.probability), edge.first_bad - edge.last_good
            is_dip = edge.is_step and edge.first_bad == self.history.dip
        return SearchResult(
            word=word, probability=probability, width=width, is_dip=is_dip,
            samples=sum(map(len, self.answered.values())), loads=len(self.answered), rounds=self.rounds,
        )  # fmt: skip

    @property
    def votes(self) -> EndpointVotes:
        """Samples on which the endpoints differ."""
        return self._telling.votes

    @property
    def telling(self) -> int:
        """Number of telling samples."""
        return len(self._telling.contexts)

    @property
    def can_extend(self) -> bool:
        """True if the endpoints have not answered all samples."""
        return len(self.answered[0]) < SAMPLES

    @property
    def note(self) -> Callable[[Mapping[int, StepResult], Posterior, Sequence[int]], None]:
        """Shows nothing."""
        return lambda *_: None

    def measure(self, requests: Sequence[Request]) -> list[StepResult]:
        """Measure some steps."""
        self.rounds += 1
        return [self._measure(request) for request in requests]

    def extend(self) -> None:
        """Measure the endpoints on twice as many samples."""
        more = range(min(SAMPLES, 2 * len(self.answered[0])))
        for end in (0, len(self.scores) - 1):
            self.answered[end].update(more)
        self._telling = self._choose(self._telling)

    def _measure(self, request: Request) -> StepResult:
        position, count = request
        self.answered.setdefault(position, set())
        samples = [number for (_, number), _ in self._telling.contexts[:count]]
        self.answered[position].update(samples)
        good, step = (
            {(CASE.id, index): float(self.scores[place][index]) for index in samples} for place in (0, position)
        )
        return StepResult(reading=self._telling.reading(good, step, count), pairs=len(samples))

    def _measure_endpoints(self, confidence: float) -> bool:
        """Compare the endpoints as the command does; return True if they show no loss."""
        last = len(self.scores) - 1
        bounds = Bounds(confidence=1 - EARLY_SHARE * (1 - confidence))
        verdict, seen = self._compare(last, 0, bounds)
        if verdict == "fail" and self._p_value(seen) <= (1 - confidence) / 2:
            return False
        for end in (0, last):
            self.answered[end].update(range(SAMPLES))
        return self._p_value(range(SAMPLES)) > 1 - confidence

    def _p_value(self, seen: Sequence[int]) -> float:
        # Samples i, i + 32, ... share a haystack, as those of the case do.
        sums = np.bincount(np.array(seen) % HAYSTACKS, weights=(self.scores[-1] - self.scores[0])[list(seen)])
        return EndpointVotes(worse=int((sums < 0).sum()), better=int((sums > 0).sum())).p_value

    def _compare(self, position: int, baseline: int, bounds: Bounds) -> tuple[str | None, list[int]]:
        """Compare two positions on random samples; return the verdict, and the samples that it needed."""
        pairing = NonInferiority(
            drop=bounds.drop_points / 100, alpha=1 - bounds.confidence,
            
        )  # fmt: skip
        panel = Panel("ruler", CASE.length, [CASE], seed=0, hypotheses=(), comparisons=[Comparison(hypothesis=pairing)])
        one, two = (self._scores(place) for place in (position, baseline))
        analysis = panel.analyze_pairs(panel.comparisons[0], one, two)
        seen = [ref.sample_index for ref in self._order[: analysis.samples]]
        for place in (baseline, position):
            self.answered.setdefault(place, set()).update(seen)
        return (None if analysis.decision is None else analysis.decision.verdict), seen

    def _scores(self, position: int) -> dict[SampleRef, float]:
        return {ref: float(self.scores[position][ref.sample_index]) for ref in self._order}

    @cached_property
    def _order(self) -> tuple[SampleRef, ...]:
        return Panel("ruler", CASE.length, [CASE], seed=0, hypotheses=()).order

    def _choose(self, earlier: TellingSamples | None) -> TellingSamples:
        before, after = self.scores[0], self.scores[-1]
        flips = [
            Flip(
                case=CASE.id, index=index, expected=(), depth=None, before=float(before[index]),
                after=float(after[index]), answer_before="", answer_after="",
            )
            for index in sorted(self.answered[0])
            if before[index] != after[index]
        ]  # fmt: skip
        return telling_samples(flips, {CASE.id: 1}, earlier)


def draw_chain(kind: str, points: float, *, length: int, flipping: float, rng: np.random.Generator) -> Chain:
    """Return a random series of checkpoints."""
    solved = rng.random(SAMPLES) < SOLVED
    return Chain(draw_history(kind, solved, points, length, rng), solved, flipping=flipping, rng=rng)


def run(
    kind: str, points: int, *, chains: int, length: int, flipping: float, seed: int, parallel: int = 1,
    confidence: float = CONFIDENCE, rows: KeptRows = NOT_KEPT,
) -> list[SearchResult]:  # fmt: skip
    """Search this many series of checkpoints of one cell, except for those that are kept."""
    results = []
    for number in range(chains):
        settings = {
            "history": kind, "points": points, "flips": flipping, "series": number, "checkpoints": length, "seed": seed,
            "parallel": parallel, "confidence": confidence,
        }  # fmt: skip
        kept = rows.get(settings)
        if kept is None:
            rng = np.random.default_rng([seed, points, round(1000 * flipping), number])
            chain = draw_chain(kind, points, length=length, flipping=flipping, rng=rng)
            kept = asdict(chain.search(parallel, confidence=confidence))
            rows.add(settings, kept)
        results.append(SearchResult(**kept))
    return results


def print_cell(kind: str, points: int, flipping: float, results: Sequence[SearchResult]) -> bool:
    """Print the line of a cell; return False if more than MAX_WRONG of its searches are wrong."""
    words = [result.word for result in results]
    shares = {word: words.count(word) / len(words) for word in ("step right", "range right", "not shown")}
    wrong = sum("wrong" in word for word in words) / len(words)
    widths = [result.width for result in results if result.word.startswith("range")]
    samples = [result.samples for result in results]
    dips = sum(result.is_dip for result in results) / len(results)
    print(
        f"| {kind} | {points} | {flipping:.0%} | {shares['step right']:.1%} | {shares['range right']:.1%} | "
        f"{np.median(widths) if widths else 0:.0f} | {wrong:.1%} | {dips:.1%} | "
        f"{shares['not shown']:.1%} | {np.mean(samples):.0f} | {max(samples)} | "
        f"{np.mean([result.loads for result in results]):.1f} | {np.mean([result.rounds for result in results]):.1f} |",
        flush=True,
    )
    return wrong <= MAX_WRONG


def print_calibration(results: Sequence[SearchResult]) -> bool:
    """Print the share of right statements by their stated probability; return False if one is too certain."""
    shown = [(result.probability, "right" in result.word) for result in results if result.probability is not None]
    print("\n| stated probability | searches | stated, mean | right |\n|---|---|---|---|")
    is_kept = True
    for low, high in itertools.pairwise(BINS):
        found = [(stated, is_right) for stated, is_right in shown if low <= stated < high]
        if found:
            stated, right = (float(np.mean([pair[place] for pair in found])) for place in (0, 1))
            is_kept &= len(found) < LEAST_IN_BIN or stated - right <= MAX_MISCALIBRATED
            print(f"| {low:g} to {high:g} | {len(found)} | {stated:.1%} | {right:.1%} |")
    return is_kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all tables; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--chains", type=int, default=20, help="series of checkpoints for every line (default: 20)")
    add("--checkpoints", type=int, default=64, help="checkpoints of a series (default: 64)")
    add(
        "--histories", nargs="+", choices=(*HISTORIES, "none"), default=list(HISTORIES), help="default: all with a loss"
    )
    add("--confidence", type=float, default=CONFIDENCE, help="confidence of the searches (default: 0.99)")
    add("--parallel", type=int, default=1, help="steps to measure at a time (default: 1)")
    add("--seed", type=int, default=0)
    add("--rows", type=Path, default=ROWS, metavar="FILE", help=f"file that keeps every search (default: {ROWS})")
    args = parser.parse_args(arguments)
    rows = KeptRows(args.rows, ("ci/bisect", "plugins/evidence"))
    print(
        f"{args.chains} series of {args.checkpoints} checkpoints for every line, confidence {args.confidence:g}; "
        f"a linear scan takes {args.checkpoints * SAMPLES} samples"
    )
    print("| history | lost | flips | step right | range right | its steps, median | wrong | dip named | not shown | "
          "samples, mean | most | loads | rounds |")  # fmt: skip
    print("|" + "---|" * 13)
    is_kept, everything = True, []
    for kind in args.histories:
        for points in POINTS:
            for flipping in FLIP_RATES:
                results = run(
                    kind, points, chains=args.chains, length=args.checkpoints, flipping=flipping, seed=args.seed,
                    parallel=args.parallel, confidence=args.confidence, rows=rows,
                )  # fmt: skip
                is_kept &= print_cell(kind, points, flipping, results) or args.confidence < CONFIDENCE
                everything += results
    is_kept &= print_calibration(everything)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
