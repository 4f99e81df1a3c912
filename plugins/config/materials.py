"""The tasks and texts that a run makes its samples from, and the scorers of its answers.

Some answers on published texts are scored by a judge on a server, or by a local entailment model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longctx.fixtures import versions
from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora, load_corpora, with_prepared
from longctx.fixtures.http.retry import TimeBudget
from longctx.fixtures.records import Case, Options
from longctx.fixtures.scoring.judge import Judge, JudgeError, JudgeSettings, fingerprint
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.tasks import TASKS, keyed_wording, load_tasks
from longctx.fixtures.tasks.task import Assistants, Task
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.journal import JudgeReplies

RULER_SUITE = "ruler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """Everything that decides prompts and scores, except the tokenizer and the samples' identity."""

    tasks: Mapping[str, Task]
    """All tasks by name, with the run's prompts and its mode of scoring."""
    corpora: Corpora
    scorers: tuple[str, ...]
    """The mode of scoring, the judge and the entailment model, as parts of the samples' fingerprint."""

    def samples_fingerprint(self, formatter: PromptFormatter) -> str:
        """Return 16 hex digits that two models share if they read the same prompts and are scored alike."""
        return samples_fingerprint(self.tasks, self.corpora, formatter, scored_by=self.scorers)

    @property
    def prompts_fingerprint(self) -> str:
        """16 hex digits of the wording of all prompts."""
        return f"{stable_hash(*(sorted(prompts.items()) for prompts in keyed_wording(self.tasks).values())):016x}"


def load_run_tasks(options: Options, *, check: bool = False) -> Mapping[str, Task]:
    """Return all tasks with the prompts and the scoring that the options name; `check` is for their first reading."""
    return load_tasks(
        options.prompts,
        options.scoring,
        files=options.tasks,
        data_dir=options.data_dir,
        check=check,
        demonstrations=options.demonstrations,
    )


def load_run_corpora(options: Options) -> Corpora:
    """Return the texts that the options name; raise CorpusError."""
    corpora = load_corpora(options.data_dir, must_know_files=not options.tasks, qa_fill=options.qa_fill)
    if options.samples_from is None:
        return corpora
    return with_prepared(corpora, options.samples_from, [name for name in TASKS if TASKS[name].suite == RULER_SUITE])


def load_materials(options: Options) -> Materials:
    """Return the materials that the options name; raise CorpusError, PromptsError, JudgeError or CheckpointError."""
    return Materials(
        tasks=load_run_tasks(options, check=True),
        corpora=load_run_corpora(options),
        scorers=scored_by(options),
    )


def scored_by(options: Options) -> tuple[str, ...]:
    """Return what decides a score besides the answer and the task's code; raise JudgeError or CheckpointError."""
    if options.judge_url and not options.judge_model:
        raise JudgeError("--judge-url: no judge was named; give --judge-model too")
    judge, entailment = _settings(options), ""
    if options.nli_model is not None:
        model = read_checkpoint(options.nli_model, option="--data-dir").fingerprint
        entailment = f"entailment {versions.ENTAILMENT} {model}"
    return (options.scoring, "" if judge is None else fingerprint(judge), entailment)


def open_assistants(options: Options, replies: JudgeReplies, *, deadline: float | None = None) -> Assistants:
    """Return the assistants that the options name, which load nothing before they are needed; raise JudgeError.

    `deadline` is the Unix time at which the run's budget ends.
    """
    settings = _settings(options)
    judge = None if settings is None else Judge(settings, replies, TimeBudget(deadline, "--judge-url"))
    if options.nli_model is not None:
        from longctx.fixtures.engines.hf.entailment import NliModel  # loads torch

        return Assistants(judge=judge, entails=NliModel(options.nli_model).entails)
    return Assistants(judge=judge, entails=None if judge is None else judge.entails)


def _settings(options: Options) -> JudgeSettings | None:
    return None if options.judge_model is None else JudgeSettings(model=options.judge_model, url=options.judge_url)


def judged_samples(options: Options, cases: Sequence[Case]) -> int:
    """Return the most answers that the judge scores; 0 without a judge. No metric of a tasks file needs one."""
    if options.judge_model is None:
        return 0
    judged = [case for case in cases if case.task in TASKS and TASKS[case.task].needs_assistant(case.source)]
    if options.nli_model is not None:
        judged = [case for case in judged if TASKS[case.task].assistant == "judge"]
    return sum(len(case.planned) for case in judged)
