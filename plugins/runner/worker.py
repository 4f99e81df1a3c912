"""The work of one worker, which shares the queue of every panel with all other workers: answers and likelihoods.

A worker claims as many samples at a time as its engine needs, and none that others would wait for.
"""

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import msgspec

from longctx.fixtures.engines import Engine, EngineError, Prefetching, Scoring, TimeUp
from longctx.fixtures.engines.base import Batching
from longctx.fixtures.records import Case, EngineFacts, Generation
from longctx.fixtures.tasks.task import gold_likelihood
from longctx.plugins.config.run import Run
from longctx.plugins.evidence.clusters import SampleRef, cluster_of
from longctx.plugins.journal import Journal, JournalError, LikelihoodEntry
from longctx.plugins.runner.panel_state import PanelState
from longctx.plugins.runner.results import CaseReport
from longctx.plugins.runner.samples import Built, Job, SampleBuilder, give_up, ready_jobs
from longctx.plugins.verdicts.panels import ModelRole, NextSamples, Panel, PanelStatus

# A sample over which this many workers died is not tried again: it would kill all of them.
MOST_LOSSES = 3
# As many prompts may share a text, also where the engine decodes fewer of them together.
FEW_PROMPTS = 8
# The waiting time of a worker while others have claimed all that is left: the first, and the longest.
WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 1.0
# Enough prompts at a time for an engine to batch.
BATCH_PROMPT_TOKENS = 32_768
# Near the end of a panel a batch claimed ahead may keep another worker waiting. Runs on other machines may have workers
# that this one does not know of, so it then assumes that there are this many times its own number.
FEW_SAMPLES_LEFT = 64
UNKNOWN_WORKERS_FACTOR = 4
# More than one, because answers take different times and those on a shared context take two rounds.
MOST_BATCHES_AHEAD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnderTest:
    """One of the compared models: the checkpoint under test or the baseline."""

    journal: Journal
    engine: Callable[[], Engine] | None
    """Loads the engine that computes new results; None if the journal is all there will be."""
    is_ready: Callable[[], bool] = lambda: True
    """Returns False if loading the engine would release that of the other model."""
    rest: Callable[[], None] = lambda: None
    """Lets other workers replace the model that is loaded for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples that this worker has claimed for one model."""

    panel: Panel
    model: ModelUnderTest
    engine: Engine
    samples: Mapping[str, SampleRef]
    """The claimed samples by journal key."""
    built: Future[Built]
    """The samples with their prompts, built in the background."""

    def is_wanted(self, panel: Panel, status: PanelStatus) -> bool:
        """Return True if the panel still needs all of the samples."""
        wanted = {sample for _, sample in status.next_samples}
        return self.panel is panel and wanted.issuperset(self.samples.values())

    def release(self) -> None:
        for key in self.samples:
            self.model.journal.release(key)

    def prefetch(self) -> None:
        """Send the prompts to an engine that computes elsewhere, so that it never waits for this worker."""
        if isinstance(self.engine, Prefetching):
            known = self.model.journal.entries_by_prompt
            self.engine.prefetch([job.sample.prompt for job in self.jobs if job.prompt not in known])

    @property
    def jobs(self) -> list[Job]:
        return [job for job in self.built.result() if isinstance(job, Job)]

    def is_prefetched(self, job: Job) -> bool:
        """Return True if the engine has answered the job ahead, or is answering it."""
        return isinstance(self.engine, Prefetching) and self.engine.is_prefetched(job.sample.prompt)

    def keep_prefetched(self) -> list[Job]:
        """Return the jobs that the engine has answered ahead or is answering, and release all other claims."""
        prefetched = [job for job in self.jobs if self.is_prefetched(job)]
        for key in self.samples.keys() - {job.key for job in prefetched}:
            self.model.journal.release(key)
        return prefetched


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
        if not isinstance(engine, Batching):
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
        state, signal = self.panel_state, self.run.options.signal
        panel = state.panels[case.family, case.length]
        samples, likelihoods, problem = 0, 0, None
        try:
            with self.stopwatch.measure("journal"):
                if signal != "likelihood":
                    samples, problem = self._measured(case, panel)
                if signal != "answers":
                    problem = problem or self._measure_likelihoods(case, panel)
                    likelihoods = state.likelihood_counts(panel)[case.id]
            return CaseReport(
                error=problem,
                samples=samples,
                likelihoods=likelihoods,
                computed_samples=self.computed_samples - computed_before,
                seconds=self.stopwatch.take(),
                executions=state.executions,
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
        state = self.panel_state
        state.refresh()
        while True:
            status, error = state.status(panel), state.failures(panel).get(case.id)
            if error is not None or not status.next_samples or self._is_late():
                if any(isinstance(batch.engine, Prefetching) for batch in self._ahead):
                    self._finish_ahead()
                    state.refresh()
                    continue
                # A loss on this panel may need the pairs of other ones, whose tests may have ended.
                awaited = [] if error or self._is_late() else state.doubtful_panels()
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
        roles = dict.fromkeys(role for role, _ in wanted if only in (None, self.models[role]))
        for role in sorted(roles, key=lambda role: not self.models[role].is_ready()):
            model = self.models[role]
            if not model.is_ready():
                if after is not None or not self._may_load:
                    continue
                # The engine of these batches makes room for another one.
                for batch in self._ahead:
                    batch.release()
                self._ahead.clear()
            # Load the engine before claiming: a claim must last no longer than an answer takes.
            try:
                engine = self._engine(model)
            except TimeUp:
                return None
            of_model = {keys[sample]: sample for owner, sample in wanted if owner == role}
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
    """Return how many batches to claim in advance of the `wanted` samples, which `workers` known workers share."""
    if wanted > FEW_SAMPLES_LEFT:
        return MOST_BATCHES_AHEAD
    batches_per_worker = wanted / (workers * batch_size) / UNKNOWN_WORKERS_FACTOR
    return min(MOST_BATCHES_AHEAD, math.ceil(batches_per_worker) - 1)


def batch_size(engine: Engine, panel: Panel) -> int:
    """Return the number of the panel's samples that a worker claims at a time for this engine."""
    most = engine.facts.batch_size or max(1, BATCH_PROMPT_TOKENS // panel.length)
    # Long prompts are decoded in smaller batches, and each is work enough to look at the evidence first.
    return max(engine.rows(panel.length), min(most, FEW_PROMPTS)) if isinstance(engine, Batching) else most


def claim_samples(
    journal: Journal,
    engine: Engine,
    panel: Panel,
    wanted: Mapping[str, SampleRef],
    *,
    workers: int,
    previous: Iterable[SampleRef] = (),
) -> dict[str, SampleRef]:
    """Claim the first free samples, and all that share a context with them, and return those to be computed.

    A context that is split between workers would be read by each of them. Samples on one haystack come together, first
    those on a haystack of the `previous` batch, because the engine still has the text that they share.

    A sample that a worker died over is claimed alone: if it kills this worker too, no other sample comes under
    suspicion. One over which too many workers died fails its case; it is not even built again, because the workers may
    have died of that.
    """
    lost = journal.lost_claims
    claimed = journal.claim([key for key in wanted if lost[key]], 1) if lost else []
    if not claimed:
        # Few samples are wanted near a verdict, and all workers share them.
        share = -(-len(wanted) // workers)
        unsuspected = [key for key in _by_haystack(panel, wanted, previous) if not lost[key]]
        claimed = journal.claim(unsuspected, min(batch_size(engine, panel), share))
        clusters = {key: cluster_of(wanted[key], panel.cases) for key in unsuspected}
        begun = {clusters[key] for key in claimed}
        rest = [key for key in unsuspected if clusters[key] in begun and key not in claimed]
        if rest:
            claimed += journal.claim(rest, len(rest))
    samples = {}
    for key in claimed:
        sample = wanted[key]
        if journal.lost_claims[key] < MOST_LOSSES:
            samples[key] = sample
            continue
        reason = (
            f"{sample.case_id} sample {sample.sample_index}: {MOST_LOSSES} workers died over it, killed by the system "
            "(out of memory?); use fewer workers, shorter --lengths or --dtype bfloat16"
        )
        give_up(journal, sample.case_id, key, reason)
    return samples


def _by_haystack(panel: Panel, wanted: Mapping[str, SampleRef], previous: Iterable[SampleRef]) -> list[str]:
    """Return the keys in their order, but with those of one haystack together."""
    places = {panel.haystack(ref): -1 for ref in previous}
    for place, ref in enumerate(wanted.values()):
        places.setdefault(panel.haystack(ref), place)
    return sorted(wanted, key=lambda key: places[panel.haystack(wanted[key])])
