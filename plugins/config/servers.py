"""The server that a run asks: found where it stands, or started first and stopped with the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.engines import EngineError
from fixtures.engines.openai.keys import contains_key, is_base_url
from fixtures.engines.openai.probe import Endpoint, connect, is_ready, probe_endpoint
from fixtures.engines.openai.server_process import ServerProcess, free_port, split_command
from fixtures.records import Options
from fixtures.seeding import stable_hash
from fixtures.tokenization.prompts import PromptFormatter, load_tokenizer

# Weights of hundreds of gigabytes come over a network.
START_SECONDS = 3600.0
PROBE_TIMEOUT_SECONDS = 300.0
# What an engine of our own is told and no server is, with what stands for nothing told.
OF_OUR_ENGINE = {"device": "auto", "dtype": "auto", "attention": "auto", "prefill_chunk": "auto", "gpus_per_worker": 1}


def is_served(option: Any) -> bool:
    """Whether the options mean a server; `auto` does where one is named."""
    return option.engine == "openai" or (option.engine == "auto" and bool(option.base_url or option.serve))


def check_server(option: Any) -> None:
    """Raises EngineError for options that name no server, or two engines, or what no server is told."""
    served = is_served(option)
    for name in ("base_url", "serve", "served_model"):
        if getattr(option, name) is not None and not served:
            raise EngineError(f"--{name.replace('_', '-')}: is for a server; use --engine openai, not {option.engine}")
    if option.api != "completions" and not served:
        raise EngineError(f"--api: {option.api!r} is for a server; give --base-url or --serve")
    if not served:
        return
    if option.base_url is None and option.serve is None:
        raise EngineError("--engine: openai asks a server; give its --base-url, or a command that starts it to --serve")
    # A baseline is loaded here, unless it was measured before.
    told_to_none = {} if option.baseline and not option.baseline.endswith(".json") else OF_OUR_ENGINE
    for name, default in told_to_none.items():
        given = getattr(option, name)
        if str(given) != str(default):
            raise EngineError(
                f"--{name.replace('_', '-')}: {given} is for --engine hf; leave it out: the server decides"
            )
    if option.base_url is not None and (not is_base_url(option.base_url) or contains_key(option.base_url)):
        raise EngineError(
            "--base-url: not of the form http(s)://host[:port]/path; give no user, password or query in it: "
            "a key belongs into LONGCTX_API_KEY"
        )


def named_only(name: str, tokenizer: str | None) -> Checkpoint:
    """A model that a server knows by name, and nothing else is known of; `tokenizer` is a directory.

    The name stands for the weights: whoever serves others must call them otherwise. Raises EngineError.
    """
    if tokenizer is None:
        raise EngineError(
            f"--model: {name!r} is no directory; give the checkpoint's, or for a name that only the server knows "
            "a directory with its tokenizer as --length-tokenizer"
        )
    formatter = PromptFormatter(load_tokenizer(tokenizer, option="--length-tokenizer"))
    return Checkpoint(
        name=name,
        path=tokenizer,
        architecture="unknown",
        model_type="unknown",
        claimed_length=None,
        dtype="unknown",
        parameters=0,
        weight_bytes=0,
        fingerprint=f"{stable_hash('served', name, formatter.fingerprint):016x}",
        config={},
        calibration=None,
    )


def open_endpoint(config: pytest.Config, options: Options, checkpoint: Checkpoint) -> Endpoint:
    """The run's server, started where a command was given; raises EngineError and ServeError."""
    url = options.base_url
    if options.serve is not None:
        port = free_port()
        model = checkpoint.path if _is_known(checkpoint) else options.model
        words = split_command(options.serve, model=model, port=port)
        url = url or f"http://127.0.0.1:{port}/v1"
        server = ServerProcess(words, config.rootpath / ".longctx" / f"serve-{os.getpid()}.log")
        config.add_cleanup(server.stop)
        server.wait(lambda: is_ready(str(url)), seconds=START_SECONDS)
    connection = connect(str(url), timeout_seconds=min(options.request_timeout, PROBE_TIMEOUT_SECONDS))
    try:
        return probe_endpoint(
            connection,
            names=_names(options, checkpoint),
            named=options.served_model,
            api="chat" if options.api == "chat" else "completions",
            is_own_tokenizer=_is_known(checkpoint),
            ids=_counter(options, checkpoint),
        )
    finally:
        connection.close()


def check_context(endpoint: Endpoint, lengths: Sequence[int], options: Options) -> None:
    """EngineError where the server says that the longest of these does not fit there.

    A length is told in tokens of --length-tokenizer; where that is another one the first sample tells.
    """
    needed = max(lengths, default=0) + options.thinking_budget
    if endpoint.context is not None and options.length_tokenizer is None and needed > endpoint.context:
        thought = f" and a thought of {options.thinking_budget}" if options.thinking_budget else ""
        raise EngineError(
            f"--lengths: {max(lengths)} tokens{thought} do not fit {endpoint.url}, which serves {endpoint.model!r} "
            f"with a context of {endpoint.context}; serve it with a longer one, or use shorter --lengths"
        )


def _is_known(checkpoint: Checkpoint) -> bool:
    """Whether it is a checkpoint on disk and not a name."""
    return bool(checkpoint.weight_bytes)


def _names(options: Options, checkpoint: Checkpoint) -> Sequence[str]:
    if not _is_known(checkpoint):
        return (options.model,)
    return tuple(dict.fromkeys((checkpoint.path, options.model, checkpoint.name)))


def _counter(options: Options, checkpoint: Checkpoint) -> Callable[[str], Sequence[int]]:
    """How this side counts what it sends: texts as they are, or a user's turn in the template."""
    tokenizer = load_tokenizer(checkpoint.path, trust_remote_code=options.trust_remote_code)
    if options.api == "chat":
        formatter = PromptFormatter(tokenizer, chat=options.chat)  # type: ignore[arg-type]  # one of CHOICES
        return lambda text: formatter.prompt(text, "", generation_tokens=1).token_ids
    return lambda text: list(tokenizer(text, add_special_tokens=True, verbose=False)["input_ids"])
