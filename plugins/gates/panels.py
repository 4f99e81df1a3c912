"""What is measured at one length, in which order, and when it is enough.

All samples of a panel stand in one queue, in one random order that depends on nothing but their
identity. Evidence is read over the finished part of the queue from its start, never in order of
completion: finishing early and being right are not independent. Samples that share a context stand
together and are one piece of evidence, with their mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby, islice, takewhile
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fixtures.identity import stable_hash
from fixtures.records import Case
from plugins.gates.statistics import Decision, decide_level, decide_paired, interval

Who = Literal["model", "baseline"]
LEAST_ELEMENTS = 8
LEAST_POOLED_ELEMENTS = 26
# More than all workers of a large run hold at a time.
LOOK_AHEAD = 1024
LOOKED_AT_EVERY = 4
# Where nothing is decided a mean is known with 95 %, as measurements mostly are, and not with a verdict's certainty.
ESTIMATE_ALPHA = 0.05


class Element(NamedTuple):
    """One place in a queue: a sample of a case."""

    case: str
    sample: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One question to a panel: is the mean of these cases above `threshold` (0 to 1)?

    A threshold of None asks how high it is: for all samples, or until the mean is known to within `precision`
    (0 to 1, on either side) at `ESTIMATE_ALPHA`. Only `driving` rules decide how much is measured.
    """

    cases: frozenset[str]
    threshold: float | None
    zone: float = 0.0
    alpha: float = 0.01
    precision: float = 0.0
    driving: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The other question: has the mean over all cases lost `drop` (0 to 1) against a baseline, or not `clear`?

    The mean of the model, or with `population` that of the panel's samples.
    """

    drop: float
    clear: float
    alpha: float
    population: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What the finished part of a queue says: `seen` of its `of` elements were looked at, in `pieces` of evidence.

    `precise`: there was nothing to decide, and the mean is known well enough.
    """

    decision: Decision | None
    seen: int
    of: int
    pieces: int
    precise: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether no further sample is wanted."""
        return self.decision is not None or self.precise


def piece_of(element: Element, cases: Mapping[str, Case]) -> tuple[str, int]:
    """The case, and the number of the context within it."""
    return element.case, element.sample // cases[element.case].group


class Pool:
    """A queue as evidence: its elements by pieces, each with a weight of at most 1.

    A panel's mean is that of its cases' means. Where they differ in size, a piece of a smaller case
    weighs more; `scale` times the mean of the weighted values is the panel's mean.
    """

    def __init__(self, queue: Sequence[Element], cases: Mapping[str, Case]):
        grouped = groupby(queue, key=lambda element: piece_of(element, cases))
        self.pieces = tuple(tuple(elements) for _, elements in grouped)
        counts = Counter(piece[0].case for piece in self.pieces)
        self.scale = len(self.pieces) / (len(counts) * min(counts.values())) if counts else 1.0
        self._weights = {case: min(counts.values()) / count for case, count in counts.items()}
        unseen, at = set(counts), 0
        while unseen:
            unseen.discard(self.pieces[at][0].case)
            at += 1
        # One of every case, so that each has a score; and for a verdict a few before a first look.
        self.complete = at
        self.least = max(at, LEAST_POOLED_ELEMENTS if len(counts) > 1 else LEAST_ELEMENTS)

    def values(self, scores: Mapping[Element, float], pieces: int | None = None) -> NDArray[np.float64]:
        """The weighted means of the first finished pieces, 0 to 1 (or -1 to 1): so many, or all there are."""
        finished = takewhile(lambda piece: all(element in scores for element in piece), self.pieces[:pieces])
        return np.array(
            [self._weights[piece[0].case] * sum(map(scores.__getitem__, piece)) / len(piece) for piece in finished],
            dtype=np.float64,
        )

    def elements(self, pieces: int) -> int:
        """How many elements the first pieces hold."""
        return sum(map(len, self.pieces[:pieces]))


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a panel is.

    `asked`: how many elements of each case, from the start of its own queue, the evidence rests
    on, and `paired` how many of them it compared with the baseline. `wanted`: what is to be done
    next, in order; empty when all rules are decided. `rules` and `pairing` are the looks behind it.
    """

    asked: Mapping[str, int]
    paired: Mapping[str, int]
    wanted: tuple[tuple[Who, Element], ...]
    rules: Mapping[Rule, Look]
    pairing: Look | None


class Panel:
    """The cases of one family at one length and what is asked of them."""

    def __init__(
        self,
        family: str,
        length: int,
        cases: Sequence[Case],
        *,
        seed: int,
        rules: Iterable[Rule],
        pairing: Pairing | None = None,
        full: bool = False,
    ):
        self.family = family
        self.length = length
        self.cases = {case.id: case for case in cases}
        self.rules = tuple(rules)
        self.pairing = pairing
        self.full = full
        self._seed = seed
        self._sequences: dict[frozenset[str], tuple[Element, ...]] = {}
        self._pools: dict[frozenset[str], Pool] = {}

    @cached_property
    def order(self) -> tuple[Element, ...]:
        """All elements. Leaving out a case, or asking for more samples, never reorders the others."""
        ranked = [
            (stable_hash("queue", self._seed, case.task, case.length, index // case.group), case.id, index)
            for case in self.cases.values()
            for index in range(case.samples)
        ]
        return tuple(Element(case, index) for _, case, index in sorted(ranked))

    def piece(self, element: Element) -> tuple[str, int]:
        """What it is a part of: the samples on one context."""
        return piece_of(element, self.cases)

    def queue(self, cases: Collection[str]) -> tuple[Element, ...]:
        """The elements of some cases, in order."""
        chosen = frozenset(cases)
        if chosen not in self._sequences:
            self._sequences[chosen] = tuple(element for element in self.order if element.case in chosen)
        return self._sequences[chosen]

    def pool(self, cases: Collection[str]) -> Pool:
        """The same elements as evidence."""
        chosen = frozenset(cases)
        if chosen not in self._pools:
            self._pools[chosen] = Pool(self.queue(chosen), self.cases)
        return self._pools[chosen]

    def look(
        self,
        rule: Rule,
        scores: Mapping[Element, float],
        *,
        control: Mapping[Element, float] | None = None,
        failed: Collection[str] = (),
    ) -> Look:
        """A rule's evidence. Cases that failed are left aside, so that the rest can still be told apart.

        `control` are a known baseline's scores; they help where they are known for all elements.
        """
        pool = self.pool(rule.cases.difference(failed))
        of = len(pool.pieces)
        values = pool.values(scores)
        decision = None
        if rule.threshold is not None and of:
            known = None if control is None else pool.values(control)
            decision = decide_level(
                values,
                rule.threshold / pool.scale,
                alpha=rule.alpha,
                population=of,
                zone=rule.zone / pool.scale,
                # With everything asked for, only the exact comparison counts.
                least=of + 1 if self.full else pool.least,
                control=known if known is not None and len(known) == of else None,
            )
        pieces = len(values) if decision is None else decision.at
        estimates = rule.threshold is None and rule.precision > 0 and not self.full
        enough = _known_at(values, pool, rule) if estimates else None
        pieces = enough or pieces
        return Look(decision, pool.elements(pieces), pool.elements(of), pieces, enough is not None)

    def look_at_pairs(
        self, scores: Mapping[Element, float], baseline: Mapping[Element, float], *, failed: Collection[str] = ()
    ) -> Look:
        """The evidence of the panel's pairing, over elements that both have finished."""
        assert self.pairing is not None
        pool = self.pool(frozenset(self.cases).difference(failed))
        of = len(pool.pieces)
        differences = pool.values(
            {element: scores[element] - baseline[element] for element in scores.keys() & baseline}
        )
        decision = decide_paired(
            differences,
            drop=self.pairing.drop / pool.scale,
            clear=self.pairing.clear / pool.scale,
            alpha=self.pairing.alpha,
            least=min(of, pool.least),
            population=of if self.pairing.population and of else None,
        )
        pieces = len(differences) if decision is None or self.full else decision.at
        return Look(decision, pool.elements(pieces), pool.elements(of), pieces)

    def standing(
        self,
        scores: Mapping[Element, float],
        *,
        baseline: Mapping[Element, float] | None = None,
        control: Mapping[Element, float] | None = None,
        failed: Collection[str] = (),
    ) -> Standing:
        """How far the driving rules are; `baseline` None is a run without one.

        A baseline with `control` is finished: what it lacks will never come.
        """
        asked: dict[str, int] = {}
        paired: dict[str, int] = {}
        model: set[Element] = set()
        other: set[Element] = set()
        looks: dict[Rule, Look] = {}
        for rule in self.rules:
            if not rule.driving:
                continue
            looks[rule] = look = self.look(rule, scores, control=control, failed=failed)
            queue = self.queue(rule.cases.difference(failed))
            _count(asked, queue[: look.seen])
            if not look.is_settled:
                model.update(element for element in queue if element not in scores)
        pairs = None
        if self.pairing is not None and baseline is not None:
            pairs = self.look_at_pairs(scores, baseline, failed=failed)
            queue = self.queue(frozenset(self.cases).difference(failed))
            _count(asked, queue[: pairs.seen])
            _count(paired, queue[: pairs.seen])
            if pairs.decision is None or self.full:
                ahead = queue if control is None else takewhile(control.__contains__, queue)
                pairable = tuple(ahead)
                model.update(element for element in pairable if element not in scores)
                other.update(element for element in pairable if element not in baseline)
        missing_of: tuple[tuple[Who, set[Element]], ...] = (("model", model), ("baseline", other))
        wanted = (
            (who, element)
            for element in (self.order if model or other else ())
            for who, missing in missing_of
            if element in missing
        )
        return Standing(asked, paired, tuple(islice(wanted, LOOK_AHEAD)), looks, pairs)


def _known_at(values: NDArray[np.float64], pool: Pool, rule: Rule) -> int | None:
    """The first look at which the mean is known well enough; looks are at fixed places, whoever takes them."""
    width = 2 * rule.precision / pool.scale
    for pieces in range(pool.complete, len(values) + 1, LOOKED_AT_EVERY):
        if _width(values[:pieces].tobytes(), len(pool.pieces)) <= width:
            return pieces
    return None


@lru_cache(maxsize=4096)
def _width(values: bytes, population: int) -> float:
    """Of the interval of the mean; a prefix of a queue is looked at again and again."""
    low, high = interval(np.frombuffer(values), alpha=ESTIMATE_ALPHA, population=population)
    return high - low


def _count(asked: dict[str, int], elements: Iterable[Element]) -> None:
    found: dict[str, int] = {}
    for element in elements:
        found[element.case] = found.get(element.case, 0) + 1
    for case, count in found.items():
        asked[case] = max(asked.get(case, 0), count)
