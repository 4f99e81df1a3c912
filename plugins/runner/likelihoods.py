"""Measure the likelihoods of gold answers and write them to the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from fixtures.engines import Engine, EngineError, Scoring
from fixtures.records import Case, ContinuationScore
from fixtures.tasks.gold_prompts import gold_likelihood
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import ModelRole, Panel
from plugins.journal import Journal, LikelihoodEntry
from plugins.runner.batches import (
    LONGEST_WAIT_SECONDS,
    WAIT_SECONDS,
    ModelUnderTest,
    batch_size,
    claim_batch,
    give_up_lost,
)
from plugins.runner.build_samples import Job, SampleBuilder
from plugins.runner.panel_state import PanelState
from plugins.runner.score_answers import give_up


class LikelihoodWorker:
    """Claim samples of the shared queues and journal the likelihoods of their gold answers."""

    def __init__(
        self,
        panel_state: PanelState,
        builder: SampleBuilder,
        models: Mapping[ModelRole, ModelUnderTest],
        *,
        load: Callable[[ModelUnderTest], Engine],
        workers: int,
    ):
        self.panel_state = panel_state
        self.builder = builder
        self.models = models
        self._load = load
        self._workers = workers

    def measure(self, case: Case, panel: Panel, *, is_over: Callable[[], bool]) -> str | None:
        """Work on the case's panel until it needs no more, the case has failed or `is_over` returns True.

        Returns the reason why the case failed; None if it did not. Raises JournalError.
        """
        wait_seconds = WAIT_SECONDS
        self.panel_state.refresh()
        while True:
            error = self.panel_state.failures(panel).get(case.id)
            wanted = self.panel_state.next_likelihoods(panel)
            if error is not None or not wanted or is_over():
                return error
            if self._work(panel, wanted):
                wait_seconds = WAIT_SECONDS
                self.panel_state.catch_up()
            else:
                # Other workers have claimed all that is left.
                time.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)
                self.panel_state.refresh(thorough=True)

    def _work(self, panel: Panel, wanted: Sequence[tuple[ModelRole, SampleRef]]) -> bool:
        """Measure the first free samples of one model; return False if other workers have claimed all of them."""
        keys = self.panel_state.likelihood_keys(panel)
        for role in dict.fromkeys(role for role, _ in wanted):
            model = self.models[role]
            of_model = {keys[ref]: ref for owner, ref in wanted if owner == role}
            # Load the engine before claiming: a claim must last no longer than the work takes.
            engine = self._load(model)
            share = -(-len(of_model) // self._workers)
            claimed = claim_batch(model.journal, panel, of_model, min(batch_size(engine, panel), share))
            samples = {key: of_model[key] for key in claimed}
            give_up_lost(model.journal, samples)
            if samples:
                self._measure(panel, model.journal, engine, samples)
                return True
        return False

    def _measure(self, panel: Panel, journal: Journal, engine: Engine, samples: Mapping[str, SampleRef]) -> None:
        jobs: list[Job] = []
        for built in self.builder.begin(panel, samples, with_gold=True).result():
            if isinstance(built, Job):
                jobs.append(built)
            else:
                give_up(journal, built.case, built.key, built.reason)
        open_jobs = list(jobs)
        try:
            for job, scores, seconds in _scored(engine, jobs):
                journal.append(
                    LikelihoodEntry(
                        key=job.key,
                        case=job.case,
                        index=job.sample.index,
                        likelihood=gold_likelihood(scores, seconds=seconds),
                    )
                )
                open_jobs.remove(job)
        except EngineError as error:
            # The error is about the first job without a result. The others are tried again later.
            failed, *others = open_jobs
            give_up(journal, failed.case, failed.key, str(error))
            for job in others:
                journal.release(job.key)


def _scored(engine: Engine, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[ContinuationScore], float]]:
    """Yield each job with the scores of its texts and the seconds that they took."""
    assert isinstance(engine, Scoring)
    golds = [job.gold for job in jobs if job.gold is not None]
    prompts = [prompt for gold in golds for prompt in gold.prompts]
    continuations = [ids for gold in golds for ids in gold.continuations]
    scores = engine.score(prompts, continuations)
    for job, gold in zip(jobs, golds, strict=True):
        started = time.perf_counter()
        of_job = [next(scores) for _ in gold.prompts]
        yield job, of_job, time.perf_counter() - started
