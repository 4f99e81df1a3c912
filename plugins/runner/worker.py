"""The work of one worker, which shares the queue of every panel with all other workers: answers and likelihoods."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace

import msgspec

from longctx.fixtures.engines import Engine, EngineError, Prefetching, Scoring, TimeUp
from longctx.fixtures.engines.base import Batching, Timed
from longctx.fixtures.records import Case, EngineFacts, Generation
from longctx.fixtures.tasks.task import gold_likelihood
from longctx.plugins.config.run import Run
from longctx.plugins.journal import JournalError, LikelihoodEntry
from longctx.plugins.runner.batches import (
    FEW_SAMPLES_LEFT,
    LONGEST_WAIT_SECONDS,
    MOST_BATCHES_AHEAD,
    UNKNOWN_WORKERS_FACTOR,
    WAIT_SECONDS,
    Batch,
    ModelUnderTest,
    batch_size,
    claim_samples,
)
from longctx.plugins.runner.panel_state import PanelState
from longctx.plugins.runner.results import CaseReport
from longctx.plugins.runner.samples import Built, Job, SampleBuilder, give_up, ready_jobs
from longctx.plugins.verdicts.panels import ModelRole, NextSamples, Panel, PanelStatus


class Stopwatch:
    """Adds up seconds by activity. Time in an activity inside another one counts for the inner one alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._inner_seconds = 0.0
        """The time of the activities that ended inside the one that is running."""

    @contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Count the time of the `with` block for an activity."""
        began, before = time.perf_counter(), self._inner_seconds
        self._inner_seconds = 0.0
        try:
            yield
        finally:
            seconds = time.perf_counter() - began
            self._seconds[activity] += seconds - self._inner_seconds
            self._inner_seconds = before + seconds

    @contextmanager
    def measure_engine(self, engine: Engine) -> Iterator[None]:
        """Count the time of the `with` block for `prefill` and `decode`, or for `server` if the engine has no times."""
        if not isinstance(engine, Timed):
            with self.measure("server"):
                yield
            return
        before = engine.prefill_seconds
        try:
            with self.measure("decode"):
                yield
        finally:
            read = engine.prefill_seconds - before
            self._seconds["prefill"] += read
            self._seconds["decode"] -= read

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call by activity, none of which is running."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


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
        self.models = models
        self.panel_state = PanelState(
            run,
            selected,
            {role: model.journal for role, model in models.items()},
            baseline_is_final="baseline" in models and models["baseline"].engine is None,
        )
        self.computed_samples = 0
        self.stopwatch = Stopwatch()
        self.facts: EngineFacts | None = None
        """The facts of the model's engine; None until it is loaded."""
        # The id of the process that started this worker; None for a run without workers, which may outlive its shell.
        self._parent = parent
        # The number of workers of this run on this machine.
        self._workers = workers
        # Claimed batches that are next, in order. Prompts for a prefetching engine have been sent to it.
        self._ahead: deque[Batch] = deque()
        # False while the engine that is loaded may have work on another panel.
        self._may_load = True
        self._broken: JournalError | None = None
        self._wait_seconds = WAIT_SECONDS

    def measure(self, case: Case) -> CaseReport:
        """Work on the case's panel until its verdicts are final, the case has failed or the time is up.

        Raises JournalError, and the same again at every later call: a result that cannot be stored is not worth
        computing. Raises Stopped.
        """
        if self._broken is not None:
            raise self._broken
        computed_before, self._wait_seconds = self.computed_samples, WAIT_SECONDS
        panel, signal = self.panel_state.panels[case.family, case.length], self.run.options.signal
        samples, likelihoods, problem = 0, 0, None
        try:
            with self.stopwatch.measure("journal"):
                if signal != "likelihood":
                    samples, problem = self._measured(case, panel)
                if signal != "answers":
                    problem = problem or self._measure_likelihoods(case, panel)
                    likelihoods = self.panel_state.likelihood_counts(panel)[case.id]
            return CaseReport(
                error=problem,
                samples=samples,
                likelihoods=likelihoods,
                computed_samples=self.computed_samples - computed_before,
                seconds=self.stopwatch.take(),
                executions=self.panel_state.executions,
                facts=self._all_facts(),
            )
        except JournalError as error:
            self._broken = error
            raise
        finally:
            # A claim that outlives its work would keep the other workers waiting, whatever went wrong.
            self._close_ahead()
            for model in self.models.values():
                model.journal.release_all()
                model.rest()

    def _all_facts(self) -> EngineFacts | None:
        """Return the facts of this worker's engine, or of one that answered before, with the notes of all of them."""
        known = [msgspec.convert(facts, EngineFacts) for facts in self.models["model"].journal.facts]
        facts = self.facts or next(iter(known), None)
        notes = dict.fromkeys(note for engine in known for note in engine.notes)
        return facts and replace(facts, notes=tuple(notes))

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

    def _measured(self, case: Case, panel: Panel) -> tuple[int, str | None]:
        """Return how many samples of the case the panel's evidence rests on, and why the case failed, if it did."""
        self.panel_state.refresh()
        while True:
            status = self.panel_state.status(panel)
            error = self.panel_state.failures(panel).get(case.id)
            if error is not None or not status.next_samples or self._is_late():
                if any(isinstance(batch.engine, Prefetching) for batch in self._ahead):
                    self._finish_ahead()
                    self.panel_state.refresh()
                    continue
                # A loss on this panel may need the pairs of other ones, whose tests may have ended.
                awaited = [] if error or self._is_late() else self.panel_state.doubtful_panels()
                if not any(map(self._is_safe, awaited)):
                    return 0 if error else status.evidence_counts.get(case.id, 0), error
            self._check_parent()
            self._refresh(self._work_on_any(panel, status))

    def _measure_likelihoods(self, case: Case, panel: Panel) -> str | None:
        """Measure likelihoods of the panel until it needs no more; return why the case failed, if it did."""
        self.panel_state.refresh()
        while True:
            error = self.panel_state.failures(panel).get(case.id)
            wanted = self.panel_state.next_likelihoods(panel)
            if error is not None or not wanted or self._is_late():
                return error
            self._check_parent()
            self._may_load = True
            batch = self._claim(panel, wanted, with_gold=True)
            if batch is not None:
                self._score(batch)
            self._refresh(batch is not None)

    def _refresh(self, has_worked: bool) -> None:
        """Read the journals again; wait first, longer each time, if other workers have claimed all that is left."""
        if not has_worked:
            for model in self.models.values():
                model.rest()
            with self.stopwatch.measure("wait"):
                time.sleep(self._wait_seconds)
        self._wait_seconds = WAIT_SECONDS if has_worked else min(2 * self._wait_seconds, LONGEST_WAIT_SECONDS)
        self.panel_state.refresh(thorough=not has_worked)

    def _check_parent(self) -> None:
        if self._parent is not None and os.getppid() != self._parent:
            raise Stopped("the run that this worker belongs to has ended")

    def _work_on_any(self, panel: Panel, status: PanelStatus) -> bool:
        """Answer a batch of this panel or, if it has none, of another; return False if there is none.

        Where the models are loaded in turn, all panels come first for which the loaded one has work.
        """
        is_in_turn = not all(model.engine is None or model.is_ready() for model in self.models.values())
        for self._may_load in (False, True) if is_in_turn else (True,):
            if (status.next_samples and self._work(panel, status)) or self._work_elsewhere(panel):
                return True
        return False

    def _work(self, panel: Panel, status: PanelStatus) -> bool:
        """Answer the next batch while the ones after it are built or sent; return False if no sample is free."""
        batch = self._ahead.popleft() if self._ahead else None
        if batch is not None and not (isinstance(batch.engine, Prefetching) or batch.is_wanted(panel, status)):
            # A verdict has made the batch that was claimed ahead needless.
            batch.release()
            batch = None
        if batch is None:
            batch = self._claim(panel, status.next_samples)
        if batch is None:
            return False
        with self.stopwatch.measure("build"):
            built = batch.built.result()
        batch.prefetch()
        self._claim_ahead(batch, panel, status)
        self._answer(batch, built)
        return True

    def _work_elsewhere(self, panel: Panel) -> bool:
        """Work on another panel while other workers have the samples that this one needs."""
        for other in self.panel_state.panels.values():
            if other is panel or not self._is_safe(other):
                continue
            status = self.panel_state.status(other)
            if status.next_samples and self._work(other, status):
                return True
        return False

    def _is_safe(self, panel: Panel) -> bool:
        """Return True unless a worker died in the panel: another death would be blamed on the case of this test."""
        lost = {key for model in self.models.values() for key in model.journal.lost_claims}
        return lost.isdisjoint(self.panel_state.keys(panel).values())

    def _claim_ahead(self, current: Batch, panel: Panel, status: PanelStatus) -> None:
        """Claim batches to be built, or sent to a prefetching engine, while the current one is answered."""
        if any(current.model.journal.lost_claims[key] for key in current.samples):
            # If this batch kills the worker, no other sample may come under suspicion.
            return
        most = _most_batches_ahead(len(status.next_samples), batch_size(current.engine, panel), self._workers)
        only = None
        if isinstance(current.engine, Prefetching):
            # A server knows the model under test only, not the baseline.
            only = current.model
        else:
            most = min(most, 1)
        last = self._ahead[-1] if self._ahead else current
        while len(self._ahead) < most:
            batch = self._claim(panel, status.next_samples, only, last)
            if batch is None:
                return
            batch.prefetch()
            self._ahead.append(batch)
            last = batch

    def _claim(
        self,
        panel: Panel,
        wanted: NextSamples,
        only: ModelUnderTest | None = None,
        after: Batch | None = None,
        *,
        with_gold: bool = False,
    ) -> Batch | None:
        """Claim a batch of samples, or of gold answers, for the first model that needs one; None if none is free."""
        previous = after.samples.values() if after is not None else ()
        keys = self.panel_state.likelihood_keys(panel) if with_gold else self.panel_state.keys(panel)
        roles = dict.fromkeys(role for role, _ in wanted)
        for role in sorted(roles, key=lambda role: not self.models[role].is_ready()):
            model = self.models[role]
            if only not in (None, model):
                continue
            if not model.is_ready():
                if after is not None or not self._may_load:
                    continue
                # The engine of these batches makes room for another one.
                for batch in self._ahead:
                    batch.release()
                self._ahead.clear()
            of_model = {keys[sample]: sample for owner, sample in wanted if owner == role}
            # Load the engine before claiming: a claim must last no longer than an answer takes.
            try:
                engine = self._engine(model)
            except TimeUp:
                return None
            samples = claim_samples(model.journal, engine, panel, of_model, workers=self._workers, previous=previous)
            if samples:
                built = self.builder.begin(panel, samples, with_gold=with_gold)
                return Batch(panel=panel, model=model, engine=engine, samples=samples, built=built)
        return None

    def _finish_ahead(self) -> None:
        """Store the answers that are being computed, which cost something already, and release all other claims."""
        for batch in self._ahead:
            if isinstance(batch.engine, Prefetching):
                batch.engine.cancel_queued()
        while self._ahead:
            batch = self._ahead.popleft()
            self._answer(batch, batch.keep_prefetched())

    def _close_ahead(self) -> None:
        """Drop the batches claimed ahead without waiting for their answers."""
        for batch in self._ahead:
            if isinstance(batch.engine, Prefetching):
                batch.engine.close()
        self._ahead.clear()

    def _engine(self, model: ModelUnderTest) -> Engine:
        assert model.engine is not None
        with self.stopwatch.measure("load"):
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
        for job in ready_jobs(journal, built):
            # The same prompt may have been answered under another name.
            known = journal.entries_by_prompt.get(job.prompt)
            if known is None:
                unanswered.append(job)
            else:
                answered.append((job, known.outcome.generation))
        with self.stopwatch.measure("score"):
            self.builder.store_all(journal, answered)
        if unanswered:
            self._generate(batch, unanswered)

    def _generate(self, batch: Batch, jobs: Sequence[Job]) -> None:
        journal = batch.model.journal
        open_jobs = dict(enumerate(jobs))
        answered: list[tuple[Job, Generation]] = []
        engine, prompts = batch.engine, [job.sample.prompt for job in jobs]
        try:
            with self.stopwatch.measure_engine(engine):
                if isinstance(engine, Batching):
                    answers = engine.generate_unordered(prompts)
                else:
                    answers = enumerate(engine.generate(prompts))
                for place, generation in answers:
                    job = open_jobs.pop(place)
                    self.computed_samples += 1
                    if self.builder.is_assisted(job.sample):
                        # A judge scores all of them at the same time, and never while the model waits.
                        answered.append((job, generation))
                    else:
                        with self.stopwatch.measure("score"):
                            self.builder.store(journal, job, generation)
        except EngineError as error:
            # The error is about the first job without an answer. The others are tried again later, except for answers
            # that a prefetching engine has already.
            failed, *others = open_jobs.values()
            if isinstance(error, TimeUp):
                journal.release(failed.key)
            else:
                give_up(journal, failed.case, failed.key, str(error))
            for job in others:
                if not batch.is_prefetched(job):
                    journal.release(job.key)
            if prefetched := [job for job in others if batch.is_prefetched(job)]:
                self._generate(batch, prefetched)
        with self.stopwatch.measure("score"):
            self.builder.store_all(journal, answered)

    def _score(self, batch: Batch) -> None:
        """Measure and journal the likelihoods of the gold answers of a batch."""
        journal, engine = batch.model.journal, batch.engine
        with self.stopwatch.measure("build"):
            built = batch.built.result()
        open_jobs = ready_jobs(journal, built)
        assert isinstance(engine, Scoring)
        golds = [job.gold for job in open_jobs if job.gold is not None]
        assert len(golds) == len(open_jobs), "samples of these keys are built with their gold answers"
        prompts = [prompt for gold in golds for prompt in gold.prompts]
        continuations = [ids for gold in golds for ids in gold.continuations]
        try:
            scores = engine.score(prompts, continuations)
            for gold in golds:
                started = time.perf_counter()
                with self.stopwatch.measure_engine(engine):
                    of_job = [next(scores) for _ in gold.prompts]
                likelihood = gold_likelihood(of_job, seconds=time.perf_counter() - started)
                job = open_jobs.pop(0)
                journal.append(
                    LikelihoodEntry(key=job.key, case=job.case, index=job.sample.index, likelihood=likelihood)
                )
        except EngineError as error:
            # The error is about the first job without a result. The others are tried again later.
            failed, *others = open_jobs
            give_up(journal, failed.case, failed.key, str(error))
            for job in others:
                journal.release(job.key)

    def _is_late(self) -> bool:
        return self.run.deadline is not None and time.time() >= self.run.deadline


def _most_batches_ahead(wanted: int, batch_size: int, workers: int) -> int:
    """Return how many batches a worker may claim in advance.

    `wanted` is the number of samples that the panel still needs, `workers` that of the known workers.
    """
    if wanted > FEW_SAMPLES_LEFT:
        return MOST_BATCHES_AHEAD
    batches_per_worker = wanted / (workers * batch_size) / UNKNOWN_WORKERS_FACTOR
    return min(MOST_BATCHES_AHEAD, math.ceil(batches_per_worker) - 1)
