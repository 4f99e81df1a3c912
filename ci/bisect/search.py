"""The search by halves for the step at which a run became worse: pure, whoever answers.

Histories need not be monotone. Whatever they are, a search by halves ends between a good and a bad
neighbour; which edge that is, if there are several, it cannot know. So one more step is looked at
behind the edge, in the middle of the widest stretch that was only assumed to be bad. Is it good, what
was found is a dip, and the search goes on behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Word = Literal["good", "bad", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """What one step was found to be, against the good end.

    `difference` and `interval` are points, None where nothing was compared; `reason` says why it was skipped.
    """

    word: Word
    difference: float | None = None
    interval: tuple[float, float] | None = None
    pairs: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An edge: places of a good step and of a bad one, with only skipped ones between.

    `dips` are earlier edges with the place at which the run was good again: (last good, first bad, good again).
    """

    last_good: int
    first_bad: int
    answers: Mapping[int, StepVerdict]
    dips: tuple[tuple[int, int, int], ...] = ()

    @property
    def skipped(self) -> tuple[int, ...]:
        """Places between the two neighbours that could not be looked at."""
        return tuple(range(self.last_good + 1, self.first_bad))


def search(last: int, ask: Callable[[int], StepVerdict]) -> Found:
    """The edge between place 0, which is good, and place `last`, which is bad; `ask` is told places between."""
    answers: dict[int, StepVerdict] = {}
    dips: list[tuple[int, int, int]] = []
    low, high = 0, last
    while True:
        low, high = _halve(low, high, answers, ask)
        doubted = _doubted(high, last, answers)
        if doubted is None:
            break
        answers[doubted] = ask(doubted)
        if answers[doubted].word != "good":
            break
        dips.append((low, high, doubted))
        low = doubted
        high = min(place for place in (*_places(answers, "bad"), last) if place > doubted)
    return Found(last_good=low, first_bad=high, answers=answers, dips=tuple(dips))


def most_questions(last: int) -> int:
    """How many steps `search` looks at in a monotone history without skipped ones, at most."""
    return max(1, (last - 1).bit_length() + 1) if last > 1 else 0


def _halve(low: int, high: int, answers: dict[int, StepVerdict], ask: Callable[[int], StepVerdict]) -> tuple[int, int]:
    while open_places := [place for place in range(low + 1, high) if place not in answers]:
        middle = open_places[len(open_places) // 2]
        answers[middle] = ask(middle)
        if answers[middle].word == "bad":
            high = middle
        elif answers[middle].word == "good":
            low = middle
    return low, high


def _doubted(edge: int, last: int, answers: Mapping[int, StepVerdict]) -> int | None:
    """The middle of the widest stretch behind the edge of which only the ends are known to be bad."""
    bad = sorted({edge, last, *(place for place in _places(answers, "bad") if place >= edge)})
    stretches = [
        [place for place in range(low + 1, high) if place not in answers] for low, high in itertools.pairwise(bad)
    ]
    widest = max(stretches, key=len, default=[])
    return widest[len(widest) // 2] if widest else None


def _places(answers: Mapping[int, StepVerdict], word: Word) -> list[int]:
    return [place for place, answer in answers.items() if answer.word == word]
