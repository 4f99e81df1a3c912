"""The steps from a command line to the run that it describes."""

import json
import os
import time
import tomllib
import uuid
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from longctx.fixtures import calibration
from longctx.fixtures.cases import FILES
from longctx.fixtures.checkpoints.checkpoint import Checkpoint, full_config
from longctx.fixtures.checkpoints.config_overrides import OverrideError
from longctx.fixtures.checkpoints.consistency import unwritten_tensors
from longctx.fixtures.checkpoints.generation_config import ignored_settings
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.conversion import ConversionError
from longctx.fixtures.corpora import CorpusError
from longctx.fixtures.engines import EngineError, check_device_and_attention, check_gpus
from longctx.fixtures.engines.openai.server_process import ServeError
from longctx.fixtures.engines.vllm.execution import check_vllm, is_automatic
from longctx.fixtures.lengths import LengthError
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.records import Options
from longctx.fixtures.scoring.judge import JudgeError
from longctx.fixtures.shown_text import visible_line
from longctx.fixtures.tasks import (
    RULER_PAPER_PROMPTS,
    find_tasks_files,
    has_published_rubrics,
    known_families,
    required_scores,
    shipped_suite,
    split_names,
)
from longctx.fixtures.tasks.prompt_files import PromptsError
from longctx.fixtures.tasks.task import CannotFit
from longctx.fixtures.tokenization.bounded import OutsideCallError
from longctx.fixtures.tokenization.load import TokenizerError, check_special_tokens
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.cases import (
    check_fit,
    check_suite,
    choose_lengths,
    parse_lengths,
    select_cases,
    sort_out_misfits,
    with_named_tasks,
)
from longctx.plugins.config.invocation import ConfigError, Invocation
from longctx.plugins.config.materials import Materials, load_materials
from longctx.plugins.config.models import (
    extend_baseline,
    load_formatter,
    resolve_baseline,
    resolve_model,
    with_differences,
)
from longctx.plugins.config.options import CHAT_API, SUITE_OPTIONS, YARDSTICK_FORMS
from longctx.plugins.config.run import BaselineError, Run
from longctx.plugins.config.servers import (
    check_context,
    check_server,
    is_on_disk,
    is_served,
    open_endpoint,
    serves_baseline,
    with_baseline_server,
    with_canaries,
)
from longctx.plugins.thresholds.records import ASPECTS, Reference, ThresholdsError, load_thresholds

# Every error that a command line can cause; the message of each is one line with the remedy.
CONFIG_ERRORS = (
    BaselineError, calibration.CalibrationError, CannotFit, CheckpointError, ConfigError, ConversionError, CorpusError,
    EngineError, JudgeError, LengthError, OverrideError, PromptsError, ServeError, ThresholdsError, TokenizerError,
)  # fmt: skip
NO_MODEL = (
    "--model: give a checkpoint directory, e.g. --model path/to/ckpt; "
    "--model calibration:4k builds a small one whose effective length is known"
)
# The value of --prompts for RULER to the letter of its paper.
RULER_PAPER = "ruler-paper"
# Weights that a warning names.
MOST_TENSORS = 4
# The longest time of one request, and the time that a token of thought adds to it.
REQUEST_SECONDS, SECONDS_OF_A_THOUGHT_TOKEN = 1800.0, 0.1
ONLY_TEMPLATE = (
    "only the chat template says that this is an aligned model (no turn ends with the config's eos_token_id), so "
    "scores are compared with those of Llama2-7B-chat; for a base model use --yardstick base"
)
# The two turns that tell how the template ends a turn of the model.
_ANSWER = "1234567"
_CONVERSATION = (("user", "Count."), ("assistant", _ANSWER))


def check_values(arguments: Namespace) -> None:
    """Raise ConfigError or EngineError for the first option whose value no run can use; no file is read.

    argparse could check some of them, but it would print its whole usage around the one line that matters.
    """
    for option in SUITE_OPTIONS:
        value = getattr(arguments, option.attribute)
        # The suites of a tasks file are known once it is read.
        is_open = option.flag == "--suite" and _has_tasks_files(arguments)
        if value is not None and not is_open and (problem := option.problem(value)):
            raise ConfigError(f"{option.flag}: {problem}")
    check_server(arguments)
    # torch reports on the machine only if an option depends on it, because importing it takes seconds.
    if arguments.engine != "vllm" and (arguments.device != "auto" or arguments.attention != "auto"):
        check_device_and_attention(arguments.device, arguments.attention)
    if not (arguments.plan or arguments.preflight or arguments.collectonly):
        if arguments.engine == "vllm":
            check_vllm(arguments.device, int(arguments.batch_size))
        if (gpus := int(arguments.gpus_per_worker)) > 1:
            check_gpus(arguments.device, gpus)
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
    options, arguments = _read_options(invocation), invocation.arguments
    thresholds = load_thresholds(
        Path(options.thresholds), known_tasks=known_families(options.tasks), required=required_scores(options.tasks)
    )
    materials = load_materials(options)
    check_suite(options, materials)
    checkpoint = model or resolve_model(invocation)
    # The options that depend on the checkpoint.
    options = replace(
        options,
        model_path=checkpoint.path,
        lengths=choose_lengths(options, checkpoint.claimed_length, materials),
        # For a model that only a server knows, the option already is the model's tokenizer.
        length_tokenizer=options.length_tokenizer if is_on_disk(checkpoint) else None,
        **(loaded or {}),
    )
    run = select_cases(options, checkpoint, materials, thresholds)
    run = with_named_tasks(run, split_names(arguments.tasks))
    if options.budget_minutes is not None:
        run = replace(run, deadline=started + 60 * options.budget_minutes)
    return run, materials


def _read_options(invocation: Invocation) -> Options:
    """Return the options as records hold them: paths absolute, numbers parsed.

    The model's path, and the lengths unless they were given, follow from the checkpoint. Raises LengthError.
    """
    arguments = invocation.arguments
    names = {entry.name for entry in fields(Options)}
    values: dict[str, Any] = {}
    for option in SUITE_OPTIONS:
        value = getattr(arguments, option.attribute)
        if value is not None and option.kind in ("whole number", "number"):
            value = int(value) if option.kind == "whole number" else float(value)
        elif option.kind == "path":
            value = invocation.path(value)
        name = "budget_minutes" if option.flag == "--budget" else option.attribute
        if name in names:
            values[name] = value
    # --tasks-file names files, or the folder with prepared samples.
    tasks = invocation.path(arguments.tasks_file)
    prepared = tasks if tasks is not None and os.path.isdir(tasks) else None
    has_tasks_files = _has_tasks_files(arguments) and prepared is None
    suite = shipped_suite(arguments.suite) or arguments.suite
    url, _, served_model = (arguments.base_url or "").partition("/models/")
    asks_chat_api = arguments.chat == CHAT_API
    is_to_the_letter = arguments.prompts == RULER_PAPER
    entailment = Path(str(invocation.path(arguments.data_dir or "")), "nli")
    yardstick = arguments.yardstick
    values |= {
        "engine": _engine(arguments),
        "model_path": "",
        "only_samples": tuple(values["only_samples"]),
        "config_override": tuple(values["config_override"]),
        "suite": suite or (FILES if has_tasks_files else "all"),
        "tasks": (
            find_tasks_files(arguments.tasks_file, invocation.directory, suite=arguments.suite)
            if has_tasks_files
            else ()
        ),
        "samples_from": prepared,
        "yardstick": str(invocation.path(yardstick)) if yardstick.endswith(".toml") else yardstick,
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


def _engine(arguments: Namespace) -> str:
    """Return the value of --engine, or `vllm` if `auto` means it: no other option asks for what only `hf` has."""
    is_open = arguments.engine == "auto" and not is_served(arguments) and not arguments.invariance
    if (
        is_open
        and (arguments.attention, arguments.prefill_chunk) == ("auto", "auto")
        and is_automatic(arguments.device)
    ):
        return "vllm"
    return str(arguments.engine)


def _has_tasks_files(arguments: Namespace) -> bool:
    """Return True if --tasks-file is given, or --suite names a shipped tasks file."""
    return arguments.tasks_file is not None or shipped_suite(arguments.suite) is not None


def prepare(run: Run, materials: Materials, invocation: Invocation) -> Run:
    """Return the run with all that measuring needs: prompts, baseline, server, and the cases that fit."""
    options = run.options
    needs_server = is_served(options) and not (invocation.arguments.plan or options.preflight)
    endpoint = None
    if needs_server and options.api == "chat":
        # The prompts depend on how this server lets an answer begin.
        endpoint = open_endpoint(run, invocation)
    formatter = load_formatter(options, options.model_path, endpoint)
    check_special_tokens(formatter.tokenizer, formatter.leading_ids, Path(run.checkpoint.path), run.checkpoint.config)
    yardstick, yardstick_warning = _choose_yardstick(run, formatter)
    _check_texts(yardstick, f"{materials.corpora.fingerprint}.{materials.prompts_fingerprint}")
    baseline = resolve_baseline(invocation, options, materials, formatter, endpoint)
    run = sort_out_misfits(run, materials, formatter, invocation)
    run = check_fit(run, baseline, invocation)
    if needs_server and endpoint is None:
        endpoint = open_endpoint(run, invocation)
    lengths = [case.length for case in run.measurable]
    # A narrowed run may leave out the longer lengths, but not all of them.
    lengths = [min(lengths)] if lengths and invocation.is_narrowed else lengths
    if endpoint is not None:
        check_context(endpoint, lengths, options)
    run = replace(
        run,
        id=uuid.uuid4().hex[:12],
        chat=formatter.chat or options.api == "chat",
        yardstick=yardstick,
        yardstick_warning=yardstick_warning,
        thought_warning=_thought_warning(formatter),
        checkpoint_warnings=_checkpoint_warnings(run.checkpoint, formatter, is_served=endpoint is not None),
        corpora=materials.corpora.fingerprint,
        prompts=materials.prompts_fingerprint,
        formatter=formatter.fingerprint,
        scorers=materials.scorers,
        rubrics="helmet" if has_published_rubrics(options.prompts, options.scoring) else "own",
        samples=materials.samples_fingerprint(formatter),
        baseline=baseline,
        endpoint=endpoint,
    )
    if endpoint is not None:
        run = replace(run, endpoint=with_canaries(run, endpoint, formatter))
    if needs_server and baseline is not None and baseline.checkpoint is not None:
        if serves_baseline(options):
            run = with_baseline_server(run, invocation, baseline.checkpoint, formatter)
        else:
            invocation.announce(
                f"note: --baseline: hf loads {baseline.name} on this machine, and the server runs --model; "
                "--baseline-url gives it a server too"
            )
    return with_differences(extend_baseline(run, invocation, formatter))


def _choose_yardstick(run: Run, formatter: PromptFormatter) -> tuple[Reference, str]:
    """Return the reference scores for a model, and a warning, which may be empty.

    For "auto" a model with a chat template is an aligned one, whatever --chat says, so that a run without the template
    has the same bar. If the config does not end turns as the template does, there is a warning.
    """
    given, references, is_chat_api = run.options.yardstick, run.thresholds.references, run.options.api == "chat"
    has_template = bool(getattr(formatter.tokenizer, "chat_template", None)) or is_chat_api
    automatic = references["aligned" if has_template else "base"]
    if given in references:
        return references[given], ""
    if given == "auto":
        is_doubtful = has_template and not is_chat_api and not _ends_turns(formatter, run.checkpoint)
        return automatic, ONLY_TEMPLATE if is_doubtful else ""
    if given.endswith(".toml"):
        return _read_yardstick(Path(given)), ""
    scores = {**automatic.scores, "mean": float(given)}
    return Reference(source=f"--yardstick {given}; for aspects: {automatic.source}", scores=scores), ""


def _read_yardstick(path: Path) -> Reference:
    """Return the reference scores of a file that `longctx thresholds --yardstick` wrote; raise ConfigError."""
    try:
        table = tomllib.loads(read_outside(path).decode("utf-8"))["yardstick"]
        scores = {name: float(table[name]) for name in ("mean", *ASPECTS)}
        reference = Reference(source=str(table["source"]), scores=scores, samples=str(table["samples"]))
    except OSError as error:
        raise ConfigError(f"--yardstick: cannot read {path} ({error.strerror}); give {YARDSTICK_FORMS}") from error
    except (KeyError, TypeError, ValueError) as error:
        problem = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise ConfigError(
            f"--yardstick: {path} is no yardstick ({problem}); write one with longctx thresholds --yardstick"
        ) from error
    if not all(0 <= score < 100 for score in scores.values()):
        raise ConfigError(f"--yardstick: {path} has a score outside 0 to 100; write it with longctx thresholds again")
    return reference


def _check_texts(reference: Reference, texts: str) -> None:
    """Raise ConfigError if an own yardstick was measured on other texts or prompts than those of the run."""
    if reference.samples and reference.samples != texts:
        raise ConfigError(
            f"--yardstick: {reference.source} was measured on other texts or prompts (--data-dir, --prompts); "
            "measure the reference checkpoint again with the options of this run"
        )


def _thought_warning(formatter: PromptFormatter) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in formatter.form.settings.items())
    if not settings:
        return ""
    return f"the chat template opens a thought, which {settings} closes; --thinking-budget measures answers after one"


def _checkpoint_warnings(checkpoint: Checkpoint, formatter: PromptFormatter, *, is_served: bool) -> tuple[str, ...]:
    if not is_on_disk(checkpoint):
        return ()
    folder, warnings = Path(checkpoint.path), []
    settings = {} if is_served else ignored_settings(folder)
    if settings:
        shown = ", ".join(f"{name} {json.dumps(value)[:40]}" for name, value in settings.items())
        warnings.append(
            f"generation_config.json sets {shown}: this run ignores it, generate() and many servers apply it; remove "
            "what is not meant, or measure the served model with --base-url"
        )
    # Rows of added tokens may be zero as long as no training has met them.
    tokens = getattr(formatter.tokenizer, "vocab_size", 0)
    if checkpoint.calibration is None and (unwritten := unwritten_tensors(folder, tokens)):
        names = ", ".join(map(visible_line, list(unwritten)[:MOST_TENSORS]))
        more = f" and {len(unwritten) - MOST_TENSORS} more" if len(unwritten) > MOST_TENSORS else ""
        warnings.append(f"weights of one value only, or that end in zeros, as if never written whole: {names}{more}")
    return tuple(warnings)


def _ends_turns(formatter: PromptFormatter, checkpoint: Checkpoint) -> bool:
    """Return True if one of the config's end tokens ends the model's turn in the chat template."""
    try:
        text = formatter.rendered(_CONVERSATION, opens=False)
    except OutsideCallError:
        return False
    end = text.rpartition(_ANSWER)[2]
    names = {number: name for name, number in formatter.tokenizer.get_added_vocab().items()}
    config = checkpoint.config
    if "eos_token_id" not in config:
        # The default of the architecture.
        with suppress(CheckpointError):
            config = full_config(checkpoint)
    value = config.get("eos_token_id")
    tokens = value if isinstance(value, list) else [value] if isinstance(value, int) else []
    return any(names.get(token, "\0") in end for token in tokens)
