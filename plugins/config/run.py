"""What one pytest run measures: read once from the command line, sent whole to every worker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import calibration
from fixtures.cases import cases_that_cannot_fit, plan, samples_fingerprint, unavailable_cases
from fixtures.checkpoints.checkpoint import Checkpoint, CheckpointError
from fixtures.corpora import CorpusError, load_corpora
from fixtures.engines import EngineError
from fixtures.engines.openai.probe import Endpoint
from fixtures.engines.openai.server_process import ServeError
from fixtures.lengths import LengthError, parse_length
from fixtures.memory.fit import cases_over_memory
from fixtures.records import Case, Options
from fixtures.scoring.judge import JudgeError
from fixtures.seeding import stable_hash
from fixtures.tasks import FAMILIES, TASKS, load_tasks
from fixtures.tasks.prompt_files import PromptsError
from fixtures.tasks.task import CannotFit
from fixtures.tokenization.prompts import TokenizerError
from plugins.config.assistants import scored_by
from plugins.config.baseline import Baseline, BaselineError
from plugins.config.models import baseline_of, checkpoint_of, load_formatter, path_of
from plugins.config.servers import check_context, is_served, open_endpoint
from plugins.gates.hypotheses import Scope, family_of
from plugins.gates.panels import Who
from plugins.gates.thresholds import Thresholds, ThresholdsError, load_thresholds
from plugins.journal import element_name

USER_ERRORS = (
    BaselineError, calibration.CalibrationError, CannotFit, CheckpointError, CorpusError, EngineError, JudgeError,
    LengthError, PromptsError, ServeError, ThresholdsError, TokenizerError,
)  # fmt: skip
LEAST_OF_HELMET = 8192
NO_MODEL = (
    "--model: give a checkpoint directory, e.g. --model path/to/ckpt; "
    "--model calibration:4k builds a small one whose effective length is known"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one pytest run measures.

    `id` is another one for each start. `unavailable` are cases that lack data or a judge, `misfits` those
    that cannot fit their length, with the reason. `corpora` and `prompts` are fingerprints; `samples` is that of
    everything samples are made from, and what scores them: equal ones mean the same prompts. `deadline` is a time
    of the clock (Unix seconds) after which no sample is begun. `endpoint` is the server that is asked, None where the
    model is loaded, or nothing is asked.
    """

    id: str
    options: Options
    checkpoint: Checkpoint
    cases: tuple[Case, ...]
    unavailable: dict[str, str]
    misfits: dict[str, str]
    chat: bool
    corpora: str
    prompts: str
    samples: str
    thresholds: Thresholds
    baseline: Baseline | None
    deadline: float | None
    endpoint: Endpoint | None = None

    def engine_settings(self, who: Who) -> dict[str, Any]:
        """What decides how an engine computes, as engines take it. A server answers for the model alone."""
        options = self.options
        both = {"batch_size": options.batch_size, "thinking_tokens": options.thinking_budget}
        if self.endpoint is not None and who == "model":
            return {"engine": "openai", "endpoint": self.endpoint, "timeout_seconds": options.request_timeout} | both
        names = ("device", "dtype", "attention", "prefill_chunk")
        own = {name: getattr(options, name) for name in names} | {"gpus": options.gpus_per_worker}
        return {"engine": "hf"} | own | both

    @property
    def available(self) -> tuple[Case, ...]:
        """The cases that can be measured, with the data and the judge there are."""
        return tuple(case for case in self.cases if case.id not in self.unavailable)

    def key(self, case: Case, index: int) -> str:
        """A sample's name in the journal; the same for all models that read the same samples."""
        return element_name(self.samples, case.version, self.options.seed, case.task, case.length, index)

    def scope(self, selected: Sequence[Case]) -> Scope:
        """The run as its gates see it; the yardstick follows from whether a chat template is used."""
        return Scope(
            lengths=self.options.lengths,
            cases=selected,
            reference=self.thresholds.references["aligned" if self.chat else "base"],
            suite_tasks={name: task.category for name, task in TASKS.items() if task.suite == "ruler"},
            claimed_length=self.checkpoint.claimed_length,
            misfits=frozenset(self.misfits),
            seed=self.options.seed,
            paired=self.baseline is not None,
            baseline_is_final=self.baseline is not None and self.baseline.checkpoint is None,
            full=self.options.full,
            families=FAMILIES,
        )


RUN = pytest.StashKey[Run]()


def case_of(item: pytest.Item) -> Case | None:
    """The case an item measures; None for any other test."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Case) else None


def cases_of(run: Run, node_ids: Sequence[str]) -> tuple[Case, ...]:
    """The run's cases that a list of collected tests holds, but those that lack what they need."""
    names = {node_id.rpartition("::")[2] for node_id in node_ids}
    return tuple(case for case in run.available if case.id in names)


def read_run(config: pytest.Config) -> Run:
    """The checked options and their cases; raises pytest.UsageError with one line."""
    try:
        return _read_run(config)
    except USER_ERRORS as error:
        raise pytest.UsageError(str(error)) from error


def _read_run(config: pytest.Config) -> Run:
    option = config.option
    if not option.model:
        raise pytest.UsageError(NO_MODEL)
    thresholds = path_of(config, option.thresholds) or str(config.rootpath / "thresholds.toml")
    read_thresholds = load_thresholds(Path(thresholds), known_tasks=FAMILIES)
    lengths = None if option.lengths is None else parse_lengths(option.lengths)
    tasks = load_tasks(path_of(config, option.prompts), option.scoring)
    corpora = load_corpora(path_of(config, option.data_dir))
    checkpoint, is_name = checkpoint_of(config, option)
    options = Options(
        model=option.model,
        model_path=checkpoint.path,
        suite=option.suite,
        lengths=lengths or default_lengths(checkpoint.claimed_length),
        samples=int(option.samples),
        seed=int(option.seed),
        engine=option.engine,
        device=option.device,
        dtype=option.dtype,
        attention=option.attention,
        batch_size=int(option.batch_size),
        prefill_chunk=str(option.prefill_chunk),
        chat=option.chat,
        length_tokenizer=None if is_name else path_of(config, option.length_tokenizer),
        data_dir=path_of(config, option.data_dir),
        prompts=path_of(config, option.prompts),
        thresholds=thresholds,
        trust_remote_code=option.trust_remote_code,
        preflight=option.preflight,
        journal=path_of(config, option.journal) or str(config.rootpath / ".longctx" / "journal"),
        full=option.full,
        budget_minutes=None if option.budget is None else float(option.budget),
        baseline=option.baseline,
        gpus_per_worker=int(option.gpus_per_worker),
        scoring=option.scoring,
        judge_model=option.judge_model,
        judge_url=option.judge_url,
        nli_model=path_of(config, option.nli_model),
        step=None if option.step is None else int(option.step),
        base_url=option.base_url,
        serve=option.serve,
        api=option.api,
        served_model=option.served_model,
        thinking_budget=int(option.thinking_budget),
        request_timeout=float(option.request_timeout),
    )
    scorers = scored_by(options)
    cases = plan(options, tasks, corpora)
    lacking = unavailable_cases(cases, tasks, corpora, options)
    if option.collectonly:
        # The cases are known without a tokenizer, which takes seconds to import.
        return _listed(options, checkpoint, cases, lacking, read_thresholds)
    asks = is_served(option) and not (option.plan or option.preflight)
    endpoint = None
    if asks and options.api == "chat":
        # How an answer can be begun there decides the prompts.
        endpoint = open_endpoint(config, options, checkpoint)
    formatter = load_formatter(options, options.model_path, endpoint)
    samples = samples_fingerprint(tasks, corpora, formatter, scored_by=scorers)
    baseline = baseline_of(config, options, samples, endpoint)
    measurable = [case for case in cases if case.id not in lacking]
    unfit = cases_that_cannot_fit(measurable, tasks, seed=options.seed, formatter=formatter, corpora=corpora)
    # HELMET begins at 8K: what a shorter length has no room for is left out and said, not asked for again.
    short = {case.id for case in cases if case.suite == "helmet" and case.id in unfit and case.length < LEAST_OF_HELMET}
    lacking |= {name: unfit.pop(name) for name in short}
    loaded = _loaded_here(checkpoint, baseline, served=is_served(option))
    fitting = [case for case in measurable if case.id not in lacking]
    workers = _workers(config)
    large = {} if workers is None or option.preflight else cases_over_memory(options, loaded, fitting, workers=workers)
    narrowed = option.keyword or option.markexpr or any("::" in argument for argument in config.args)
    if unfit and not narrowed:
        raise pytest.UsageError(next(iter(unfit.values())))
    if large and not (narrowed or option.plan):
        raise pytest.UsageError(next(iter(large.values())))
    if asks and endpoint is None:
        endpoint = open_endpoint(config, options, checkpoint)
    if endpoint is not None and not narrowed:
        check_context(endpoint, [case.length for case in measurable if case.id not in unfit], options)
    return Run(
        id=uuid.uuid4().hex[:12],
        options=options,
        checkpoint=checkpoint,
        cases=cases,
        unavailable=lacking,
        misfits=large | unfit,
        chat=formatter.chat or options.api == "chat",
        corpora=corpora.fingerprint,
        prompts=f"{stable_hash(*(sorted(task.prompts.items()) for task in tasks.values())):016x}",
        samples=samples,
        thresholds=concerning(read_thresholds, cases),
        baseline=baseline,
        deadline=None if options.budget_minutes is None else time.time() + 60 * options.budget_minutes,
        endpoint=endpoint,
    )


def _loaded_here(checkpoint: Checkpoint, baseline: Baseline | None, *, served: bool) -> tuple[Checkpoint, ...]:
    """What each worker holds in its memory: a model that is its own baseline once."""
    found = {} if served else {checkpoint.fingerprint: checkpoint}
    if baseline is not None and baseline.checkpoint is not None:
        found.setdefault(baseline.fingerprint, baseline.checkpoint)
    return tuple(found.values())


def _workers(config: pytest.Config) -> int | None:
    """How many this run will have on this machine; None where some are on others."""
    if getattr(config.option, "dist", "no") == "no":
        return 1
    # As pytest-xdist understood -n, --maxprocesses and --tx: "3*popen" are three.
    places = [place.rpartition("*")[::2] for place in config.option.tx]
    here = all(kind.startswith("popen") for _, kind in places)
    return sum(int(number or 1) for number, _ in places) if here else None


def concerning(thresholds: Thresholds, cases: Sequence[Case]) -> Thresholds:
    """The gates on what a run has: one of HELMET alone is not asked for RULER's effective length."""
    families = {case.family for case in cases}
    return replace(thresholds, gates=tuple(gate for gate in thresholds.gates if family_of(gate, FAMILIES) in families))


def _listed(
    options: Options, checkpoint: Checkpoint, cases: tuple[Case, ...], lacking: dict[str, str], thresholds: Thresholds
) -> Run:
    """A run whose cases are listed and not measured."""
    return Run(
        id="",
        options=options,
        checkpoint=checkpoint,
        cases=cases,
        unavailable=lacking,
        misfits={},
        chat=False,
        corpora="",
        prompts="",
        samples="",
        thresholds=thresholds,
        baseline=None,
        deadline=None,
    )


def parse_lengths(text: str) -> tuple[int, ...]:
    """Distinct lengths, shortest first; raises LengthError naming the option."""
    try:
        return tuple(sorted({parse_length(part) for part in text.split(",")}))
    except LengthError as error:
        raise LengthError(f"--lengths: {error}") from error


def default_lengths(claimed_length: int | None) -> tuple[int, ...]:
    """The paper's ladder as far as the model claims, its shortest length at least."""
    ladder = sorted({length for task in TASKS.values() for length in task.lengths})
    claimed = tuple(length for length in ladder if claimed_length is None or length <= claimed_length)
    return claimed or (ladder[0],)
