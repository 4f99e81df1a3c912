"""The tasks and texts that a run makes its samples from, and the scorers of its answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fixtures.cases import samples_fingerprint
from fixtures.corpora import Corpora, load_corpora
from fixtures.records import Options
from fixtures.seeding import stable_hash
from fixtures.tasks import keyed_wording, load_tasks
from fixtures.tasks.task import Task
from fixtures.tokenization.prompts import PromptFormatter
from plugins.config.assistants import scored_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """Everything that decides prompts and scores, except the tokenizer and the samples' identity."""

    tasks: Mapping[str, Task]
    """All tasks by name, with the run's prompts and its mode of scoring."""

    corpora: Corpora
    """The texts that samples are made from."""

    scorers: tuple[str, ...]
    """The mode of scoring, the judge and the entailment model, as parts of the samples' fingerprint."""

    def samples_fingerprint(self, formatter: PromptFormatter) -> str:
        """Return 16 hex digits that two models share if they read the same prompts and are scored alike."""
        return samples_fingerprint(self.tasks, self.corpora, formatter, scored_by=self.scorers)

    @property
    def prompts_fingerprint(self) -> str:
        """16 hex digits of the wording of all prompts."""
        return f"{stable_hash(*(sorted(prompts.items()) for prompts in keyed_wording(self.tasks).values())):016x}"


def load_run_corpora(options: Options) -> Corpora:
    """Return the texts that the options name; raise CorpusError."""
    return load_corpora(options.data_dir, must_know_files=not options.tasks, qa_fill=options.qa_fill)


def load_materials(options: Options, sweeps: Collection[str] = ()) -> Materials:
    """Return the materials that the options name, with these phase sweeps.

    Raises CorpusError, PromptsError, JudgeError or CheckpointError.
    """
    return Materials(
        tasks=load_tasks(
            options.prompts, options.scoring, files=options.tasks, data_dir=options.data_dir, check=True, sweeps=sweeps
        ),
        corpora=load_run_corpora(options),
        scorers=scored_by(options),
    )
