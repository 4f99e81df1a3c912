"""The work loop of one worker, which shares the queue of every panel with all other workers."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from fixtures.engines import Engine, EngineError, EngineFacts, Prefetching, TimeUp
from fixtures.records import Case, Generation
from plugins.config.run import Run
from plugins.gates.panels import ModelRole, Panel, PanelStatus
from plugins.journal import JournalError
from plugins.runner.batches import (
    LONGEST_WAIT_SECONDS,
    WAIT_SECONDS,
    Batch,
    ModelUnderTest,
    batch_size,
    claim_batch,
    give_up_lost,
    most_batches_ahead,
)
from plugins.runner.build_samples import Built, Job, SampleBuilder
from plugins.runner.case_report import CaseEnd
from plugins.runner.likelihoods import LikelihoodWorker
from plugins.runner.panel_state import PanelState
from plugins.runner.prefetch import is_prefetched, prefetch_batch, prefetched_jobs
from plugins.runner.score_answers import AnswerScorer, give_up


class Stopped(RuntimeError):
    """The process that started this worker has ended."""


class Worker:
    """Claim samples from the shared queues, run the model on them, and journal the results."""

    def __init__(
        self,
        run: Run,
        selected: Sequence[Case],
        *,
        builder: SampleBuilder,
        models: Mapping[ModelRole, ModelUnderTest],
        parent: int | None = None,
        workers: int = 1,
    ):
        self.run = run
        self.builder = builder
        self.scorer = AnswerScorer(builder)
        self.models = models
        self.panel_state = PanelState(
            run,
            selected,
            {role: model.journal for role, model in models.items()},
            baseline_is_final="baseline" in models and models["baseline"].engine is None,
        )
        self.computed_samples = 0
        self.facts: EngineFacts | None = None
        """The facts of the model's engine; None until it is loaded."""
        # The id of the process that started this worker; None for a run without workers, which may outlive its shell.
        self._parent = parent
        # The number of workers of this run on this machine.
        self._workers = workers
        # Claimed batches that are next, in order. Prompts for a prefetching engine have been sent to it.
        self._ahead: deque[Batch] = deque()
        self._broken: JournalError | None = None
        self.likelihoods = LikelihoodWorker(self.panel_state, builder, models, load=self._engine, workers=workers)

    def measure(self, case: Case) -> CaseEnd:
        """Work on the case's panel until its verdicts are final, the case has failed or the time is up.

        Raises JournalError, and the same again at every later call: a result that cannot be stored is not worth
        computing. Raises Stopped.
        """
        if self._broken is not None:
            raise self._broken
        try:
            panel = self.panel_state.panels[case.family, case.length]
            if self.run.options.signal == "likelihood":
                return self._with_likelihood(case, panel, CaseEnd(samples=0, error=None))
            end = self._measured(case, panel)
            return end if self.run.options.signal == "answers" else self._with_likelihood(case, panel, end)
        except JournalError as error:
            self._broken = error
            raise
        finally:
            # A claim that outlives its work would keep the other workers waiting, whatever went wrong.
            self._close_ahead()
            for model in self.models.values():
                model.journal.release_all()

    def close(self) -> None:
        """Release all claims and end the heartbeat."""
        self._close_ahead()
        self.builder.close()
        for model in self.models.values():
            model.journal.close()
            if model.journal.heartbeat is not None:
                model.journal.heartbeat.close()

    def help(self) -> None:
        """Work on all panels until none needs a sample, for a worker that has no case of its own left."""
        for panel in self.panel_state.panels.values():
            self.panel_state.refresh()
            failures = self.panel_state.failures(panel)
            case = next((case for case in panel.cases.values() if case.id not in failures), None)
            if case is not None:
                self.measure(case)

    def _measured(self, case: Case, panel: Panel) -> CaseEnd:
        wait_seconds = WAIT_SECONDS
        self.panel_state.refresh()
        while True:
            status = self.panel_state.status(panel)
            error = self.panel_state.failures(panel).get(case.id)
            if error is not None or not status.next_samples or self._is_late():
                if not self._is_prefetching():
                    return CaseEnd(samples=0 if error else status.evidence_counts.get(case.id, 0), error=error)
                self._finish_ahead()
                self.panel_state.refresh()
                continue
            self._check_parent()
            if self._work(panel, status) or self._work_elsewhere(panel):
                wait_seconds = WAIT_SECONDS
                self.panel_state.catch_up()
            else:
                # Other workers have claimed all that is left.
                time.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)
                self.panel_state.refresh(thorough=True)

    def _with_likelihood(self, case: Case, panel: Panel, end: CaseEnd) -> CaseEnd:
        """Return the end of the case after its likelihoods were measured too."""
        error = end.error or self.likelihoods.measure(case, panel, is_over=self._is_over)
        return replace(end, error=error, likelihoods=self.panel_state.likelihood_counts(panel)[case.id])

    def _check_parent(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            raise Stopped("the run that this worker belongs to has ended")

    def _work(self, panel: Panel, status: PanelStatus) -> bool:
        """Answer the next batch while the ones after it are built or sent; return False if no sample is free."""
        batch = self._next_batch(panel, status)
        if batch is None:
            return False
        built = batch.built.result()
        prefetch_batch(batch)
        self._claim_ahead(batch, panel, status)
        self._answer(batch, built)
        return True

    def _work_elsewhere(self, panel: Panel) -> bool:
        """Work on another panel while other workers have the samples that this one needs.

        A panel in which a worker died is left alone: another death would be blamed on the case of this test.
        """
        lost = {key for model in self.models.values() for key in model.journal.lost_claims}
        others = (
            other
            for other in self.panel_state.panels.values()
            if other is not panel and lost.isdisjoint(self.panel_state.keys(other).values())
        )
        return any(
            self._work(other, status) for other in others if (status := self.panel_state.status(other)).next_samples
        )

    def _next_batch(self, panel: Panel, status: PanelStatus) -> Batch | None:
        """Return the batch claimed ahead, unless a verdict has made it needless, else claim one."""
        if self._ahead:
            batch = self._ahead.popleft()
            if isinstance(batch.engine, Prefetching) or batch.is_wanted(panel, status):
                return batch
            batch.release()
        return self._claim(panel, status)

    def _claim_ahead(self, current: Batch, panel: Panel, status: PanelStatus) -> None:
        """Claim batches to be built, or sent to a prefetching engine, while the current one is answered."""
        if any(current.model.journal.lost_claims[key] for key in current.samples):
            # If this batch kills the worker, no other sample may come under suspicion.
            return
        most = most_batches_ahead(len(status.next_samples), batch_size(current.engine, panel), self._workers)
        only = None
        if isinstance(current.engine, Prefetching):
            # A server knows the model under test only, not the baseline.
            only = current.model
        else:
            most = min(most, 1)
        while len(self._ahead) < most and (batch := self._claim(panel, status, only)) is not None:
            prefetch_batch(batch)
            self._ahead.append(batch)

    def _claim(self, panel: Panel, status: PanelStatus, only: ModelUnderTest | None = None) -> Batch | None:
        """Claim a batch for the first model that needs one; None if no sample is free."""
        keys = self.panel_state.keys(panel)
        for role in dict.fromkeys(role for role, _ in status.next_samples):
            model = self.models[role]
            if only not in (None, model):
                continue
            wanted = {keys[sample]: sample for owner, sample in status.next_samples if owner == role}
            # Load the engine before claiming: a claim must last no longer than an answer takes.
            engine = self._engine(model)
            # Few samples are wanted near a verdict, and all workers share them.
            share = -(-len(wanted) // self._workers)
            claimed = claim_batch(model.journal, panel, wanted, min(batch_size(engine, panel), share))
            samples = {key: wanted[key] for key in claimed}
            give_up_lost(model.journal, samples)
            if samples:
                built = self.builder.begin(panel, samples)
                return Batch(panel=panel, model=model, engine=engine, samples=samples, built=built)
        return None

    def _is_prefetching(self) -> bool:
        return any(isinstance(batch.engine, Prefetching) for batch in self._ahead)

    def _finish_ahead(self) -> None:
        """Store the answers that are being computed, which cost something already, and release all other claims."""
        for batch in self._ahead:
            if isinstance(batch.engine, Prefetching):
                batch.engine.cancel_queued()
        while self._ahead:
            batch = self._ahead.popleft()
            self._answer(batch, prefetched_jobs(batch, batch.built.result()))

    def _close_ahead(self) -> None:
        """Drop the batches claimed ahead without waiting for their answers."""
        for batch in self._ahead:
            if isinstance(batch.engine, Prefetching):
                batch.engine.close()
        self._ahead.clear()

    def _engine(self, model: ModelUnderTest) -> Engine:
        assert model.engine is not None
        engine = model.engine()
        model.journal.record_facts(asdict(engine.facts))
        if model is self.models["model"]:
            self.facts = engine.facts
        return engine

    def _answer(self, batch: Batch, built: Built) -> None:
        """Journal a result for every sample; a sample that cannot be answered fails its case."""
        journal = batch.model.journal
        unanswered: list[Job] = []
        answered: list[tuple[Job, Generation]] = []
        for job in built:
            # The same prompt may have been answered under another name.
            known = journal.entries_by_prompt.get(job.prompt) if isinstance(job, Job) else None
            if not isinstance(job, Job):
                give_up(journal, job.case, job.key, job.reason)
            elif known is not None:
                (entry,) = journal.load([known])
                answered.append((job, entry.outcome.generation))
            else:
                unanswered.append(job)
        self.scorer.store_all(journal, answered)
        if unanswered:
            self._generate(batch, unanswered)

    def _generate(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Run the engine on the jobs, and journal the results."""
        journal = batch.model.journal
        open_jobs = list(jobs)
        answered: list[tuple[Job, Generation]] = []
        try:
            for generation in batch.engine.generate([job.sample.prompt for job in jobs]):
                job = open_jobs.pop(0)
                self.computed_samples += 1
                if self.builder.is_assisted(job.sample):
                    # A judge scores all of them at the same time, and never while the model waits.
                    answered.append((job, generation))
                else:
                    self.scorer.store(journal, job, generation)
        except EngineError as error:
            # The error is about the first job without an answer. The others are tried again later, except for answers
            # that a prefetching engine has already.
            failed, *others = open_jobs
            if isinstance(error, TimeUp):
                journal.release(failed.key)
            else:
                give_up(journal, failed.case, failed.key, str(error))
            for job in others:
                if not is_prefetched(batch.engine, job):
                    journal.release(job.key)
            if prefetched := [job for job in others if is_prefetched(batch.engine, job)]:
                self._generate(batch, prefetched)
        self.scorer.store_all(journal, answered)

    def _is_over(self) -> bool:
        self._check_parent()
        return self._is_late()

    def _is_late(self) -> bool:
        return self.run.deadline is not None and time.time() >= self.run.deadline
