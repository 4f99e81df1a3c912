"""Where samples are answered and scored: one panel's queue at a time, together with all other workers."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fixtures.engines import Engine, EngineError, EngineFacts, Prefetching
from fixtures.records import Case, CaseResult, Generation
from plugins.config.run import Run
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import ModelRole, Panel, PanelStatus
from plugins.journal import JournalError
from plugins.runner.batches import Batch, ModelUnderTest, at_once, most_ahead, take
from plugins.runner.build_samples import Built, Job, SampleBuilder
from plugins.runner.panel_state import PanelState
from plugins.runner.score_answers import AnswerScorer, give_up

# A sample that took this many workers with it would take them all.
MOST_LOSSES = 3
WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 1.0


class Stopped(RuntimeError):
    """The process that gives the orders is gone."""


class Worker:
    """A worker's place: works off the panels of its run."""

    def __init__(
        self,
        run: Run,
        selected: Sequence[Case],
        *,
        builder: SampleBuilder,
        sides: Mapping[ModelRole, ModelUnderTest],
        parent: int | None = None,
        workers: int = 1,
    ):
        self.run = run
        self.builder = builder
        self.marker = AnswerScorer(builder)
        self.sides = sides
        self.panel_state = PanelState(
            run,
            selected,
            {who: side.journal for who, side in sides.items()},
            baseline_is_final="baseline" in sides and sides["baseline"].engine is None,
        )
        self.computed = 0
        # What the engine says of itself; None until it was needed.
        self.facts: EngineFacts | None = None
        # The process that a worker belongs to; None for one that is its own master, whatever shell it came from.
        self._parent = parent
        # Of this run on this machine, as far as it is known.
        self._workers = workers
        self._ahead: Batch | None = None
        # What a server was asked for already, in order.
        self._begun: deque[Batch] = deque()
        self._broken: JournalError | None = None

    def measure(self, case: Case) -> CaseResult:
        """The case's part of what its panel's evidence rests on; works on the panel until that is there.

        Raises JournalError, at once after the first: a result that cannot be kept is not worth computing.
        Raises Stopped.
        """
        if self._broken is not None:
            raise self._broken
        try:
            return self._measured(case, self.panel_state.panels[case.family, case.length])
        except JournalError as error:
            self._broken = error
            raise
        finally:
            # Whatever went wrong: a claim that outlives its work would keep everybody waiting.
            self._close_begun()
            self._ahead = None
            for side in self.sides.values():
                side.journal.give_all_back()

    def close(self) -> None:
        """Give back what was claimed, and sign off."""
        self._close_begun()
        self.builder.close()
        for side in self.sides.values():
            side.journal.close()
            if side.journal.presence is not None:
                side.journal.presence.close()

    def help(self) -> None:
        """Work on all panels until none wants anything, for a worker that has no case of its own left."""
        for panel in self.panel_state.panels.values():
            self.panel_state.refresh()
            failures = self.panel_state.failures(panel)
            for case in [case for case in panel.cases.values() if case.id not in failures][:1]:
                self.measure(case)

    def _measured(self, case: Case, panel: Panel) -> CaseResult:
        wait = WAIT_SECONDS
        while True:
            self.panel_state.refresh()
            standing = self.panel_state.status(panel)
            error = self.panel_state.failures(panel).get(case.id)
            if error is not None or not standing.next_samples or self._is_late():
                if not self._begun:
                    return self.panel_state.result(case, panel, standing, error)
                self._finish_begun()
                continue
            if self._parent is not None and os.getppid() != self._parent:
                raise Stopped("the run that this worker belongs to has ended")
            if self._work(panel, standing) or self._work_elsewhere(panel):
                wait = WAIT_SECONDS
            else:
                # What is left is in other workers' hands.
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def _work_elsewhere(self, panel: Panel) -> bool:
        """While what this panel surely takes is in other workers' hands: what others surely take.

        But not where a worker died: another death would be laid to the case that this one is here for.
        """
        lost = {key for side in self.sides.values() for key in side.journal.lost}
        others = (
            other
            for other in self.panel_state.panels.values()
            if other is not panel and lost.isdisjoint(self.panel_state.keys(other).values())
        )
        return any(
            self._work(other, standing) for other in others if (standing := self.panel_state.status(other)).next_samples
        )

    def _work(self, panel: Panel, standing: PanelStatus) -> bool:
        """Answer what is next in the queue and free, while what comes after is built; False if nothing is free."""
        batch = self._begun.popleft() if self._begun else self._claimed_ahead(panel, standing)
        batch = batch or self._claim(panel, standing)
        if batch is None:
            return False
        built = batch.built.result()
        risky = any(batch.side.journal.lost[key] for key in batch.taken)
        most = 0 if risky else most_ahead(len(standing.next_samples), at_once(batch.engine, panel), self._workers)
        if isinstance(batch.engine, Prefetching):
            self._begin(batch, batch.engine)
            # Of the same side: the other one's prompts are not for this server.
            while len(self._begun) < most and (more := self._claim(panel, standing, batch.side)) is not None:
                self._begin(more, batch.engine)
                self._begun.append(more)
        elif most > 0:
            self._ahead = self._claim(panel, standing)
        self._answer(batch, built)
        return True

    def _claim(self, panel: Panel, standing: PanelStatus, only: ModelUnderTest | None = None) -> Batch | None:
        keys = self.panel_state.keys(panel)
        for who in dict.fromkeys(who for who, _ in standing.next_samples):
            side = self.sides[who]
            if only not in (None, side):
                continue
            wanted = {keys[element]: element for owner, element in standing.next_samples if owner == who}
            # Loaded before anything is claimed: a claim is held no longer than an answer takes.
            engine = self._engine(side)
            # Near a verdict little is wanted, and it is shared.
            share = -(-len(wanted) // self._workers)
            most = min(at_once(engine, panel), share)
            taken = {key: wanted[key] for key in take(side.journal, panel, wanted, most)}
            for key in [key for key in taken if side.journal.lost[key] >= MOST_LOSSES]:
                # Not even built again: that may be what they died of.
                give_up(side.journal, wanted[key].case_id, key, _lost(taken.pop(key)))
            if taken:
                return Batch(panel=panel, side=side, engine=engine, taken=taken, built=self.builder.begin(panel, taken))
        return None

    def _claimed_ahead(self, panel: Panel, standing: PanelStatus) -> Batch | None:
        """What was claimed ahead, unless the verdict has come so near that it is no longer wanted."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        wanted = {element for _, element in standing.next_samples}
        if ahead.panel is panel and wanted.issuperset(ahead.taken.values()):
            return ahead
        _give_back(ahead)
        return None

    def _begin(self, batch: Batch, engine: Prefetching) -> None:
        """Ask for a batch before it is read: a server never waits for this side, nor for its slowest answer."""
        known = batch.side.journal.generations
        jobs = [job for job in batch.built.result() if isinstance(job, Job) and job.prompt not in known]
        engine.prefetch([job.sample.prompt for job in jobs])

    def _finish_begun(self) -> None:
        """What is on its way is paid for and kept, whatever was decided meanwhile; the rest is given back."""
        for batch in self._begun:
            assert isinstance(batch.engine, Prefetching)
            batch.engine.cancel_queued()
        while self._begun:
            batch = self._begun.popleft()
            self._answer(batch, self._asked(batch.engine, batch, batch.built.result()))

    def _asked(self, engine: Engine, batch: Batch, built: Built) -> list[Job]:
        """Those of a batch that an engine ahead has, answered or on their way; the others are given back."""
        jobs = [job for job in built if isinstance(job, Job)]
        kept = [job for job in jobs if isinstance(engine, Prefetching) and engine.is_prefetched(job.sample.prompt)]
        for key in batch.taken.keys() - {job.key for job in kept}:
            batch.side.journal.give_back(key)
        return kept

    def _close_begun(self) -> None:
        """Nobody waits for what is on its way after an error of this side."""
        for batch in self._begun:
            assert isinstance(batch.engine, Prefetching)
            batch.engine.close()
        self._begun.clear()

    def _engine(self, side: ModelUnderTest) -> Engine:
        assert side.engine is not None
        engine = side.engine()
        side.journal.note_facts(asdict(engine.facts))
        if side is self.sides["model"]:
            self.facts = engine.facts
        return engine

    def _answer(self, batch: Batch, built: Built) -> None:
        """Results into the journal; a case that cannot be answered is written down as failed."""
        asked: list[Job] = []
        answered: list[tuple[Job, Generation]] = []
        journal = batch.side.journal
        for job in built:
            # The same prompt may have been answered under another name.
            known = journal.generations.get(job.prompt) if isinstance(job, Job) else None
            if not isinstance(job, Job):
                give_up(journal, job.case, job.key, job.reason)
            elif known is not None:
                answered.append((job, known.outcome.generation))
            else:
                asked.append(job)
        self.marker.keep_all(journal, answered)
        if asked:
            self._generate(batch, asked)

    def _generate(self, batch: Batch, asked: Sequence[Job]) -> None:
        open_jobs = list(asked)
        answered: list[tuple[Job, Generation]] = []
        try:
            for generation in batch.engine.generate([job.sample.prompt for job in asked]):
                job = open_jobs.pop(0)
                self.computed += 1
                if self.builder.is_assisted(job.sample):
                    # A judge is asked about all of them at once, and not while the model waits.
                    answered.append((job, generation))
                else:
                    self.marker.keep(batch.side.journal, job, generation)
        except EngineError as error:
            # It speaks of the first that has no answer; the others are asked again, but for what is there already.
            failed, *others = open_jobs
            give_up(batch.side.journal, failed.case, failed.key, str(error))
            if kept := self._asked(batch.engine, batch, others):
                self._generate(batch, kept)
        self.marker.keep_all(batch.side.journal, answered)

    def _is_late(self) -> bool:
        return self.run.deadline is not None and time.time() >= self.run.deadline


def _give_back(batch: Batch) -> None:
    for key in batch.taken:
        batch.side.journal.give_back(key)


def _lost(element: SampleRef) -> str:
    return (
        f"{element.case_id} sample {element.sample_index}: {MOST_LOSSES} workers died over it, killed by the system "
        "(out of memory?); use fewer workers, shorter --lengths or --dtype bfloat16"
    )
