"""Score answers and write the results to the journal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fixtures.engines import TimeUp
from fixtures.records import Generation, Outcome, Score
from fixtures.scoring.excerpts import excerpt_of
from plugins.journal import Entry, Journal
from plugins.runner.build_samples import SCORE_ERRORS, Job, SampleBuilder

# Reports show the prompt of every wrong answer and of the first few right ones.
RIGHT_EXCERPTS = 3


@dataclass(frozen=True, slots=True)
class Unscored:
    """An answer that could not be scored."""

    reason: str
    """One line that says why."""


class AnswerScorer:
    """Score answers and journal the results; an answer that cannot be scored fails its case with one line."""

    def __init__(self, builder: SampleBuilder):
        self.builder = builder

    def store(self, journal: Journal, job: Job, generation: Generation) -> None:
        """Score one answer and append the result; raise JournalError."""
        _store(journal, job, generation, self._scored(job, generation))

    def store_all(self, journal: Journal, answered: Sequence[tuple[Job, Generation]]) -> None:
        """Score several answers at the same time, as a judge allows, and append the results; raise JournalError."""
        if answered:
            with ThreadPoolExecutor(max_workers=len(answered)) as pool:
                scores = list(pool.map(self._scored, *zip(*answered, strict=True)))
            for (job, generation), score in zip(answered, scores, strict=True):
                _store(journal, job, generation, score)

    def _scored(self, job: Job, generation: Generation) -> Score | Unscored | None:
        """Return the score of an answer; None if the run's time is up before a judge has decided."""
        if generation.finish == "thinking":
            return self.builder.unfinished(job.sample)
        try:
            return self.builder.score(job.sample, generation.text)
        except TimeUp:
            return None
        except SCORE_ERRORS as error:
            return Unscored(str(error))


def give_up(journal: Journal, case: str, key: str, reason: str) -> None:
    """Journal why a case failed, once per case, and release the claim of the sample."""
    if case not in journal.failures:
        journal.record_failure(case, reason)
    journal.release(key)


def _store(journal: Journal, job: Job, generation: Generation, score: Score | Unscored | None) -> None:
    sample = job.sample
    if score is None:
        journal.release(job.key)
        return
    if isinstance(score, Unscored):
        give_up(journal, job.case, job.key, score.reason)
        return
    outcome = Outcome(
        index=sample.index,
        score=score,
        generation=generation,
        references=sample.references,
        depths=sample.depths,
        excerpt=excerpt_of(sample) if score.value < 1 or sample.index < RIGHT_EXCERPTS else None,
    )
    journal.append(Entry(key=job.key, prompt=job.prompt, case=job.case, index=sample.index, outcome=outcome))
