"""The checkpoint under test, its baseline, and the tokenizers of a run.

A report given as baseline is extended: while its checkpoint exists, it answers the samples that are missing.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from longctx.fixtures import calibration
from longctx.fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint, read_source
from longctx.fixtures.checkpoints.config_overrides import changed_keys
from longctx.fixtures.checkpoints.differences import differences
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.conversion import ConversionError, Converter, cached_snapshot, make_checkpoint
from longctx.fixtures.engines import EngineError, execution_settings
from longctx.fixtures.engines.openai.endpoint import Endpoint
from longctx.fixtures.memory import cases_over_memory
from longctx.fixtures.records import Options
from longctx.fixtures.records.report import ReportSource
from longctx.fixtures.tokenization.load import TokenizerError, load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter, differing_part
from longctx.plugins.config.invocation import ConfigError, Invocation
from longctx.plugins.config.materials import Materials
from longctx.plugins.config.run import BaselineError, Run, finished_journal, read_baseline
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.config.servers import is_served, named_only, serves_baseline, with_baseline_server
from longctx.plugins.journal import JournalError, likelihood_key

CALIBRATION = "calibration:"
# The ends of names that are of files, also where there is none.
REPORT_SUFFIXES = (".json", ".jsonl", ".gz", ".zip", ".xml", ".html", ".md", ".toml", ".gguf", ".safetensors")
# A fingerprint of as many bytes may take seconds to compute.
ANNOUNCED_BYTES = 2**30


def resolve_model(invocation: Invocation) -> Checkpoint:
    """Return the checkpoint that --model names, or a stand-in for a name that only a server knows."""
    arguments = invocation.arguments
    converter(invocation).check()
    path = _checkpoint_path(invocation, arguments.model, option="--model")
    if is_served(arguments) and not os.path.exists(path):
        return named_only(arguments.model, invocation.path(arguments.length_tokenizer))
    return _read_or_make(invocation, path, option="--model")


def resolve_baseline(
    invocation: Invocation,
    options: Options,
    materials: Materials,
    formatter: PromptFormatter,
    endpoint: Endpoint | None = None,
) -> Baseline | None:
    """Return the report or checkpoint that --baseline names; None without the option.

    A checkpoint is loaded by the workers even if a server runs the model under test, and reads the same prompts.
    Raises BaselineError if its samples cannot be paired with those of the model, and the errors of `resolve_model`.
    """
    given = options.baseline
    if given is None:
        return None
    samples = materials.samples_fingerprint(formatter)
    path = str(invocation.path(given))
    if not os.path.isdir(path) and (os.path.exists(path) or given.endswith(REPORT_SUFFIXES)):
        return read_baseline(Path(path), options, samples)
    path = _checkpoint_path(invocation, given, option="--baseline")
    checkpoint = _read_or_make(invocation, path, option="--baseline")
    other = load_formatter(options, checkpoint.path, endpoint, option="--baseline")
    is_other = materials.samples_fingerprint(other) != samples
    if is_other and (part := differing_part(other, formatter)):
        remedy = "fix the chat template with --chat" if part.startswith("chat template") else "mend the tokenizer files"
        raise BaselineError(
            f"--baseline: {given} has another {part} than --model, so no sample could be paired; give a checkpoint of "
            f"the same family, or {remedy}"
        )
    return Baseline(
        name=given,
        fingerprint=checkpoint.fingerprint,
        journal=options.journal,
        checkpoint=checkpoint,
        has_other_tokenizer=is_other,
    )


def _read_or_make(invocation: Invocation, path: str, *, option: str) -> Checkpoint:
    """Return the checkpoint in a directory, made first from an adapter or a raw checkpoint if it holds one.

    What is made is removed at the end of the run. Raises CheckpointError or ConversionError.
    """
    trusts = invocation.arguments.trust_remote_code
    try:
        source = read_source(
            path,
            converts=invocation.arguments.convert is not None,
            tokenizer=converter(invocation).tokenizer,
            trust_remote_code=trusts,
        )
        if source is None:
            # The fingerprint reads these files.
            if (size := sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))) >= ANNOUNCED_BYTES:
                invocation.announce(f"reading {path}, {size / 1e9:,.1f} GB")
            checkpoint = read_checkpoint(path, option=option, trust_remote_code=trusts)
        else:
            checkpoint = _made(source, invocation, option=option)
    except OSError as error:
        raise CheckpointError(f"{option}: {error.filename or path}: {error.strerror or error}") from error
    changed_keys(checkpoint.config, invocation.arguments.config_override)
    return checkpoint


def _made(source: ReportSource, invocation: Invocation, *, option: str) -> Checkpoint:
    if source.kind != "weights":
        invocation.announce(f"{'merging' if source.kind == 'adapter' else 'converting'} {source.path} ...")
    folder = make_checkpoint(source, converter(invocation))
    invocation.add_cleanup(lambda: shutil.rmtree(folder.parent, ignore_errors=True))
    try:
        made = read_checkpoint(str(folder), option=option, trust_remote_code=invocation.arguments.trust_remote_code)
    except CheckpointError as error:
        # What was made is gone when the line is read.
        raise CheckpointError(f"{source.path}, as made by this run: {error}".replace(f"{folder}/", "")) from error
    return replace(made, source=source)


def converter(invocation: Invocation) -> Converter:
    """Return how the run makes checkpoints of adapters and raw checkpoints."""
    base = invocation.arguments.base_model
    if base is not None and os.path.exists(str(invocation.path(base))):
        base = invocation.path(base)
    tokenizer = invocation.arguments.tokenizer
    return Converter(
        command=invocation.arguments.convert,
        base_model=base,
        scratch=invocation.scratch / "converted",
        tokenizer=None if tokenizer is None else str(invocation.path(tokenizer)),
        trust_remote_code=invocation.arguments.trust_remote_code,
    )


def load_formatter(
    options: Options, path: str, endpoint: Endpoint | None = None, *, option: str = "--model"
) -> PromptFormatter:
    """Return the formatter of prompts for a checkpoint and the endpoint that reads them; raise TokenizerError."""
    tokenizer = load_tokenizer(path, option=option, trust_remote_code=options.trust_remote_code)
    counter = options.length_tokenizer and load_tokenizer(options.length_tokenizer, option="--length-tokenizer")
    formatter = PromptFormatter(
        tokenizer,
        chat=options.chat,  # type: ignore[arg-type]  # one of CHOICES
        length_tokenizer=counter or None,
        # A thought comes before the answer, so the prompt cannot already contain the answer's beginning.
        prefix="instruction" if options.thinking_budget else "continued" if endpoint is None else endpoint.prefix,
        keeps_turns=options.api == "chat",
        # A server that formats the turns itself decides about thoughts.
        thinks=bool(options.thinking_budget) or options.api == "chat",
    )
    if formatter.form.open_thought:
        raise TokenizerError(
            f"--thinking-budget: the chat template opens a thought ({formatter.form.open_thought}), in which the "
            "answer would stand; give --thinking-budget 4096, or use --chat off"
        )
    if options.thinking_budget and not (formatter.chat or options.api == "chat"):
        raise TokenizerError("--thinking-budget: only models with a chat template think; use it with --chat on")
    return formatter


def _checkpoint_path(invocation: Invocation, model: str, *, option: str) -> str:
    """Return a checkpoint's path: of a directory, a cached hub model, or a calibration checkpoint, which is built."""
    if not model.startswith(CALIBRATION):
        path = str(invocation.path(model))
        snapshot = None if os.path.exists(path) else cached_snapshot(model)
        return path if snapshot is None else str(snapshot)
    spec = calibration.parse_spec(model.removeprefix(CALIBRATION))
    cache = invocation.scratch / "calibration"
    try:
        return str(calibration.cached(spec, cache))
    except OSError as error:
        raise ConfigError(
            f"{option}: {model} cannot be built in {cache} ({error.strerror}); make room there, "
            "or write it elsewhere with longctx calibration"
        ) from error


def extend_baseline(run: Run, invocation: Invocation, formatter: PromptFormatter) -> Run:
    """Return the run with the checkpoint of the report that --baseline names, to be loaded if pairs are missing.

    Nothing changes for a run without such a report, and for a report whose results are complete. If the checkpoint
    cannot take part, `Baseline.limit` says why.
    """
    baseline = run.baseline
    if baseline is None or baseline.checkpoint is not None or not run.thresholds.regression.extend:
        return run
    if _is_complete(run, baseline):
        return run
    checkpoint = _stored_checkpoint(run, baseline, invocation)
    if isinstance(checkpoint, str):
        return replace(run, baseline=replace(baseline, limit=checkpoint))
    if baseline.execution.get("engine") == "openai" and not (invocation.arguments.plan or run.options.preflight):
        run = with_baseline_server(run, invocation, checkpoint, formatter)
    if limit := _limit(run, baseline, checkpoint, invocation):
        return replace(run, baseline=replace(baseline, limit=limit), baseline_endpoint=None, server_turns=None)
    return replace(run, baseline=replace(baseline, checkpoint=checkpoint))


def with_differences(run: Run) -> Run:
    """Return the run with what differs between its checkpoint and the baseline's, where both are on disk."""
    baseline = run.baseline
    if baseline is None:
        return run
    other = baseline.checkpoint
    # A folder cannot be read if only a server knows the model.
    with suppress(CheckpointError, OSError):
        if other is None and baseline.path is not None:
            other = read_checkpoint(baseline.path, trust_remote_code=run.options.trust_remote_code)
        if other is not None and other.fingerprint == baseline.fingerprint:
            return replace(run, baseline=replace(baseline, differences=differences(run.checkpoint, other)))
    return run


def _is_complete(run: Run, baseline: Baseline) -> bool:
    journal = finished_journal(baseline)
    try:
        journal.refresh()
    except JournalError:
        return False
    signal = run.options.signal
    keys = [(case, run.key(case, index)) for case in run.measurable for index in case.planned]
    return all(signal == "likelihood" or key in journal.entries for _, key in keys) and all(
        signal == "answers" or likelihood_key(key) in journal.likelihoods for case, key in keys if case.has_gold
    )


def _stored_checkpoint(run: Run, baseline: Baseline, invocation: Invocation) -> Checkpoint | str:
    """Return the checkpoint of the baseline's report, or why it cannot answer further samples."""
    is_served_here = serves_baseline(run.options)
    if baseline.path is None or (baseline.execution.get("engine") == "openai" and not is_served_here):
        return "a server answered for it"
    try:
        checkpoint = _read_or_make(invocation, baseline.path, option="--baseline")
    except (CheckpointError, ConversionError):
        return f"its checkpoint {baseline.path} is gone"
    if checkpoint.fingerprint != baseline.fingerprint:
        return f"its checkpoint {baseline.path} has changed"
    if Path(baseline.journal) != Path(run.options.journal):
        return f"its results are in another journal; give --journal {baseline.journal}"
    return checkpoint


def _limit(run: Run, baseline: Baseline, checkpoint: Checkpoint, invocation: Invocation) -> str:
    """Return why a checkpoint cannot extend the results of a report in this run; empty if it can."""
    try:
        execution = execution_settings(checkpoint, run.engine_settings("baseline"))
    except EngineError:
        execution = None
    if execution != baseline.execution:
        return "it was measured with other engine settings or on another kind of machine"
    if run.baseline_endpoint is not None:
        return ""
    is_alone = is_served(run.options) or run.options.engine == "vllm"
    loaded = [checkpoint] if is_alone else [run.checkpoint, checkpoint]
    workers = None if checkpoint.fingerprint == run.checkpoint.fingerprint else invocation.local_workers
    if workers is not None and cases_over_memory(run.options, loaded, run.measurable, workers=workers):
        return "the memory does not suffice for both models"
    return ""
