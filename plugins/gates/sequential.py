"""What a panel is asked, what its queue says so far, and how much of the queue an answer takes at least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plugins.gates.clusters import ClusteredQueue, SampleRef, known_at, known_soonest
from plugins.gates.statistics import Decision, Floats, decide_level, decide_paired

# More pieces than all workers of a large run hold at a time.
LOOK_AHEAD = 1024
# An interval takes a millisecond or more, so an estimate looks no further than work for the next minutes.
ESTIMATE_AHEAD = 256
# Of what a verdict takes, so much more may be begun before it is known to be needed, lest workers stand idle.
SPARE = 0.05

Scores = Mapping[SampleRef, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
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
class NonInferiority:
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


def look_at(
    rule: Hypothesis, pool: ClusteredQueue, scores: Scores, *, control: Scores | None = None, full: bool = False
) -> Look:
    """A rule's evidence. `control` are a known baseline's scores; they help where they are known for all elements."""
    values = pool.values(scores)
    decision = _decided(rule, pool, values, control, full=full)
    estimates = rule.threshold is None and rule.precision > 0 and not full
    enough = known_at(values, pool, rule.precision) if estimates else None
    pieces = enough or (len(values) if decision is None else decision.at)
    return _look(decision, pool, pieces, precise=enough is not None)


def look_at_pairs(
    pairing: NonInferiority, pool: ClusteredQueue, scores: Scores, baseline: Scores, *, full: bool = False
) -> Look:
    """The evidence of a pairing, over elements that both have finished."""
    differences = pool.values({element: scores[element] - baseline[element] for element in scores.keys() & baseline})
    decision = _compared(pairing, pool, differences)
    return _look(decision, pool, len(differences) if decision is None or full else decision.at)


def ahead(
    rule: Hypothesis,
    pool: ClusteredQueue,
    look: Look,
    scores: Scores,
    *,
    control: Scores | None = None,
    full: bool = False,
) -> tuple[SampleRef, ...]:
    """The part of the queue that a verdict takes whatever its scores will be, and a little to spare.

    A score that is not the best possible one only puts a verdict off, so one that all the rest would bring about
    at best (a pass with ones, a fail with zeros) cannot come sooner. An estimate comes soonest with scores that are
    all the same, which are tried at both ends and at the mean so far: other ones rarely bring it about sooner.
    """
    if full or (rule.threshold is None and not rule.precision):
        return pool.queue
    is_estimate = rule.threshold is None
    far = look.pieces + (ESTIMATE_AHEAD if is_estimate else LOOK_AHEAD)
    rest = pool.queue[pool.elements(look.pieces) : pool.elements(far)]
    finished = pool.values(scores, look.pieces)

    def filled(best: float) -> Floats:
        more = pool.values({element: scores.get(element, best) for element in rest}, start=look.pieces)
        return np.concatenate([finished, more])

    if is_estimate:
        likely = [min(1.0, pool.scale * float(finished.mean()))] if finished.size else []
        fills = [filled(best) for best in (*likely, 0.0, 1.0)]
        return _start(pool, look, [known_soonest(fills, look.pieces, pool, rule.precision)], far)
    decisions = [_decided(rule, pool, filled(best), control) for best in (0.0, 1.0)]
    return _start(pool, look, [None if decision is None else decision.at for decision in decisions], far)


def ahead_of_pairs(
    pairing: NonInferiority, pool: ClusteredQueue, look: Look, scores: Scores, baseline: Scores, *, full: bool = False
) -> tuple[SampleRef, ...]:
    """The same for a pairing."""
    if full:
        return pool.queue
    queue, far = pool.queue, look.pieces + LOOK_AHEAD
    rest = queue[pool.elements(look.pieces) : pool.elements(far)]
    finished = pool.values({each: scores[each] - baseline[each] for each in queue[: pool.elements(look.pieces)]})
    ends: list[int | None] = []
    for best in (0.0, 1.0):
        differences = {element: scores.get(element, best) - baseline.get(element, 1 - best) for element in rest}
        values = np.concatenate([finished, pool.values(differences, start=look.pieces)])
        decision = _compared(pairing, pool, values)
        ends.append(None if decision is None else decision.at)
    return _start(pool, look, ends, far)


def _decided(
    rule: Hypothesis, pool: ClusteredQueue, values: Floats, control: Scores | None, *, full: bool = False
) -> Decision | None:
    of = len(pool.pieces)
    if rule.threshold is None or not of:
        return None
    known = None if control is None else pool.values(control)
    return decide_level(
        values,
        rule.threshold / pool.scale,
        alpha=rule.alpha,
        population=of,
        zone=rule.zone / pool.scale,
        # With everything asked for, only the exact comparison counts.
        least=of + 1 if full else pool.least,
        control=known if known is not None and len(known) == of else None,
    )


def _compared(pairing: NonInferiority, pool: ClusteredQueue, differences: Floats) -> Decision | None:
    of = len(pool.pieces)
    return decide_paired(
        differences,
        drop=pairing.drop / pool.scale,
        clear=pairing.clear / pool.scale,
        alpha=pairing.alpha,
        least=min(of, pool.least),
        population=of if pairing.population and of else None,
    )


def _look(decision: Decision | None, pool: ClusteredQueue, pieces: int, *, precise: bool = False) -> Look:
    return Look(decision, pool.elements(pieces), len(pool.queue), pieces, precise)


def _start(pool: ClusteredQueue, look: Look, ends: list[int | None], far: int) -> tuple[SampleRef, ...]:
    """Up to the first end with what may be spared, or as `far` (in pieces) as was looked where none is in sight."""
    found = [pieces for pieces in ends if pieces is not None]
    if not found:
        return pool.queue[: pool.elements(far)]
    # Sums are rounded otherwise in a longer array: an end that was not there a look ago would leave nobody a sample.
    needed = pool.elements(max(min(found), look.pieces + 1))
    return pool.queue[: needed + int(SPARE * needed)]
