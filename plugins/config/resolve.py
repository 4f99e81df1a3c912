"""The steps from a command line to the run that it describes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fixtures import calibration
from fixtures.cases import FILES, cases_that_cannot_fit, fit_questions, is_selected, plan, unavailable_cases
from fixtures.checkpoints.checkpoint import Checkpoint, CheckpointError
from fixtures.conversion import ConversionError
from fixtures.corpora import CorpusError
from fixtures.engines import EngineError
from fixtures.engines.openai.endpoint import Endpoint
from fixtures.engines.openai.server_process import ServeError
from fixtures.engines.openai.time_budget import TimeBudget
from fixtures.lengths import LengthError, parse_length
from fixtures.memory.fit import cases_over_memory
from fixtures.records import Case, Options
from fixtures.scoring.judge import JudgeError
from fixtures.tasks import SUITES, TASKS, find_tasks_files, known_families, required_scores
from fixtures.tasks.fit_to_length import CannotFit
from fixtures.tasks.prompt_files import PromptsError
from fixtures.tasks.task import Task
from fixtures.tokenization.load import TokenizerError
from fixtures.tokenization.prompts import PromptFormatter
from fixtures.tokenization.special_tokens import check_special_tokens
from plugins.config.baseline import Baseline, BaselineError
from plugins.config.chosen_samples import only_samples, without_claims
from plugins.config.draw_order import with_draw_rates
from plugins.config.extension import extend_baseline
from plugins.config.invocation import ConfigError, Invocation
from plugins.config.materials import Materials, load_materials
from plugins.config.models import load_formatter, resolve_baseline, resolve_model
from plugins.config.run import Run
from plugins.config.servers import check_context, is_on_disk, is_served, open_endpoint
from plugins.config.signal import check_signal, without_gold
from plugins.config.sweeps import sweep_names
from plugins.config.tasks_files import check_suite, check_tasks_files
from plugins.config.yardstick import with_yardstick, yardstick_value
from plugins.gates.hypotheses import gate_family
from plugins.gates.task_gates import with_task_gates
from plugins.gates.thresholds import Thresholds, ThresholdsError, load_thresholds
from plugins.journal import adopt_results

# Every error that a command line can cause; the message of each is one line with the remedy.
CONFIG_ERRORS = (
    BaselineError, calibration.CalibrationError, CannotFit, CheckpointError, ConfigError, ConversionError, CorpusError,
    EngineError, JudgeError, LengthError, PromptsError, ServeError, ThresholdsError, TokenizerError,
)  # fmt: skip
# The shortest length that a suite is defined for, in tokens: HELMET's (Yen et al. 2025, §3) and the frontier tasks'.
MIN_LENGTHS = {"helmet": 8192, "frontier": 4096}
# A server may take this long to say what it is, even after the end of --budget.
PROBE_SECONDS = 30.0
NO_MODEL = (
    "--model: give a checkpoint directory, e.g. --model path/to/ckpt; "
    "--model calibration:4k builds a small one whose effective length is known"
)
PATHS = ("length_tokenizer", "data_dir", "prompts", "thresholds", "journal", "nli_model")
NUMBERS = {
    "samples": int, "seed": int, "batch_size": int, "gpus_per_worker": int, "step": int, "thinking_budget": int,
    "request_timeout": float, "budget_minutes": float, "confidence": float,
}  # fmt: skip


def resolve(invocation: Invocation) -> Run:
    """Return the run that a command line describes; raise one of CONFIG_ERRORS if it describes none.

    A run whose cases are only listed gets no tokenizer, because importing one takes seconds.
    """
    if not invocation.arguments.model:
        raise ConfigError(NO_MODEL)
    started = time.time()
    options = read_options(invocation)
    thresholds = read_thresholds(options)
    materials = load_materials(options, sweep_names(options, thresholds))
    check_suite(options, materials)
    checkpoint = resolve_model(invocation)
    options = complete_options(options, checkpoint, length_tasks(options, materials))
    run = list_cases(options, checkpoint, materials, thresholds)
    if options.budget_minutes is not None:
        run = replace(run, deadline=started + 60 * options.budget_minutes)
    return run if invocation.arguments.collectonly else prepare(run, materials, invocation)


def read_options(invocation: Invocation) -> Options:
    """Return the options as records hold them: paths absolute, numbers parsed.

    The model's path, and the lengths unless they were given, follow from the checkpoint (`complete_options`).
    Raises LengthError.
    """
    arguments = invocation.arguments
    values: dict[str, Any] = {
        entry.name: getattr(arguments, entry.name) for entry in fields(Options) if hasattr(arguments, entry.name)
    }
    values |= {name: invocation.path(values[name]) for name in PATHS}
    values |= {
        "model_path": "",
        "only_samples": tuple(values["only_samples"]),
        "suite": arguments.suite or ("all" if arguments.tasks is None else FILES),
        "tasks": find_tasks_files(arguments.tasks, invocation.directory),
        "budget_minutes": arguments.budget,
        "yardstick": yardstick_value(values["yardstick"], invocation),
        "lengths": () if arguments.lengths is None else parse_lengths(arguments.lengths),
        "prefill_chunk": str(arguments.prefill_chunk),
        "thresholds": values["thresholds"] or str(invocation.root / "thresholds.toml"),
        "journal": values["journal"] or str(invocation.scratch / "journal"),
    }
    return Options(**values | {name: kind(values[name]) for name, kind in NUMBERS.items() if values[name] is not None})


def read_thresholds(options: Options) -> Thresholds:
    """Return the thresholds file with the confidence of the options and the gates of tasks files.

    Raises ThresholdsError and QuestionsError.
    """
    thresholds = load_thresholds(Path(options.thresholds), known_tasks=known_families(options.tasks))
    thresholds = with_task_gates(thresholds, required_scores(options.tasks))
    if options.confidence is None:
        return thresholds
    return replace(thresholds, verdict=replace(thresholds.verdict, confidence=options.confidence))


def complete_options(options: Options, checkpoint: Checkpoint, tasks: Iterable[Task] = TASKS.values()) -> Options:
    """Return the options with the defaults that depend on the checkpoint; the lengths are those of `tasks`.

    For a model that only a server knows, --length-tokenizer already is the model's tokenizer.
    """
    return replace(
        options,
        model_path=checkpoint.path,
        lengths=options.lengths or default_lengths(checkpoint.claimed_length, tasks),
        length_tokenizer=options.length_tokenizer if is_on_disk(checkpoint) else None,
    )


def list_cases(options: Options, checkpoint: Checkpoint, materials: Materials, thresholds: Thresholds) -> Run:
    """Return the run as far as it is known without a tokenizer."""
    cases = only_samples(plan(options, materials.tasks, materials.corpora), options.only_samples)
    thresholds = without_claims(concerning(thresholds, cases), options.only_samples)
    check_signal(options, thresholds, cases)
    unavailable = unavailable_cases(cases, materials.tasks, materials.corpora, options)
    check_tasks_files(cases, unavailable, options)
    return Run(
        options=options,
        checkpoint=checkpoint,
        cases=cases,
        unavailable=without_gold(options, cases) | unavailable,
        thresholds=thresholds,
    )


def prepare(run: Run, materials: Materials, invocation: Invocation) -> Run:
    """Return the run with all that measuring needs: prompts, baseline, server, and the cases that fit."""
    options = run.options
    needs_server = is_served(options) and not (invocation.arguments.plan or options.preflight)
    endpoint = None
    if needs_server and options.api == "chat":
        # The prompts depend on how this server lets an answer begin.
        endpoint = connect_server(run, invocation)
    formatter = load_formatter(options, options.model_path, endpoint)
    check_special_tokens(formatter.tokenizer, formatter.leading_ids, Path(run.checkpoint.path), run.checkpoint.config)
    run = with_yardstick(run, materials, formatter.tokenizer)
    baseline = resolve_baseline(invocation, options, materials, formatter, endpoint)
    run = sort_out_misfits(run, materials, formatter)
    run = check_fit(run, baseline, invocation)
    if needs_server and endpoint is None:
        endpoint = connect_server(run, invocation)
    if not (invocation.arguments.plan or options.preflight):
        adopt_earlier_results(options, run.checkpoint, baseline)
    if endpoint is not None and run.measurable:
        lengths = [case.length for case in run.measurable]
        # A narrowed run may leave out the longer lengths, but not all of them.
        check_context(endpoint, [min(lengths)] if invocation.is_narrowed else lengths, options)
    run = replace(
        run,
        id=uuid.uuid4().hex[:12],
        chat=formatter.chat or options.api == "chat",
        corpora=materials.corpora.fingerprint,
        prompts=materials.prompts_fingerprint,
        formatter=formatter.fingerprint,
        scorers=materials.scorers,
        samples=materials.samples_fingerprint(formatter),
        baseline=baseline,
        endpoint=endpoint,
    )
    return with_draw_rates(extend_baseline(run, invocation), invocation)


def adopt_earlier_results(options: Options, checkpoint: Checkpoint, baseline: Baseline | None) -> None:
    """Let the journal find the results that version 0.1 stored for these checkpoints."""
    checkpoints = [checkpoint] if is_on_disk(checkpoint) else []
    checkpoints += [baseline.checkpoint] if baseline is not None and baseline.checkpoint is not None else []
    for one in checkpoints:
        fingerprints = {"sampled": one.sampled_fingerprint, "full": one.fingerprint}
        adopt_results(Path(options.journal), **fingerprints, last_change=one.last_change)


def connect_server(run: Run, invocation: Invocation) -> Endpoint:
    """Return the run's server, started first if --serve says so; raise EngineError, TimeUp or ServeError."""
    deadline = run.deadline
    if deadline is not None and run.options.serve is None:
        # A run whose budget is spent still reports what its journal holds, for which it has to know the server.
        deadline = max(deadline, time.time() + min(run.options.request_timeout, PROBE_SECONDS))
    if run.options.serve is not None:
        invocation.announce("starting the server of --serve ...")
    return open_endpoint(
        run.options,
        run.checkpoint,
        budget=TimeBudget(deadline),
        logs=invocation.scratch,
        add_cleanup=invocation.add_cleanup,
    )


def sort_out_misfits(run: Run, materials: Materials, formatter: PromptFormatter) -> Run:
    """Return the run with the cases whose shortest sample exceeds their length in `misfits`.

    A case below the shortest length of its suite that does not fit is skipped rather than failed.
    """
    fitted, unfit = fit_questions(run.available, materials.tasks, formatter, seed=run.options.seed)
    by_id = {case.id: case for case in fitted}
    run = replace(run, cases=tuple(by_id.get(case.id, case) for case in run.cases))
    unfit |= cases_that_cannot_fit(
        run.available, materials.tasks, seed=run.options.seed, formatter=formatter, corpora=materials.corpora
    )
    short = {
        case.id: unfit.pop(case.id)
        for case in run.cases
        if case.id in unfit and case.length < MIN_LENGTHS.get(case.suite, 0)
    }
    return replace(run, unavailable=run.unavailable | short, misfits=unfit)


def check_fit(run: Run, baseline: Baseline | None, invocation: Invocation) -> Run:
    """Return the run with the cases too large for this machine in `misfits` too.

    Raises ConfigError for the first misfit, unless some cases were selected or, for a lack of memory, under --plan.
    """
    options, workers = run.options, invocation.local_workers
    large: dict[str, str] = {}
    if workers is not None and not options.preflight:
        loaded = _loaded_checkpoints(run, baseline)
        large = cases_over_memory(options, loaded, run.available, workers=workers)
    ignored = {} if invocation.arguments.plan else large
    for reason in [*run.misfits.values(), *ignored.values()]:
        if not invocation.is_narrowed:
            raise ConfigError(reason)
    return replace(run, misfits=large | run.misfits)


def _loaded_checkpoints(run: Run, baseline: Baseline | None) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that each worker loads; a model that is its own baseline is loaded once."""
    loaded = {} if is_served(run.options) else {run.checkpoint.fingerprint: run.checkpoint}
    if baseline is not None and baseline.checkpoint is not None:
        loaded.setdefault(baseline.fingerprint, baseline.checkpoint)
    return tuple(loaded.values())


def concerning(thresholds: Thresholds, cases: Sequence[Case]) -> Thresholds:
    """Return the thresholds with only the gates on families that the cases have."""
    families = {case.family for case in cases}
    known = {case.task: case.family for case in cases}
    return replace(thresholds, gates=tuple(gate for gate in thresholds.gates if gate_family(gate, known) in families))


def parse_lengths(text: str) -> tuple[int, ...]:
    """Return the distinct lengths in tokens, shortest first; raise LengthError naming the option."""
    try:
        return tuple(sorted({parse_length(part) for part in text.split(",")}))
    except LengthError as error:
        raise LengthError(f"--lengths: {error}") from error


def length_tasks(options: Options, materials: Materials) -> Iterable[Task]:
    """Return the tasks whose lengths are the default: those of tasks files if the run has no others."""
    if options.suite in ("all", *SUITES):
        return TASKS.values()
    return [task for task in materials.tasks.values() if is_selected(task, options.suite)]


def default_lengths(claimed_length: int | None, tasks: Iterable[Task] = TASKS.values()) -> tuple[int, ...]:
    """Return the lengths of the tasks up to the claimed one, and at least the shortest."""
    standard = sorted({length for task in tasks for length in task.lengths})
    claimed = tuple(length for length in standard if claimed_length is None or length <= claimed_length)
    return claimed or (standard[0],)
