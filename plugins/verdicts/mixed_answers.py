"""Find cases whose wrong answers are the right ones of other samples: a server has mixed up its requests."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from longctx.fixtures.records import CaseResult, Outcome

WORD = re.compile(r"\w+")
# Shorter references, such as labels and counts, are in many answers.
LEAST_CHARACTERS = 5
# Numbers and uuids, which no two samples share by chance, so that one of several references is enough.
CODE = re.compile(r".*\d.*\d.*\d.*\d.*")
# Numbers of seven digits and uuids are drawn at random, so no wrong answer has that of another sample by chance.
RANDOM = re.compile(r"\d{7,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+")
# The share of a case's samples that must have answers of their own: classes and yes or no are shared by many.
LEAST_DISTINCT = 0.9
# What chance explains: an answer with a probability of at least this has another sample's references in it.
LEAST_CHANCE, PRIOR_HITS, PRIOR_ANSWERS = 0.02, 1.0, 20
# The same for random references.
RANDOM_CHANCE, RANDOM_HITS = 0.005, 0.2
# The numbers of seven digits, of which a wrong answer may have any.
DRAWN_NUMBERS = 9_000_000
ALPHA = 1e-3
RIGHT, WRONG = True, False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """A sample whose references are known."""

    place: tuple[str, int]
    """The case id and the haystack."""
    references: tuple[str, ...]
    """In lower case; all of them must be in an answer."""


def mixed_up_cases(results: Iterable[CaseResult]) -> dict[str, str]:
    """Return an error line, by case id, where more wrong answers are right for other samples than chance explains.

    The hits of random references are added up over all cases, because a few in a run are enough.

    Samples on one haystack may share their distractors, so they are not compared with each other.
    """
    counts = _hits_of(list(results))
    whole = _whole(counts)
    is_mixed = whole.exceed_chance(whole.random, RANDOM_CHANCE, RANDOM_HITS)
    return {
        case: (
            f"{hits.all[WRONG]} of {hits.answers[WRONG]} wrong answers are the right answers to other samples of this "
            "run, so the server mixes up the answers to its requests, or repeats earlier ones; mend it, and start "
            "again with another --journal"
        )
        for case, hits in counts.items()
        if (is_mixed and hits.random[WRONG]) or hits.exceed_chance(hits.all, LEAST_CHANCE, PRIOR_HITS)
    }


def mixed_up_note(results: Sequence[CaseResult]) -> str | None:
    """Return a note if too few answers for an error have a number that was drawn for another sample only."""
    results = [result for result in results if result.error is None]
    whole = _whole(_hits_of(results))
    drawn = sum(1 for result in results for owner in _owners(result) if _is_random(owner))
    found, wrong = whole.random[WRONG], whole.answers[WRONG]
    if not found or whole.random[RIGHT] or _tail(found, wrong, min(1.0, drawn / DRAWN_NUMBERS)) >= ALPHA:
        return None
    return (
        f"has in {found} of {wrong} wrong answers a number that was drawn for another sample: it may mix up the "
        "answers to its requests, or repeat earlier ones"
    )


def _hits_of(results: Sequence[CaseResult]) -> dict[str, _Hits]:
    """Return the answers of every case that are right for samples on other haystacks."""
    owners: defaultdict[str, list[_Owner]] = defaultdict(list)
    for owner in (owner for result in results for owner in _owners(result)):
        owners[_longest_word(owner.references)].append(owner)
    counts: dict[str, _Hits] = {}
    for result in results:
        counts[result.case.id] = hits = _Hits()
        for outcome in result.outcomes:
            place = (result.case.id, result.case.haystack(outcome.index))
            hits.add(outcome, _owners_of(outcome, place, owners))
    return counts


def _whole(counts: Mapping[str, _Hits]) -> _Hits:
    whole = _Hits()
    for hits in counts.values():
        whole.random.update(hits.random)
        whole.answers.update(hits.answers)
    return whole


@dataclass(slots=True)
class _Hits:
    """Numbers of answers, by whether they are right."""

    answers: Counter[bool] = field(default_factory=Counter)
    all: Counter[bool] = field(default_factory=Counter)
    """Those with the references of another sample."""
    random: Counter[bool] = field(default_factory=Counter)
    """Those with random references of another sample."""

    def add(self, outcome: Outcome, others: Sequence[_Owner]) -> None:
        is_right = outcome.score.value == 1
        self.answers[is_right] += 1
        self.all[is_right] += bool(others)
        self.random[is_right] += any(map(_is_random, others))

    def exceed_chance(self, hits: Counter[bool], least: float, prior: float) -> bool:
        """Return True if wrong answers have more hits than chance explains, which right answers show."""
        chance = max(least, (hits[RIGHT] + prior) / (self.answers[RIGHT] + PRIOR_ANSWERS))
        return hits[WRONG] > 0 and _tail(hits[WRONG], self.answers[WRONG], chance) < ALPHA


def _is_random(owner: _Owner) -> bool:
    return any(RANDOM.fullmatch(text) for text in owner.references)


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


def _owners_of(outcome: Outcome, place: tuple[str, int], owners: Mapping[str, Sequence[_Owner]]) -> Sequence[_Owner]:
    """Return the samples on other haystacks all of whose references are in an answer."""
    text = outcome.generation.text.lower()
    return [
        owner
        for word in set(WORD.findall(text))
        for owner in owners.get(word, ())
        if owner.place != place and all(reference in text for reference in owner.references)
    ]
