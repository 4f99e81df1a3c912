"""Samples, built and looked at before a model is asked; in the background while it answers others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from fixtures.corpora import Corpora, CorpusError
from fixtures.engines import EngineError
from fixtures.preflight import Inspection, PreflightError, inspect_case, sample_problems
from fixtures.records import Case, Prompt, Sample, Score
from fixtures.scoring.failures import UNFINISHED
from fixtures.scoring.judge import JudgeError
from fixtures.tasks.fit_to_length import CannotFit
from fixtures.tasks.task import Assistants, Task
from fixtures.tokenization.prompts import PromptFormatter
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel

PREFLIGHT_SAMPLES = 2
CASE_ERRORS = (CannotFit, CorpusError, EngineError, PreflightError)
NO_ASSISTANTS = Assistants()
# What can go wrong while an answer is scored: a judge or a model of entailment that does not serve.
SCORE_ERRORS = (JudgeError, EngineError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A sample to be answered: its names in the journal, by identity and by prompt."""

    case: str
    key: str
    sample: Sample
    prompt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A sample that cannot be asked, with the reason in one line."""

    case: str
    key: str
    reason: str


Built = Sequence[Job | Refusal]


class SampleBuilder:
    """Builds samples for one worker; one at a time, since tokenizers keep what they have counted."""

    def __init__(
        self,
        *,
        tasks: Mapping[str, Task],
        formatter: PromptFormatter,
        corpora: Corpora,
        seed: int,
        assistants: Assistants = NO_ASSISTANTS,
    ):
        self.tasks = tasks
        self.formatter = formatter
        self.corpora = corpora
        self.seed = seed
        self.assistants = assistants
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="longctx-builder")

    def inspect(self, case: Case) -> Inspection:
        """Preflight over all samples of the case; no model is asked."""
        samples = (self.sample(case, index) for index in range(case.samples))
        return inspect_case(case, samples, self.tasks[case.task], self.formatter)

    def sample(self, case: Case, index: int) -> Sample:
        """A function of its identity, so all workers see the same; raises CannotFit."""
        return self.tasks[case.task].sample(
            case.length, index, seed=self.seed, tokenizer=self.formatter, corpora=self.corpora
        )

    def begin(self, panel: Panel, taken: Mapping[str, SampleRef]) -> Future[Built]:
        """Build these elements, by their names in the journal, while the caller does something else."""
        return self._thread.submit(self._build, panel, tuple(taken.items()))

    def score(self, sample: Sample, text: str) -> Score:
        """By rule, or on published text with an assistant where the task needs one; raises SCORE_ERRORS."""
        task = self.tasks[sample.task]
        if task.assisted_grade is not None and task.needs_assistant(sample.source):
            return task.assisted_grade(sample, text, self.assistants)
        return task.score(sample, text)

    def unfinished(self, sample: Sample) -> Score:
        """The score of an answer that never began: its model was still thinking when its budget ended."""
        scored = Score(value=0.0) if self.is_assisted(sample) else self.score(sample, "")
        return replace(scored, failure=UNFINISHED)

    def is_assisted(self, sample: Sample) -> bool:
        """Whether scoring takes as long as a judge does."""
        return self.tasks[sample.task].needs_assistant(sample.source)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self.assistants.judge is not None:
            self.assistants.judge.close()

    def _build(self, panel: Panel, taken: Iterable[tuple[str, SampleRef]]) -> Built:
        built: list[Job | Refusal] = []
        for key, element in taken:
            try:
                built.append(self._job(panel, key, element))
            except CASE_ERRORS as error:
                built.append(Refusal(case=element.case_id, key=key, reason=str(error)))
        return built

    def _job(self, panel: Panel, key: str, element: SampleRef) -> Job:
        """The sample, the first ones of each case looked at before the model is asked; raises CASE_ERRORS."""
        case = panel.cases[element.case_id]
        sample = self.sample(case, element.sample_index)
        if element in panel.sample_refs({case.id})[:PREFLIGHT_SAMPLES]:
            problems = sample_problems(sample, self.tasks[case.task], self.formatter)
            if problems:
                raise PreflightError(f"preflight: {case.id} sample {element.sample_index}: {problems[0]}")
        return Job(case=case.id, key=key, sample=sample, prompt=prompt_key(sample.prompt))


def prompt_key(prompt: Prompt) -> str:
    """What decides a greedy answer: the ids, how much may be written, where it stops and what is enough."""
    ids = ",".join(map(str, prompt.token_ids))
    content = f"{ids};{prompt.generation_tokens};{prompt.stop};{prompt.settled_by}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
