"""Find cases whose wrong answers are the right ones of other samples: a server has mixed up its requests."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from longctx.fixtures.records import CaseResult, Outcome

WORD = re.compile(r"\w+")
# Shorter references, such as labels and counts, are in many answers.
LEAST_CHARACTERS = 5
# Numbers and uuids, which no two samples share by chance, so that one of several references is enough.
CODE = re.compile(r".*\d.*\d.*\d.*\d.*")
# The share of a case's samples that must have answers of their own: classes and yes or no are shared by many.
LEAST_DISTINCT = 0.9
# What chance explains: an answer with a probability of at least this has another sample's references in it.
LEAST_CHANCE, PRIOR_ANSWERS = 0.02, 20
ALPHA = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """A sample whose references are known."""

    place: tuple[str, int]
    """The case id and the haystack."""
    references: tuple[str, ...]
    """In lower case; all of them must be in an answer."""


def mixed_up_cases(results: Iterable[CaseResult]) -> dict[str, str]:
    """Return an error line, by case id, where more wrong answers are right for other samples than chance explains.

    Samples on one haystack may share their distractors, so they are not compared with each other.
    """
    results = list(results)
    owners: defaultdict[str, list[_Owner]] = defaultdict(list)
    for owner in (owner for result in results for owner in _owners(result)):
        owners[_longest_word(owner.references)].append(owner)
    errors = {}
    for result in results:
        belongs = {True: Counter[bool](), False: Counter[bool]()}
        for outcome in result.outcomes:
            place = (result.case.id, result.case.haystack(outcome.index))
            belongs[outcome.score.value == 1][_belongs_elsewhere(outcome, place, owners)] += 1
        wrong, right = belongs[False], belongs[True]
        chance = max(LEAST_CHANCE, (right[True] + 1) / (right.total() + PRIOR_ANSWERS))
        if wrong[True] and _tail(wrong[True], wrong.total(), chance) < ALPHA:
            errors[result.case.id] = (
                f"{wrong[True]} of {wrong.total()} wrong answers are the right answers to other samples of this run, "
                "so the server mixes up the answers to its requests, or repeats earlier ones; mend it, and start again "
                "with another --journal"
            )
    return errors


def _tail(hits: int, trials: int, chance: float) -> float:
    """Return the probability of at least so many hits by chance."""
    # scipy takes half a second to import, and few runs need it.
    from scipy.special import bdtrc

    return float(bdtrc(hits - 1, trials, chance))


def _owners(result: CaseResult) -> Iterator[_Owner]:
    """Yield the samples whose references no other sample of the case has; none if many share theirs.

    A sample with several codes is yielded once for each.
    """
    sets = [tuple(reference.lower() for reference in outcome.references) for outcome in result.outcomes]
    counts = Counter(sets)
    if len(counts) < LEAST_DISTINCT * len(sets):
        return
    for outcome, references in zip(result.outcomes, sets, strict=True):
        if counts[references] > 1 or len(_longest_word(references)) < LEAST_CHARACTERS:
            continue
        place = (result.case.id, result.case.haystack(outcome.index))
        codes = all(len(reference) >= LEAST_CHARACTERS and CODE.fullmatch(reference) for reference in references)
        for needed in ((reference,) for reference in references) if codes else (references,):
            yield _Owner(place=place, references=needed)


def _longest_word(references: tuple[str, ...]) -> str:
    return max((word for reference in references for word in WORD.findall(reference)), key=len, default="")


def _belongs_elsewhere(outcome: Outcome, place: tuple[str, int], owners: defaultdict[str, list[_Owner]]) -> bool:
    """Return True if an answer has all references of a sample on another haystack."""
    text = outcome.generation.text.lower()
    return any(
        owner.place != place and all(reference in text for reference in owner.references)
        for word in set(WORD.findall(text))
        for owner in owners.get(word, ())
    )
