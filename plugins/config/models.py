"""The checkpoint under test, its baseline, and the tokenizers of a run."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from fixtures import calibration
from fixtures.checkpoints.checkpoint import Checkpoint, CheckpointError, read_checkpoint
from fixtures.checkpoints.source import read_source
from fixtures.conversion import Converter, cached_snapshot, prepare
from fixtures.engines.openai.endpoint import Endpoint
from fixtures.records import Options
from fixtures.tokenization.load import TokenizerError, load_tokenizer
from fixtures.tokenization.prompts import PromptFormatter
from plugins.config.baseline import Baseline, BaselineError, read_baseline
from plugins.config.invocation import ConfigError, Invocation
from plugins.config.materials import Materials
from plugins.config.servers import is_served, named_only

CALIBRATION = "calibration:"
# A fingerprint of as many bytes may take seconds to compute.
ANNOUNCED_BYTES = 2**30


def resolve_model(invocation: Invocation) -> Checkpoint:
    """Return the checkpoint that --model names, or a stand-in for a name that only a server knows.

    Raises CalibrationError, CheckpointError, ConfigError or EngineError.
    """
    arguments = invocation.arguments
    converter(invocation).check()
    path = _checkpoint_path(invocation, arguments.model, option="--model")
    if is_served(arguments) and not os.path.exists(path):
        return named_only(arguments.model, invocation.path(arguments.length_tokenizer))
    return read_or_make(invocation, path, option="--model")


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
    if given.endswith(".json"):
        return read_baseline(Path(str(invocation.path(given))), options, samples)
    path = _checkpoint_path(invocation, given, option="--baseline")
    checkpoint = read_or_make(invocation, path, option="--baseline")
    path = checkpoint.path
    if materials.samples_fingerprint(load_formatter(options, path, endpoint, option="--baseline")) != samples:
        raise BaselineError(
            f"--baseline: {given} has another tokenizer or chat template than --model, so no sample could be paired; "
            "give a checkpoint of the same family, or fix the chat template with --chat"
        )
    return Baseline(name=given, fingerprint=checkpoint.fingerprint, journal=options.journal, checkpoint=checkpoint)


def read_or_make(invocation: Invocation, path: str, *, option: str) -> Checkpoint:
    """Return the checkpoint in a directory, made first from an adapter or a raw checkpoint if it holds one.

    What is made is removed at the end of the run. Raises CheckpointError or ConversionError.
    """
    trusts = invocation.arguments.trust_remote_code
    try:
        source = read_source(path, converts=invocation.arguments.convert is not None)
        if source is None:
            if (size := _weight_bytes(Path(path))) >= ANNOUNCED_BYTES:
                invocation.announce(f"reading {path}, {size / 1e9:,.1f} GB")
            return read_checkpoint(path, option=option, trust_remote_code=trusts)
        verb = "merging" if source.kind == "adapter" else "converting"
        invocation.announce(f"{verb} {source.path} ...")
        folder = prepare(source, converter(invocation))
    except OSError as error:
        raise CheckpointError(f"{option}: {error.filename or path}: {error.strerror or error}") from error
    invocation.add_cleanup(lambda: shutil.rmtree(folder.parent, ignore_errors=True))
    return replace(read_checkpoint(str(folder), option=option, trust_remote_code=trusts), source=source)


def _weight_bytes(folder: Path) -> int:
    """Return the size of the weight files, which the fingerprint reads."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def converter(invocation: Invocation) -> Converter:
    """Return how the run makes checkpoints of adapters and raw checkpoints."""
    base = invocation.arguments.base_model
    if base is not None and os.path.exists(str(invocation.path(base))):
        base = invocation.path(base)
    return Converter(command=invocation.arguments.convert, base_model=base, scratch=invocation.scratch / "converted")


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
    )
    if options.thinking_budget and not (formatter.chat or options.api == "chat"):
        raise TokenizerError("--thinking-budget: only models with a chat template think; use it with --chat on")
    return formatter


def _checkpoint_path(invocation: Invocation, model: str, *, option: str) -> str:
    """Return a checkpoint's absolute path: of a directory, a hub model in the local cache, or a calibration checkpoint.

    A calibration checkpoint is built unless it was built before.
    """
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
