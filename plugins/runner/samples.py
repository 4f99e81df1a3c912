"""Samples on their way through a worker: built and checked in the background, and scored when they are answered.

A wrong chat template, a cut prompt or a leaked answer is an error here instead of lowering a model's score.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from longctx.fixtures.corpora import Corpora, CorpusError
from longctx.fixtures.engines import EngineError, TimeUp
from longctx.fixtures.records import PREPARED_EXCESS, Case, Generation, Inspection, Outcome, Prompt, Sample, Score
from longctx.fixtures.scoring.failures import UNFINISHED, excerpt_of
from longctx.fixtures.scoring.judge import JudgeError
from longctx.fixtures.scoring.match import reference_hits
from longctx.fixtures.tasks.task import Assistants, CannotFit, GoldPrompts, Task, gold_prompts
from longctx.fixtures.tokenization.load import TokenizerError
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.journal import Entry, Journal
from longctx.plugins.verdicts.panels import Panel


class PreflightError(ValueError):
    """A sample that would measure the instrument instead of the model."""


# Below this length a prompt may miss the same number of tokens as at it: units of text do not shrink with the length.
FULL_FILL_LENGTH = 4096
SHOWN_CHARACTERS = 60
PREFLIGHT_SAMPLES = 2
CASE_ERRORS = (CannotFit, CorpusError, EngineError, PreflightError, TokenizerError)
NO_ASSISTANTS = Assistants()
# Errors of a judge or an entailment model while an answer is scored.
SCORE_ERRORS = (JudgeError, EngineError)
# So many answers of a case, one in so many, are decoded to their end although their score is settled before: only they
# show whether a model that answers well ends its answers.
WHOLE_ANSWERS, WHOLE_EVERY = 8, 8
# Reports show the prompt of every wrong answer and of the first few right ones.
RIGHT_EXCERPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A sample that is ready for the model."""

    case: str
    key: str
    """The journal key of the sample's identity."""
    sample: Sample
    prompt: str
    """The journal key of the prompt: samples with the same prompt share one answer."""
    gold: GoldPrompts | None = None
    """The texts on which the likelihood of the gold answer is measured; None if only an answer is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A sample that cannot be built or that its check rejects."""

    case: str
    key: str
    reason: str


Built = Sequence[Job | _Refusal]


@dataclass(kw_only=True)
class SampleBuilder:
    """Build the samples of one worker, one at a time because tokenizers cache their counts, and score the answers."""

    tasks: Mapping[str, Task]
    load_formatters: Callable[[], tuple[PromptFormatter, PromptFormatter | None]]
    """Loads `formatters` once a sample is to be built. A run that finds all answers in the journal builds none."""
    corpora: Corpora
    seed: int
    assistants: Assistants = NO_ASSISTANTS

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="longctx-builder")

    @cached_property
    def formatters(self) -> tuple[PromptFormatter, PromptFormatter | None]:
        """The model's formatter, and that of a baseline with another tokenizer; raises EngineError."""
        return self.load_formatters()

    def inspect(self, case: Case) -> Inspection:
        samples = (self.sample(case, index) for index in case.planned)
        return inspect_case(case, samples, self.tasks[case.task], self.formatters[0])

    def sample(self, case: Case, index: int) -> Sample:
        """Return a sample, which depends on nothing but its identity; raise CannotFit or CorpusError."""
        task = self.tasks.get(case.task)
        if task is None or (task.version is not None and task.version(case.length) != case.version):
            raise CorpusError(f"--tasks-file: the files of {case.task} changed after the run began; start it again")
        return task.sample(case.length, index, seed=self.seed, tokenizer=self.formatters[0], corpora=self.corpora)

    def begin(self, panel: Panel, samples: Mapping[str, SampleRef], *, with_gold: bool = False) -> Future[Built]:
        """Start to build samples, by journal key, in the background; raise EngineError without a tokenizer."""
        _ = self.formatters
        return self._thread.submit(self._build, panel, tuple(samples.items()), with_gold)

    def score(self, sample: Sample, text: str) -> Score:
        """Score an answer by rule, or with a judge if the task needs one on published text; raise SCORE_ERRORS."""
        task = self.tasks[sample.task]
        if task.assisted_grade is not None and task.needs_assistant(sample.source):
            return task.assisted_grade(sample, text, self.assistants)
        return task.score(sample, text)

    def is_assisted(self, sample: Sample) -> bool:
        """Return True if a judge or an entailment model scores the sample, which takes long."""
        return self.tasks[sample.task].needs_assistant(sample.source)

    def store(self, journal: Journal, job: Job, generation: Generation) -> None:
        """Score one answer and append the result, or fail the case with one line; raise JournalError."""
        _store(journal, job, generation, self._scored(job, generation))

    def store_all(self, journal: Journal, answered: Sequence[tuple[Job, Generation]]) -> None:
        """Score several answers at the same time, as a judge allows, and append the results; raise JournalError."""
        if answered:
            with ThreadPoolExecutor(max_workers=len(answered)) as pool:
                scores = list(pool.map(self._scored, *zip(*answered, strict=True)))
            for (job, generation), score in zip(answered, scores, strict=True):
                _store(journal, job, generation, score)

    def _scored(self, job: Job, generation: Generation) -> Score | str | None:
        """Return the score of an answer, or one line why it has none; None if the time is up before a judge decides."""
        sample, is_thinking = job.sample, generation.finish == "thinking"
        if is_thinking and self.is_assisted(sample):
            return Score(value=0.0, failure=UNFINISHED)
        try:
            # A model that was still thinking when its token budget ended has given no answer.
            score = self.score(sample, "" if is_thinking else generation.text)
        except TimeUp:
            return None
        except SCORE_ERRORS as error:
            return str(error)
        return msgspec.structs.replace(score, failure=UNFINISHED) if is_thinking else score

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self.assistants.judge is not None:
            self.assistants.judge.close()

    def _build(self, panel: Panel, samples: Iterable[tuple[str, SampleRef]], with_gold: bool) -> Built:
        built: list[Job | _Refusal] = []
        for key, sample in samples:
            try:
                built.append(self._job(panel, key, sample, with_gold))
            except CASE_ERRORS as error:
                built.append(_Refusal(case=sample.case_id, key=key, reason=str(error)))
        return built

    def _job(self, panel: Panel, key: str, place: SampleRef, with_gold: bool) -> Job:
        """Build one sample and, if it is one of the first of its case, check it; raise CASE_ERRORS."""
        case = panel.cases[place.case_id]
        sample = self.sample(case, place.sample_index)
        if place in panel.queue({case.id}).refs[:PREFLIGHT_SAMPLES]:
            problems = sample_problems(sample, self.tasks[case.task], self.formatters[0])
            if problems:
                raise PreflightError(f"preflight: {case.id} sample {place.sample_index}: {problems[0]}")
        other = self.formatters[1]
        if other is not None and not other.makes_same_ids(sample.prompt):
            raise PreflightError(
                f"--baseline: its tokenizer makes other token ids of {case.id} sample {place.sample_index}, "
                "which has a token that only one of the two knows; leave the case out, or give another baseline"
            )
        gold = gold_prompts(self.tasks[case.task], sample, self.formatters[0]) if with_gold else None
        turn, place_in_turn = divmod(sample.index, WHOLE_EVERY)
        if turn < WHOLE_ANSWERS and place_in_turn == 0:
            sample = replace(sample, prompt=replace(sample.prompt, settled_by=()))
        return Job(case=case.id, key=key, sample=sample, prompt=prompt_key(sample.prompt), gold=gold)


def prompt_key(prompt: Prompt) -> str:
    """Return a key of everything that decides a greedy answer: token ids, token budget and stop conditions."""
    ids = ",".join(map(str, prompt.token_ids))
    content = f"{ids};{prompt.generation_tokens};{prompt.stop};{prompt.settled_by}"
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def give_up(journal: Journal, case: str, key: str, reason: str) -> None:
    """Journal why a case failed, once per case, and release the claim of the sample."""
    if case not in journal.failures:
        journal.record_failure(case, reason)
    journal.release(key)


def ready_jobs(journal: Journal, built: Built) -> list[Job]:
    """Return the samples that are ready for the model; the others fail their cases."""
    jobs = []
    for job in built:
        if isinstance(job, Job):
            jobs.append(job)
        else:
            give_up(journal, job.case, job.key, job.reason)
    return jobs


def _store(journal: Journal, job: Job, generation: Generation, score: Score | str | None) -> None:
    sample = job.sample
    if score is None:
        journal.release(job.key)
        return
    if isinstance(score, str):
        give_up(journal, job.case, job.key, score)
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


def inspect_case(case: Case, samples: Iterable[Sample], task: Task, formatter: PromptFormatter) -> Inspection:
    """Check a case's samples, of which one at a time is in memory. Raises ValueError without any sample."""
    fills: list[float] = []
    problems: list[str] = []
    for sample in samples:
        fills.append(fill_ratio(sample))
        problems += (f"sample {sample.index}: {line}" for line in sample_problems(sample, task, formatter))
    return Inspection(case=case, samples=len(fills), min_fill=min(fills), problems=tuple(problems))


def fill_ratio(sample: Sample) -> float:
    """Return the share of the sample's length that its prompt and generation budget take."""
    return (sample.prompt.length_tokens + sample.prompt.generation_tokens) / sample.length


def sample_problems(sample: Sample, task: Task, formatter: PromptFormatter) -> list[str]:
    """Return one line for every fault of the sample; empty for a sound one."""
    problems = _prompt_problems(sample, task, formatter)
    if sample.as_is:
        # Samples of other programs are measured as they are: HotpotQA's yes/no questions have no answer in the text.
        return problems
    if task.category == "retrieval" and task.references_in_context != "unchecked":
        for reference in sample.references:
            times = sample.context.count(reference)
            if times != 1:
                problems.append(f"the reference {reference!r} occurs {times} times in the context")
    present = reference_hits(sample.context, sample.references)
    is_present = {"all": all(present), "any": any(present), "unchecked": True}
    if not is_present[task.references_in_context]:
        problems.append("the reference is not in the context")
    if len(set(sample.references)) != len(sample.references):
        problems.append("a reference occurs twice")
    if not task.needs_assistant(sample.source):
        problems += _score_problems(sample, task)
    return problems


def _prompt_problems(sample: Sample, task: Task, formatter: PromptFormatter) -> list[str]:
    prompt, length = sample.prompt, sample.length
    problems = []
    used_tokens = prompt.length_tokens + prompt.generation_tokens
    if used_tokens > length * (1 + PREPARED_EXCESS * sample.as_is):
        problems.append(f"prompt and answer take {used_tokens} tokens of {length}")
    least_tokens = length - (1 - task.least_fill) * max(length, FULL_FILL_LENGTH)
    if used_tokens < least_tokens and not sample.capped:
        problems.append(f"prompt and answer fill only {used_tokens} tokens of {length}")
    prefix = task.shown_prefix(formatter, sample.answer_prefix)
    is_opened = prompt.opening in prompt.text if prompt.opening else prompt.text.endswith(prefix)
    if sample.context not in prompt.text or not is_opened:
        problems.append("the chat template changed or cut the text; try --chat off")
    bos, leading_ids = formatter.tokenizer.bos_token_id, formatter.leading_ids
    if bos in leading_ids:
        count = prompt.token_ids.count(bos)
        if count != 1 or prompt.token_ids[0] != leading_ids[0]:
            problems.append(f"the prompt holds {count} BOS tokens instead of one at its start")
    elif bos is not None and list(prompt.token_ids[:2]) == [bos, bos]:
        # Some chats begin every turn with it, so only the start tells.
        problems.append("the prompt begins with two BOS tokens; correct the chat template")
    return problems


def _score_problems(sample: Sample, task: Task) -> list[str]:
    if task.grade is task.paper_grade:
        # Papers' rules have faults: some score no answer, or an empty one.
        return []
    problems = []
    for name, text, points in (("right", task.perfect_answer(sample), 100), ("empty", "", 0)):
        value = 100 * task.score(sample, text).value
        if value != points:
            problems.append(f"the {name} answer {text[:SHOWN_CHARACTERS]!r} scores {value:g} and not {points}")
    return problems
