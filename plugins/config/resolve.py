"""The steps from a command line to the run that it describes."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from longctx.fixtures import calibration
from longctx.fixtures.cases import FILES, is_selected
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.conversion import ConversionError
from longctx.fixtures.corpora import CorpusError
from longctx.fixtures.engines import EngineError, check_device_and_attention, check_gpus
from longctx.fixtures.engines.openai.endpoint import Endpoint
from longctx.fixtures.engines.openai.server_process import ServeError
from longctx.fixtures.http.retry import TimeBudget
from longctx.fixtures.lengths import LengthError, format_length
from longctx.fixtures.memory.fit import cases_over_memory
from longctx.fixtures.records import Case, Options
from longctx.fixtures.scoring.judge import JudgeError
from longctx.fixtures.shown_text import visible_line
from longctx.fixtures.tasks import (
    RULER_PAPER_PROMPTS,
    SUITES,
    TASKS,
    find_tasks_files,
    has_published_rubrics,
    known_families,
    required_scores,
)
from longctx.fixtures.tasks.prompt_files import PromptsError
from longctx.fixtures.tasks.task import CannotFit, Task
from longctx.fixtures.tokenization.load import TokenizerError, check_special_tokens
from longctx.plugins.config.invocation import ConfigError, Invocation
from longctx.plugins.config.materials import Materials, load_materials
from longctx.plugins.config.models import extend_baseline, load_formatter, resolve_baseline, resolve_model
from longctx.plugins.config.options import SUITE_OPTIONS
from longctx.plugins.config.run import BaselineError, Run
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.config.selection import (
    check_suite,
    default_lengths,
    parse_lengths,
    select_cases,
    sort_out_misfits,
    with_prepared_lengths,
)
from longctx.plugins.config.servers import (
    check_context,
    check_server,
    is_on_disk,
    is_served,
    open_endpoint,
    with_canaries,
)
from longctx.plugins.config.yardstick import check_yardstick, with_yardstick, yardstick_value
from longctx.plugins.thresholds.read import load_thresholds
from longctx.plugins.thresholds.records import ThresholdsError

# Every error that a command line can cause; the message of each is one line with the remedy.
CONFIG_ERRORS = (
    BaselineError, calibration.CalibrationError, CannotFit, CheckpointError, ConfigError, ConversionError, CorpusError,
    EngineError, JudgeError, LengthError, PromptsError, ServeError, ThresholdsError, TokenizerError,
)  # fmt: skip
# A server may take this long to say what it is, even after the end of --budget.
PROBE_SECONDS = 30.0
NO_MODEL = (
    "--model: give a checkpoint directory, e.g. --model path/to/ckpt; "
    "--model calibration:4k builds a small one whose effective length is known"
)
MAX_COLUMNS = 10_000
# The most cases that one line explains.
MOST_REASONS = 6
# The value of --chat for the chat API of a server, and that of --prompts for RULER to the letter of its paper.
CHAT_API, RULER_PAPER = "server", "ruler-paper"
# The longest time of one request, and what a token of thought adds to it.
REQUEST_SECONDS, SECONDS_OF_A_THOUGHT_TOKEN = 1800.0, 0.1
NUMBERS: Mapping[str, type[int] | type[float]] = {"whole number": int, "number": float}


def check_values(arguments: Namespace) -> None:
    """Raise ConfigError or EngineError for the first option whose value no run can use; no file is read.

    argparse could check some of them, but it would print its whole usage around the one line that matters.
    """
    for option in SUITE_OPTIONS:
        value = getattr(arguments, option.attribute)
        # The suites of a tasks file are known once it is read.
        is_open = option.flag == "--suite" and arguments.tasks is not None
        if value is not None and not is_open and (problem := option.problem(value)):
            raise ConfigError(f"{option.flag}: {problem}")
    check_server(arguments)
    if arguments.chat == CHAT_API and not is_served(arguments):
        raise EngineError(f"--chat: {CHAT_API!r} is for a server; give --base-url or --serve")
    check_yardstick(arguments.yardstick)
    # torch reports on the machine only if an option depends on it, because importing it takes seconds.
    if arguments.device != "auto" or arguments.attention != "auto":
        check_device_and_attention(arguments.device, arguments.attention)
    gpus = int(arguments.gpus_per_worker)
    if gpus > 1 and not (arguments.plan or arguments.preflight or arguments.collectonly):
        check_gpus(arguments.device, gpus)
    # pytest cannot draw a line across a wider terminal.
    if shutil.get_terminal_size().columns > MAX_COLUMNS:
        given = os.environ.get("COLUMNS", "")[:20]
        raise ConfigError(f"COLUMNS: {given} is too wide for a terminal; unset it, or give at most {MAX_COLUMNS:,}")
    for name, attribute in (("-k", "keyword"), ("-m", "markexpr")):
        # pytest would print the escape sequences of an expression. A measurement from Python has none.
        expression = getattr(arguments, attribute, "") or ""
        if not expression.isprintable():
            raise ConfigError(f"{name}: {visible_line(expression)} has control characters; write names, and, or, not")


def resolve(invocation: Invocation) -> Run:
    """Return the run that a command line describes; raise one of CONFIG_ERRORS if it describes none.

    A run whose cases are only listed gets no tokenizer, because importing one takes seconds.
    """
    if not invocation.arguments.model:
        raise ConfigError(NO_MODEL)
    run, materials = describe_run(invocation)
    return run if invocation.arguments.collectonly else prepare(run, materials, invocation)


def describe_run(
    invocation: Invocation, model: Checkpoint | None = None, loaded: Mapping[str, Any] | None = None
) -> tuple[Run, Materials]:
    """Return the run as far as it is known without a tokenizer, and what its samples are made from.

    `model` is the record of a model that is in memory, and `loaded` are the options that say how it was loaded.
    """
    started = time.time()
    options = _read_options(invocation)
    thresholds = load_thresholds(
        Path(options.thresholds), known_tasks=known_families(options.tasks), required=required_scores(options.tasks)
    )
    materials = load_materials(options)
    check_suite(options, materials)
    checkpoint = model or resolve_model(invocation)
    # The default lengths are those of tasks files only if the run has no other tasks.
    from_files = [task for task in materials.tasks.values() if is_selected(task, options.suite)]
    tasks = TASKS.values() if options.suite in ("all", *SUITES) else from_files
    if options.samples_from is not None:
        options = with_prepared_lengths(options, materials)
    options = replace(_complete_options(options, checkpoint, tasks), **(loaded or {}))
    run = select_cases(options, checkpoint, materials, thresholds)
    if options.budget_minutes is not None:
        run = replace(run, deadline=started + 60 * options.budget_minutes)
    return run, materials


def _read_options(invocation: Invocation) -> Options:
    """Return the options as records hold them: paths absolute, numbers parsed.

    The model's path, and the lengths unless they were given, follow from the checkpoint (`complete_options`).
    Raises LengthError.
    """
    arguments = invocation.arguments
    names = {entry.name for entry in fields(Options)}
    values: dict[str, Any] = {}
    for option in SUITE_OPTIONS:
        value = getattr(arguments, option.attribute)
        if value is not None and option.kind in NUMBERS:
            value = NUMBERS[option.kind](value)
        elif option.kind == "path":
            value = invocation.path(value)
        name = "budget_minutes" if option.flag == "--budget" else option.attribute
        if name in names:
            values[name] = value
    prepared = _prepared_samples(invocation)
    has_tasks_files = arguments.tasks is not None and prepared is None
    url, _, served_model = (arguments.base_url or "").partition("/models/")
    asks_chat_api = arguments.chat == CHAT_API
    is_to_the_letter = arguments.prompts == RULER_PAPER
    entailment = Path(str(invocation.path(arguments.data_dir or "")), "nli")
    values |= {
        "model_path": "",
        "only_samples": tuple(values["only_samples"]),
        "suite": arguments.suite or (FILES if has_tasks_files else "all"),
        "tasks": find_tasks_files(arguments.tasks, invocation.directory) if has_tasks_files else (),
        "samples_from": prepared,
        "yardstick": yardstick_value(values["yardstick"], invocation),
        "lengths": () if arguments.lengths is None else parse_lengths(arguments.lengths),
        "prefill_chunk": str(arguments.prefill_chunk),
        "prompts": str(RULER_PAPER_PROMPTS) if is_to_the_letter else invocation.path(arguments.prompts),
        "qa_fill": "random" if is_to_the_letter else "own",
        "chat": "auto" if asks_chat_api else arguments.chat,
        "api": "chat" if asks_chat_api else "completions",
        "base_url": url or None,
        "served_model": served_model or None,
        "nli_model": str(entailment) if arguments.data_dir is not None and entailment.is_dir() else None,
        "request_timeout": REQUEST_SECONDS + SECONDS_OF_A_THOUGHT_TOKEN * values["thinking_budget"],
        "thresholds": values["thresholds"] or str(invocation.root / "thresholds.toml"),
        "journal": values["journal"] or str(invocation.scratch / "journal"),
    }
    return Options(**values)


def _prepared_samples(invocation: Invocation) -> str | None:
    """Return the folder with prepared samples that --tasks names; None if it names files."""
    given = invocation.arguments.tasks
    path = None if given is None else str(invocation.path(given))
    return path if path is not None and os.path.isdir(path) else None


def _complete_options(options: Options, checkpoint: Checkpoint, tasks: Iterable[Task] = TASKS.values()) -> Options:
    """Return the options with the defaults that depend on the checkpoint; the lengths are those of `tasks`.

    For a model that only a server knows, --length-tokenizer already is the model's tokenizer.
    """
    return replace(
        options,
        model_path=checkpoint.path,
        lengths=options.lengths or default_lengths(checkpoint.claimed_length, tasks),
        length_tokenizer=options.length_tokenizer if is_on_disk(checkpoint) else None,
    )


def prepare(run: Run, materials: Materials, invocation: Invocation) -> Run:
    """Return the run with all that measuring needs: prompts, baseline, server, and the cases that fit."""
    options = run.options
    needs_server = is_served(options) and not (invocation.arguments.plan or options.preflight)
    endpoint = None
    if needs_server and options.api == "chat":
        # The prompts depend on how this server lets an answer begin.
        endpoint = _connect_server(run, invocation)
    formatter = load_formatter(options, options.model_path, endpoint)
    check_special_tokens(formatter.tokenizer, formatter.leading_ids, Path(run.checkpoint.path), run.checkpoint.config)
    run = with_yardstick(run, materials, formatter.tokenizer)
    baseline = resolve_baseline(invocation, options, materials, formatter, endpoint)
    run = sort_out_misfits(run, materials, formatter)
    run = _check_fit(run, baseline, invocation)
    if needs_server and endpoint is None:
        endpoint = _connect_server(run, invocation)
    lengths = [case.length for case in run.measurable]
    # A narrowed run may leave out the longer lengths, but not all of them.
    lengths = [min(lengths)] if lengths and invocation.is_narrowed else lengths
    if endpoint is not None:
        check_context(endpoint, lengths, options)
    run = replace(
        run,
        id=uuid.uuid4().hex[:12],
        chat=formatter.chat or options.api == "chat",
        corpora=materials.corpora.fingerprint,
        prompts=materials.prompts_fingerprint,
        formatter=formatter.fingerprint,
        scorers=materials.scorers,
        rubrics="helmet" if has_published_rubrics(options.prompts, options.scoring) else "own",
        samples=materials.samples_fingerprint(formatter),
        baseline=baseline,
        endpoint=endpoint,
    )
    run = with_canaries(run, formatter)
    return extend_baseline(run, invocation)


def _connect_server(run: Run, invocation: Invocation) -> Endpoint:
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


def _check_fit(run: Run, baseline: Baseline | None, invocation: Invocation) -> Run:
    """Return the run with the cases too large for this machine in `misfits` too.

    Raises ConfigError for all misfits, unless some cases were selected or, for a lack of memory, under --plan.
    """
    options, workers = run.options, invocation.local_workers
    large: dict[str, str] = {}
    if workers is not None and not options.preflight:
        # Each worker loads a model that is its own baseline once.
        loaded = {} if is_served(options) else {run.checkpoint.fingerprint: run.checkpoint}
        if baseline is not None and baseline.checkpoint is not None:
            loaded.setdefault(baseline.fingerprint, baseline.checkpoint)
        large = cases_over_memory(options, tuple(loaded.values()), run.available, workers=workers)
    ignored = {} if invocation.arguments.plan else large
    if (fatal := ignored | run.misfits) and not invocation.is_narrowed:
        raise ConfigError(_misfit_line(run, fatal))
    return replace(run, misfits=large | run.misfits)


def _misfit_line(run: Run, misfits: Mapping[str, str]) -> str:
    """Return one line about all cases that do not fit, with the -k that leaves them out."""
    reasons = list(dict.fromkeys(misfits.values()))
    if len(reasons) == 1:
        return reasons[0]
    # pytest's -k also selects names that contain a word, as those of other cases may; with brackets none does.
    by_task: dict[str, list[Case]] = {}
    for case in run.available:
        by_task.setdefault(case.task, []).append(case)
    left_out: list[str] = []
    for task, cases in by_task.items():
        unfit = [case for case in cases if case.id in misfits]
        others = " ".join(f"{case.id} {case.category}" for case in run.available if case.task != task)
        if len(unfit) == len(cases):
            left_out.append(f"[{task}-" if task in others else task)
        else:
            left_out += [f"[{task}-{format_length(case.length)}]" for case in unfit]
    shown = [reason.partition("; ")[0] for reason in reasons]
    more = f"; and {len(shown) - MOST_REASONS} more" if len(shown) > MOST_REASONS else ""
    needed = max((int(match[1]) for reason in shown if (match := re.search(r" take (\d+)$", reason))), default=0)
    remedies = [f"use --lengths {needed} or more" if needed else "use other --lengths"]
    if len(misfits) < len(run.available):
        remedies.append(f"leave them out with -k '{' and '.join(f'not {name}' for name in left_out)}'")
    return f"{'; '.join(shown[:MOST_REASONS])}{more}; {', or '.join(remedies)}"
