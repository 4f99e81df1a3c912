"""From answers to scores in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fixtures.records import Generation, Outcome, Score
from fixtures.scoring.excerpts import excerpt_of
from plugins.journal import Entry, Journal
from plugins.runner.build_samples import SCORE_ERRORS, Job, SampleBuilder

# Reports show what was asked where an answer is wrong, and for a few that are right.
EXCERPTS_OF_RIGHT = 3


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why an answer has no score, in one line."""

    reason: str


class AnswerScorer:
    """Scores answers and writes them down; what has no score fails its case, in one line."""

    def __init__(self, builder: SampleBuilder):
        self.builder = builder

    def keep(self, journal: Journal, job: Job, generation: Generation) -> None:
        """Score an answer and append it. Raises JournalError."""
        _keep(journal, job, generation, self._scored(job, generation))

    def keep_all(self, journal: Journal, answered: Sequence[tuple[Job, Generation]]) -> None:
        """The same of many, scored at the same time, since a judge takes several questions at once."""
        if answered:
            with ThreadPoolExecutor(max_workers=len(answered)) as together:
                scores = list(together.map(self._scored, *zip(*answered, strict=True)))
            for (job, generation), score in zip(answered, scores, strict=True):
                _keep(journal, job, generation, score)

    def _scored(self, job: Job, generation: Generation) -> Score | Unscored:
        if generation.finish == "thinking":
            return self.builder.unfinished(job.sample)
        try:
            return self.builder.score(job.sample, generation.text)
        except SCORE_ERRORS as error:
            return Unscored(str(error))


def give_up(journal: Journal, case: str, key: str, reason: str) -> None:
    """Write down why a case failed, once, and give the element back."""
    if case not in journal.failures:
        journal.fail(case, reason)
    journal.give_back(key)


def _keep(journal: Journal, job: Job, generation: Generation, score: Score | Unscored) -> None:
    sample = job.sample
    if isinstance(score, Unscored):
        give_up(journal, job.case, job.key, score.reason)
        return
    outcome = Outcome(
        index=sample.index,
        score=score,
        generation=generation,
        references=sample.references,
        depths=sample.depths,
        excerpt=excerpt_of(sample) if score.value < 1 or sample.index < EXCERPTS_OF_RIGHT else None,
    )
    journal.append(Entry(element=job.key, prompt=job.prompt, case=job.case, index=sample.index, outcome=outcome))
