"""Where samples are built, answered and scored: one panel's queue at a time, together with all other workers."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from fixtures.corpora import Corpora
from fixtures.engines import Engine, EngineError
from fixtures.preflight import Inspection, PreflightError, inspect_case, problems_of
from fixtures.prompts import Framing
from fixtures.records import Case, CaseResult, Generation, Outcome, Prompt, Sample
from fixtures.tasks.base import CannotFit, Task
from plugins.gates.panels import Element, Panel, Standing, Who
from plugins.journal import Entry, Journal, JournalError
from plugins.ledger import Ledger
from plugins.run import Run

# Enough prompts at a time for an engine to batch.
BATCH_PROMPT_TOKENS = 32_768
PREFLIGHT_SAMPLES = 2
# A sample that took this many workers with it would take them all.
MOST_LOSSES = 3
WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 1.0
CASE_ERRORS = (CannotFit, EngineError, PreflightError)


class Stopped(RuntimeError):
    """The process that gives the orders is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One model's results: what the journal holds, and the engine that adds to it; without one that is all."""

    journal: Journal
    engine: Callable[[], Engine] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A sample to be answered: its names in the journal, by identity and by prompt."""

    case: Case
    key: str
    sample: Sample
    prompt: str


class Bench:
    """A worker's place: works off the panels of its run."""

    def __init__(
        self,
        run: Run,
        selected: Sequence[Case],
        *,
        tasks: Mapping[str, Task],
        framing: Framing,
        corpora: Corpora,
        sides: Mapping[Who, Side],
    ):
        self.run = run
        self.tasks = tasks
        self.framing = framing
        self.corpora = corpora
        self.sides = sides
        self.ledger = Ledger(
            run,
            selected,
            {who: side.journal for who, side in sides.items()},
            baseline_is_final="baseline" in sides and sides["baseline"].engine is None,
        )
        self.computed = 0
        self._parent = os.getppid()
        self._broken: JournalError | None = None

    def inspect(self, case: Case) -> Inspection:
        """Preflight over all samples of the case; no model is asked."""
        samples = (self.sample(case, index) for index in range(case.samples))
        return inspect_case(case, samples, self.tasks[case.task], self.framing)

    def sample(self, case: Case, index: int) -> Sample:
        """A function of its identity, so all workers see the same."""
        return self.tasks[case.task].sample(
            case.length, index, seed=self.run.options.seed, tokenizer=self.framing, corpora=self.corpora
        )

    def measure(self, case: Case) -> CaseResult:
        """The case's part of what its panel's evidence rests on; works on the panel until that is there.

        Raises JournalError, at once after the first: a result that cannot be kept is not worth computing.
        Raises Stopped.
        """
        if self._broken is not None:
            raise self._broken
        try:
            return self._measured(case, self.ledger.panels[case.length])
        except JournalError as error:
            self._broken = error
            raise

    def close(self) -> None:
        """Give back what was claimed, and sign off."""
        for side in self.sides.values():
            side.journal.close()
            if side.journal.presence is not None:
                side.journal.presence.close()

    def help(self) -> None:
        """Work on all panels until none wants anything, for a worker that has no case of its own left."""
        for panel in self.ledger.panels.values():
            for case in tuple(panel.cases.values())[:1]:
                self.measure(case)

    def _measured(self, case: Case, panel: Panel) -> CaseResult:
        wait = WAIT_SECONDS
        while True:
            self.ledger.refresh()
            standing = self.ledger.standing(panel)
            error = self.ledger.failures(panel).get(case.id)
            if error is not None or not standing.wanted or self._is_late():
                return self._result(case, panel, standing, error)
            if os.getppid() != self._parent:
                raise Stopped("the run that this worker belongs to has ended")
            if self._work(panel, standing):
                wait = WAIT_SECONDS
            else:
                # What is left is in other workers' hands.
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)

    def _work(self, panel: Panel, standing: Standing) -> bool:
        """Take what is next in the queue and free, and answer it; False where nothing is free."""
        keys = self.ledger.keys(panel)
        for who in dict.fromkeys(who for who, _ in standing.wanted):
            side = self.sides[who]
            wanted = {keys[element]: element for owner, element in standing.wanted if owner == who}
            # Loaded before anything is claimed: a claim is held no longer than an answer takes.
            engine = self._engine(side)
            at_once = engine.facts.batch_size or max(1, BATCH_PROMPT_TOKENS // panel.length)
            if taken := side.journal.take(list(wanted), at_once):
                self._answer(panel, side, engine, {key: wanted[key] for key in taken})
                return True
        return False

    def _engine(self, side: Side) -> Engine:
        assert side.engine is not None
        engine = side.engine()
        side.journal.note_facts(asdict(engine.facts))
        return engine

    def _answer(self, panel: Panel, side: Side, engine: Engine, taken: Mapping[str, Element]) -> None:
        """Results into the journal; a case that cannot be answered is written down as failed."""
        asked: list[Job] = []
        for key, element in taken.items():
            case = panel.cases[element.case]
            try:
                job = self._job(panel, side, key, element)
            except CASE_ERRORS as error:
                _fail(side, case.id, key, str(error))
                continue
            # The same prompt may have been answered under another name.
            known = side.journal.generations.get(job.prompt)
            if known is None:
                asked.append(job)
            else:
                self._keep(side, job, known.outcome.generation)
        if asked:
            self._generate(side, engine, asked)

    def _generate(self, side: Side, engine: Engine, asked: Sequence[Job]) -> None:
        open_jobs = list(asked)
        try:
            for generation in engine.generate([job.sample.prompt for job in asked]):
                self._keep(side, open_jobs.pop(0), generation)
                self.computed += 1
        except EngineError as error:
            for job in open_jobs:
                _fail(side, job.case.id, job.key, str(error))

    def _job(self, panel: Panel, side: Side, key: str, element: Element) -> Job:
        """The sample, the first ones of each case looked at before the model is asked; raises CASE_ERRORS."""
        case = panel.cases[element.case]
        if side.journal.lost[key] >= MOST_LOSSES:
            raise EngineError(
                f"{case.id} sample {element.sample}: {MOST_LOSSES} workers died over it, killed by the system (out of "
                "memory?); use fewer workers, shorter --lengths or --dtype bfloat16"
            )
        sample = self.sample(case, element.sample)
        if element in panel.queue({case.id})[:PREFLIGHT_SAMPLES]:
            problems = problems_of(sample, self.tasks[case.task], self.framing)
            if problems:
                raise PreflightError(f"preflight: {case.id} sample {element.sample}: {problems[0]}")
        return Job(case=case, key=key, sample=sample, prompt=prompt_key(sample.prompt))

    def _keep(self, side: Side, job: Job, generation: Generation) -> None:
        sample = job.sample
        outcome = Outcome(
            index=sample.index,
            score=self.tasks[sample.task].score(sample, generation.text),
            generation=generation,
            references=sample.references,
            depths=sample.depths,
        )
        side.journal.append(
            Entry(element=job.key, prompt=job.prompt, case=job.case.id, index=sample.index, outcome=outcome)
        )

    def _result(self, case: Case, panel: Panel, standing: Standing, error: str | None) -> CaseResult:
        queue = panel.queue({case.id})
        keys, entries = self.ledger.keys(panel), self.sides["model"].journal.entries
        outcomes = tuple(entries[keys[element]].outcome for element in queue[: standing.asked.get(case.id, 0)])
        baseline: tuple[float, ...] = ()
        if paired := standing.paired.get(case.id, 0):
            scores = self.ledger.scores(panel, "baseline")
            baseline = tuple(scores[element] for element in queue[:paired])
        seconds = sum(outcome.generation.seconds for outcome in outcomes)
        return CaseResult(case=case, outcomes=outcomes, seconds=seconds, error=error, baseline=baseline)

    def _is_late(self) -> bool:
        return self.run.deadline is not None and time.time() >= self.run.deadline


def _fail(side: Side, case: str, key: str, reason: str) -> None:
    if case not in side.journal.failures:
        side.journal.fail(case, reason)
    side.journal.give_back(key)


def prompt_key(prompt: Prompt) -> str:
    """What decides a greedy answer: the ids, how much may be written, where it stops and what is enough."""
    ids = ",".join(map(str, prompt.token_ids))
    content = f"{ids};{prompt.generation_tokens};{prompt.stop};{prompt.enough}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
