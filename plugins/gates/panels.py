"""What is measured at one length, in which order, and when it is enough.

All samples of a panel stand in one queue, in one random order that depends on nothing but their
identity. Evidence is read over the finished part of the queue from its start, never in order of
completion: finishing early and being right are not independent. Samples that share a context stand
together and are one piece of evidence, with their mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, takewhile
from typing import Literal

from fixtures.records import Case
from fixtures.seeding import stable_hash
from plugins.gates.clusters import ClusteredQueue, SampleRef, piece_of
from plugins.gates.sequential import (
    LOOK_AHEAD,
    Hypothesis,
    Look,
    NonInferiority,
    ahead,
    ahead_of_pairs,
    look_at,
    look_at_pairs,
)

Who = Literal["model", "baseline"]


@dataclass(frozen=True, slots=True)
class PanelStatus:
    """How far a panel is.

    `asked`: how many elements of each case, from the start of its own queue, the evidence rests
    on, and `paired` how many of them it compared with the baseline. `wanted`: what is to be done
    next, in order; empty when all rules are decided. It is what the soonest possible verdicts take and
    hardly more (`SPARE`), so that as many workers as there are do the work of one. `rules` and `pairing`
    are the looks behind it.
    """

    asked: Mapping[str, int]
    paired: Mapping[str, int]
    wanted: tuple[tuple[Who, SampleRef], ...]
    rules: Mapping[Hypothesis, Look]
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
        rules: Iterable[Hypothesis],
        pairing: NonInferiority | None = None,
        full: bool = False,
    ):
        self.family = family
        self.length = length
        self.cases = {case.id: case for case in cases}
        self.rules = tuple(rules)
        self.pairing = pairing
        self.full = full
        self._seed = seed
        self._sequences: dict[frozenset[str], tuple[SampleRef, ...]] = {}
        self._pools: dict[frozenset[str], ClusteredQueue] = {}

    @cached_property
    def order(self) -> tuple[SampleRef, ...]:
        """All elements. Leaving out a case, or asking for more samples, never reorders the others."""
        ranked = [
            (stable_hash("queue", self._seed, case.task, case.length, index // case.group), case.id, index)
            for case in self.cases.values()
            for index in range(case.samples)
        ]
        return tuple(SampleRef(case, index) for _, case, index in sorted(ranked))

    def piece(self, element: SampleRef) -> tuple[str, int]:
        """What it is a part of: the samples on one context."""
        return piece_of(element, self.cases)

    def queue(self, cases: Collection[str]) -> tuple[SampleRef, ...]:
        """The elements of some cases, in order."""
        chosen = frozenset(cases)
        if chosen not in self._sequences:
            self._sequences[chosen] = tuple(element for element in self.order if element.case in chosen)
        return self._sequences[chosen]

    def pool(self, cases: Collection[str]) -> ClusteredQueue:
        """The same elements as evidence."""
        chosen = frozenset(cases)
        if chosen not in self._pools:
            self._pools[chosen] = ClusteredQueue(self.queue(chosen), self.cases)
        return self._pools[chosen]

    def look(
        self,
        rule: Hypothesis,
        scores: Mapping[SampleRef, float],
        *,
        control: Mapping[SampleRef, float] | None = None,
        failed: Collection[str] = (),
    ) -> Look:
        """A rule's evidence. Cases that failed are left aside, so that the rest can still be told apart.

        `control` are a known baseline's scores; they help where they are known for all elements.
        """
        return look_at(rule, self.pool(rule.cases.difference(failed)), scores, control=control, full=self.full)

    def look_at_pairs(
        self, scores: Mapping[SampleRef, float], baseline: Mapping[SampleRef, float], *, failed: Collection[str] = ()
    ) -> Look:
        """The evidence of the panel's pairing, over elements that both have finished."""
        assert self.pairing is not None
        pool = self.pool(frozenset(self.cases).difference(failed))
        return look_at_pairs(self.pairing, pool, scores, baseline, full=self.full)

    def standing(
        self,
        scores: Mapping[SampleRef, float],
        *,
        baseline: Mapping[SampleRef, float] | None = None,
        control: Mapping[SampleRef, float] | None = None,
        failed: Collection[str] = (),
    ) -> PanelStatus:
        """How far the driving rules are; `baseline` None is a run without one.

        A baseline with `control` is finished: what it lacks will never come.
        """
        asked: dict[str, int] = {}
        paired: dict[str, int] = {}
        model: set[SampleRef] = set()
        other: set[SampleRef] = set()
        looks: dict[Hypothesis, Look] = {}
        for rule in self.rules:
            if not rule.driving:
                continue
            looks[rule] = look = self.look(rule, scores, control=control, failed=failed)
            queue = self.queue(rule.cases.difference(failed))
            _count(asked, queue[: look.seen])
            if not look.is_settled:
                pool = self.pool(rule.cases.difference(failed))
                near = ahead(rule, pool, look, scores, control=control, full=self.full)
                model.update(element for element in near if element not in scores)
        pairs = None
        if self.pairing is not None and baseline is not None:
            pairs = self.look_at_pairs(scores, baseline, failed=failed)
            queue = self.queue(frozenset(self.cases).difference(failed))
            _count(asked, queue[: pairs.seen])
            _count(paired, queue[: pairs.seen])
            if pairs.decision is None or self.full:
                pool = self.pool(frozenset(self.cases).difference(failed))
                near = ahead_of_pairs(self.pairing, pool, pairs, scores, baseline, full=self.full)
                pairable = near if control is None else tuple(takewhile(control.__contains__, near))
                model.update(element for element in pairable if element not in scores)
                other.update(element for element in pairable if element not in baseline)
        missing_of: tuple[tuple[Who, set[SampleRef]], ...] = (("model", model), ("baseline", other))
        wanted = (
            (who, element)
            for element in (self.order if model or other else ())
            for who, missing in missing_of
            if element in missing
        )
        return PanelStatus(asked, paired, tuple(islice(wanted, LOOK_AHEAD)), looks, pairs)


def _count(asked: dict[str, int], elements: Iterable[SampleRef]) -> None:
    found: dict[str, int] = {}
    for element in elements:
        found[element.case] = found.get(element.case, 0) + 1
    for case, count in found.items():
        asked[case] = max(asked.get(case, 0), count)
