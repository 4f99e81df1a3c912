"""Start a worker: its engines, journals, tasks and judges, all of them those that the run began with."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.corpora import CorpusError
from longctx.fixtures.engines import ENGINES, Engine, EngineError, EngineSettings
from longctx.fixtures.engines.base import Prefetching, Releasable
from longctx.fixtures.engines.hf.settings import HfSettings
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings
from longctx.fixtures.engines.verified import load_verified, replaced
from longctx.fixtures.engines.vllm.execution import VllmSettings
from longctx.fixtures.records import Case
from longctx.fixtures.scoring.judge import JudgeError
from longctx.fixtures.tasks.task import Assistants
from longctx.fixtures.tokenization.load import TokenizerError, load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.materials import load_run_corpora, load_run_tasks, open_assistants, scored_by
from longctx.plugins.config.models import load_formatter
from longctx.plugins.config.run import Run, finished_journal
from longctx.plugins.config.server_turns import ServerTurn
from longctx.plugins.journal import Heartbeat, Journal, JournalError, JudgeReplies
from longctx.plugins.runner.results import journal_subject
from longctx.plugins.runner.samples import SampleBuilder
from longctx.plugins.runner.worker import ModelUnderTest, Worker
from longctx.plugins.verdicts.panels import ModelRole


class Engines:
    """The engines of a run's models in one process, each loaded on the GPUs of the worker's slot.

    vLLM takes nearly all memory of its GPUs, so the model and its baseline are loaded in turn, as the servers of
    --serve are.
    """

    def __init__(self, run: Run, *, slot: int, announce: Callable[[str], None]) -> None:
        self.run = run
        self.slot = slot
        self._announce = announce
        self._loaded: dict[ModelRole, Engine | EngineError] = {}
        # Of vLLM: set once, because a process keeps the GPUs that it has used.
        self._gpus_are_chosen = False
        self._memory_share = 0.0
        self._turn = None if run.server_turns is None else ServerTurn(Path(run.server_turns))
        # The server that this worker has sent requests to.
        self._endpoint: Endpoint | None = None

    def is_ready(self, role: ModelRole) -> bool:
        """Return False if loading the engine of a model would release another one."""
        if self._turn is not None:
            return self._turn.is_served(role)
        return role in self._loaded or not (self._loaded and self.run.is_in_turn)

    def load(self, role: ModelRole) -> Engine:
        """Return the engine of a model; raise EngineError, the same one at every call."""
        if self._turn is not None:
            endpoint = self._turn.hold(role)
            if endpoint != self._endpoint:
                self._endpoint = endpoint
                # The server of these engines was ended for another one.
                for engine in self._loaded.values():
                    if isinstance(engine, Prefetching):
                        engine.close()
                self._loaded.clear()
        if role not in self._loaded:
            for other, engine in list(self._loaded.items()):
                if isinstance(engine, Releasable):
                    engine.release()
                    del self._loaded[other]
            run = self.run
            baseline = run.baseline and run.baseline.checkpoint
            checkpoint = baseline if baseline and role == "baseline" else run.checkpoint
            option = "--baseline" if role == "baseline" else "--model"
            try:
                settings = run.engine_settings(role)
                if isinstance(settings, ServerSettings):
                    endpoint = self._endpoint or settings.endpoint
                    settings = replace(settings, endpoint=endpoint, announce=self._announce)
                if isinstance(settings, HfSettings):
                    settings = replace(settings, device=_place(run, checkpoint, self.slot))
                elif isinstance(settings, VllmSettings):
                    settings = self._on_own_gpus(settings, checkpoint)
                self._loaded[role] = open_engine(run, checkpoint, settings, option=option)
            except EngineError as error:
                self._loaded[role] = error
        engine = self._loaded[role]
        if isinstance(engine, EngineError):
            raise engine
        return engine

    def rest(self) -> None:
        """Let go of a server that another model may need; may be called twice."""
        if self._turn is not None:
            self._turn.rest()

    def _on_own_gpus(self, settings: VllmSettings, checkpoint: Checkpoint) -> VllmSettings:
        """Return the settings for the GPUs of this worker, the only ones that vLLM sees from now on."""
        if not self._gpus_are_chosen:
            self._gpus_are_chosen = True
            present = _gpu_count(self.run)
            _, _, first = _place(self.run, checkpoint, self.slot).partition(":")
            if first:
                visible = os.environ.get("CUDA_VISIBLE_DEVICES")
                names = visible.split(",") if visible else [str(number) for number in range(present)]
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names[int(first) : int(first) + settings.gpus])
            if present and settings.gpus == 1:
                self._memory_share = settings.memory_share / -(-_worker_count() // present)
        kind = settings.device.partition(":")[0]
        return replace(settings, device=kind, memory_share=self._memory_share or settings.memory_share)


def start_worker(run: Run, selected: Sequence[Case], engines: Engines, *, parent: int | None) -> Worker:
    """Return a worker for the selected cases; raise JournalError, or EngineError if the run's files have changed.

    `parent` is the process that starts it, with which it ends; None for a run without workers.
    """
    options = run.options
    try:
        tasks, corpora = load_run_tasks(options), load_run_corpora(options)
    except CorpusError as error:
        raise EngineError(f"--tasks-file: the files were changed during the run ({error}); start again") from error
    return Worker(
        run,
        selected,
        builder=SampleBuilder(
            tasks=tasks,
            load_formatters=partial(_load_formatters, run),
            corpora=corpora,
            seed=options.seed,
            assistants=_assistants(run),
        ),
        # A run that only inspects has no journal.
        models={} if options.preflight else _models(run, engines),
        parent=parent,
        workers=_worker_count(),
    )


def _load_formatters(run: Run) -> tuple[PromptFormatter, PromptFormatter | None]:
    """Return the formatters of the model, which must be as the run began, and of a baseline with another tokenizer."""
    problem = replaced(run.checkpoint, "its tokenizer or chat template", "--model")
    try:
        formatter = load_formatter(run.options, run.options.model_path, run.endpoint)
        baseline, other = run.baseline, None
        if baseline is not None and baseline.checkpoint is not None and baseline.has_other_tokenizer:
            other = load_formatter(run.options, baseline.checkpoint.path, run.endpoint, option="--baseline")
    except TokenizerError as error:
        raise EngineError(problem) from error
    if formatter.fingerprint != run.formatter:
        raise EngineError(problem)
    return formatter, other


def _assistants(run: Run) -> Assistants:
    """Return the judges of the run, none for one that only inspects; raise JournalError or EngineError."""
    if run.options.preflight:
        return Assistants()
    if scored_by(run.options) != run.scorers:
        raise EngineError(f"--data-dir: {run.options.nli_model} was replaced during the run; start again")
    try:
        replies = JudgeReplies(Path(run.options.journal), f"{run.id}-{os.getpid()}")
        return open_assistants(run.options, replies, deadline=run.deadline)
    except JudgeError as error:
        raise JournalError(str(error)) from error


def _models(run: Run, engines: Engines) -> dict[ModelRole, ModelUnderTest]:
    directory = Path(run.options.journal)
    heartbeat = Heartbeat(directory, run.id)

    def running(role: ModelRole) -> ModelUnderTest:
        journal = Journal(directory, journal_subject(run, role), heartbeat, run=run.id)
        is_ready = partial(engines.is_ready, role)
        return ModelUnderTest(journal=journal, engine=partial(engines.load, role), is_ready=is_ready, rest=engines.rest)

    models: dict[ModelRole, ModelUnderTest] = {"model": running("model")}
    baseline = run.baseline
    if baseline is not None and baseline.checkpoint is not None:
        # A worker does not read its own file, so two journals of one subject would not see each other's results.
        same = journal_subject(run, "baseline").key == models["model"].journal.subject.key
        models["baseline"] = models["model"] if same else running("baseline")
    elif baseline is not None:
        models["baseline"] = ModelUnderTest(journal=finished_journal(baseline), engine=None)
    return models


def open_engine(run: Run, checkpoint: Checkpoint, settings: EngineSettings, *, option: str = "--model") -> Engine:
    """Return the engine of a checkpoint with the settings of `Run.engine_settings`; raise EngineError."""
    trusted = run.options.trust_remote_code

    def load() -> Engine:
        tokenizer = load_tokenizer(checkpoint.path, trust_remote_code=trusted)
        return ENGINES[settings.engine](checkpoint, settings, tokenizer=tokenizer, trust_remote_code=trusted)

    if isinstance(settings, ServerSettings):
        # A server has loaded its model already; the files here say nothing about it.
        return load()
    return load_verified(checkpoint, load, option=option, trust_remote_code=trusted)


def _place(run: Run, checkpoint: Checkpoint, slot: int) -> str:
    """Return the worker's device: its own GPU if there are several; on a CPU, also limit its threads.

    Workers share single GPUs if there are too few. Raises EngineError if each worker needs several.
    """
    import torch

    torch.set_num_threads(_cpu_threads(checkpoint.is_small, _worker_count()))
    device = run.options.device
    present = _gpu_count(run)
    of_each = run.options.gpus_per_worker
    if not present or (present == 1 and of_each == 1):
        return device
    if of_each == 1:
        return f"cuda:{slot % present}"
    if (slot + 1) * of_each > present:
        raise EngineError(
            f"--gpus-per-worker: {of_each} for each of at least {slot + 1} workers, but this machine shows {present}; "
            f"use -n {max(1, present // of_each)} or fewer GPUs for each"
        )
    return f"cuda:{slot * of_each}"


def _gpu_count(run: Run) -> int:
    """Return the number of GPUs among which workers choose; 0 if --device names one, or none."""
    import torch

    return torch.cuda.device_count() if run.options.device in ("auto", "cuda") else 0


def _cpu_threads(is_small: bool, workers: int) -> int:
    """Return a worker's threads on a CPU: its share of the cores, and no more than OMP_NUM_THREADS if that is set.

    On a machine that is busy with other programs, more threads than free cores mostly wait for each other.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if is_small else min(torch.get_num_threads(), max(1, cores // workers))


def _worker_count() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
