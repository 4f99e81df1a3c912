"""Runs and workers without pytest, and an engine without a model."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from longctx.fixtures.cases import plan
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.engines import Engine
from longctx.fixtures.records import Case, CaseResult, EngineFacts, Generation, Options, Prompt
from longctx.fixtures.tasks import FAMILIES, RULER_ASPECTS, TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.run import Run
from longctx.plugins.journal import Heartbeat, Journal, Subject
from longctx.plugins.runner.results import CaseReport, read_measured
from longctx.plugins.runner.samples import SampleBuilder
from longctx.plugins.runner.worker import ModelUnderTest, Worker
from longctx.plugins.thresholds.records import SHIPPED, load_thresholds
from tests.helpers.checkpoints import edit_json
from tests.helpers.outcomes import generation_of
from tests.helpers.runs import calibration_checkpoint

SAMPLES = 3


class EmptyAnswerEngine:
    """An engine that returns an empty answer to every prompt and counts the prompts."""

    facts = EngineFacts(
        engine="fake", device="cpu", dtype="none", attention="none", batch_size=1, prefill="whole", reuse="none",
        hardware="none",
    )  # fmt: skip

    def __init__(self) -> None:
        self.prompt_count = 0

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        self.prompt_count += len(prompts)
        for prompt in prompts:
            yield generation_of("", len(prompt.token_ids), 0)


def chat_checkpoint(folder: Path, template: str | None = None) -> Path:
    """Copy a chat checkpoint out of the clone and return its path. `template` replaces its chat template."""
    copy = Path(shutil.copytree(calibration_checkpoint("512-chat"), folder / "step_9"))
    if template is not None:
        path = copy / "tokenizer_config.json"
        edit_json(path, chat_template=template)
    return copy


def options_of(model: str, **changed: Any) -> Options:
    """Return the options of a full run with a few samples per task at 1k. `changed` overrides some of them."""
    settings: dict[str, Any] = {
        "model": model, "model_path": model, "suite": "ruler", "lengths": (1024,), "samples": SAMPLES, "seed": 0,
        "engine": "auto", "device": "cpu", "dtype": "auto", "attention": "auto", "batch_size": 0,
        "prefill_chunk": "auto", "chat": "auto",
        "length_tokenizer": None, "data_dir": None, "prompts": None, "thresholds": str(SHIPPED),
        "trust_remote_code": False, "preflight": False, "journal": "/nonexistent/journal", "full": True,
        "budget_minutes": None, "baseline": None, "gpus_per_worker": 1,
        "scoring": "strict", "judge_model": None, "judge_url": None, "nli_model": None,
    }  # fmt: skip
    return Options(**settings | changed)


def run_of(model: Path, **changed: Any) -> Run:
    """Return a run of all tasks. `changed` overrides options of `options_of`."""
    options = options_of(str(model), **changed)
    cases = plan(options, TASKS, Corpora())
    return run_with(options, checkpoint=read_checkpoint(str(model)), cases=cases, chat=formatter_of(model).chat)


def run_with(options: Options, **facts: Any) -> Run:
    """Return a run of these options with the shipped thresholds."""
    plain: dict[str, Any] = {
        "id": "a-run", "unavailable": {}, "misfits": {}, "chat": True, "corpora": "c", "prompts": "p", "samples": "s",
        "thresholds": load_thresholds(SHIPPED, known_tasks=FAMILIES), "ruler_aspects": dict(RULER_ASPECTS),
        "task_families": dict(FAMILIES), "baseline": None, "deadline": None,
    }  # fmt: skip
    return Run(options=options, **plain | facts)


@contextmanager
def worker_of(
    model: Path, engine: Engine, directory: Path, *, cases: int = 1, parent: int | None = None, **changed: Any
) -> Iterator[tuple[Worker, Case]]:
    """Yield a worker for the first `cases` cases of a run, with the first of them. The journal is in `directory`."""
    run = run_of(model, journal=str(directory), **changed)
    subject = Subject(model=run.options.model, fingerprint=run.checkpoint.fingerprint, execution={"engine": "fake"})
    with closing(Heartbeat(directory, run.id)) as heartbeat:
        under_test = ModelUnderTest(journal=Journal(directory, subject, heartbeat), engine=lambda: engine)
        case = run.cases[0]
        yield (
            Worker(
                run,
                run.cases[:cases],
                builder=SampleBuilder(
                    tasks=TASKS,
                    load_formatters=lambda: (formatter_of(model), None),
                    corpora=Corpora(),
                    seed=run.options.seed,
                ),
                models={"model": under_test},
                parent=parent,
            ),
            case,
        )
        under_test.journal.close()


def measure_case(worker: Worker, case: Case) -> CaseResult:
    """Measure a case and return its result, read from the journal as the controller reads it."""
    end = worker.measure(case)
    state = worker.panel_state
    report = CaseReport(error=end.error, samples=end.samples, executions=state.executions)
    return read_measured(worker.run, worker.run.cases, {case.id: report}, state).results[case.id]


def formatter_of(model: Path) -> PromptFormatter:
    return PromptFormatter(load_tokenizer(str(model)))
