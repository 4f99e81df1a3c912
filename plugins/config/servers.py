"""The server that runs the model of a run: reached at its address, or started first and stopped with the run."""

import json
import os
import shutil
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.checkpoints.generation_config import decoding_settings
from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.openai.canaries import ANSWER_TOKENS, TEXTS, first_answers
from longctx.fixtures.engines.openai.endpoint import Endpoint, ServerSettings, StartedServer, connect
from longctx.fixtures.engines.openai.log_probabilities import require_log_probabilities
from longctx.fixtures.engines.openai.probe import LONG, Probe, is_ready
from longctx.fixtures.engines.openai.server_process import ServeError, ServerProcess, free_port, split_command
from longctx.fixtures.engines.verified import load_unchanged
from longctx.fixtures.http.keys import is_base_url, redact
from longctx.fixtures.http.retry import RequestFailure, RetryPolicy, TimeBudget
from longctx.fixtures.records import Options
from longctx.fixtures.seeding import stable_hash
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.invocation import Invocation
from longctx.plugins.config.options import CHAT_API, SUITE_OPTIONS
from longctx.plugins.config.run import Run
from longctx.plugins.config.server_turns import keep_turns
from longctx.plugins.verdicts.panels import ModelRole

# A server may first have to load hundreds of gigabytes of weights over a network.
START_TIMEOUT_SECONDS = 3600.0
PROBE_TIMEOUT_SECONDS = 300.0
# A server may take this long to say what it is, even after the end of --budget.
PROBE_SECONDS = 30.0


def is_served(options: Options | Namespace) -> bool:
    """Return True if a server runs the model: with --engine openai, or with auto and the address of a server."""
    return options.engine == "openai" or (options.engine == "auto" and bool(options.base_url or options.serve))


def serves_baseline(options: Options | Namespace) -> bool:
    """Return True if the baseline of a served run has a server too, and is not loaded by the workers."""
    return is_served(options) and bool(options.baseline_url or options.serve)


def check_server(arguments: Namespace) -> None:
    """Raise EngineError for server options without a server, a server without an address, or options of `hf`."""
    url, baseline = arguments.base_url, arguments.baseline
    changed: dict[str, list[str]] = {"hf": [], "openai": []}
    for option in SUITE_OPTIONS:
        value = getattr(arguments, option.attribute)
        if option.engine and str(value) != str(option.default):
            changed[option.engine].append(f"{option.flag}: {value}")
    if not is_served(arguments):
        if changed["openai"]:
            flag = changed["openai"][0].partition(":")[0]
            remedy = f"use --engine openai, not {arguments.engine}"
            if arguments.engine == "auto":
                remedy = "name the server of --model with --base-url, or start one with --serve"
            raise EngineError(f"{flag}: is for a server; {remedy}")
        if arguments.chat == CHAT_API:
            raise EngineError(f"--chat: {CHAT_API!r} is for a server; give --base-url or --serve")
        return
    if url is None and arguments.serve is None:
        raise EngineError("--engine: openai needs a server; give its --base-url, or a --serve command that starts one")
    # The `hf` engine does run a baseline checkpoint, unless the baseline is a report.
    if changed["hf"] and (not baseline or baseline.endswith(".json") or serves_baseline(arguments)):
        refused = changed["hf"][0]
        is_override = refused.startswith("--config-override")
        remedy = "give it to the server (vLLM: --hf-overrides)" if is_override else "leave it out: the server decides"
        raise EngineError(f"{refused} is for --engine hf; {remedy}")
    if arguments.baseline_url is not None and not baseline:
        raise EngineError("--baseline-url: names the server of a baseline; give its checkpoint as --baseline")
    for flag, address in (("--base-url", url), ("--baseline-url", arguments.baseline_url)):
        if address is None or (is_base_url(address) and redact(address) == address):
            continue
        raise EngineError(
            f"{flag}: not of the form http(s)://host[:port]/path; give no user, password or query in it: "
            "a key belongs into LONGCTX_API_KEY"
        )


def named_only(name: str, tokenizer: str | None) -> Checkpoint:
    """Return a stand-in for the checkpoint of a model that only a server knows.

    `tokenizer` is a directory. The name takes the place of the weights in the fingerprint, so a server must give
    other weights another name. Raises EngineError without a tokenizer.
    """
    if tokenizer is None:
        raise EngineError(
            f"--model: {name!r} is no directory; give the checkpoint's, or for a name that only the server knows "
            "a directory with its tokenizer as --length-tokenizer"
        )
    formatter = PromptFormatter(load_tokenizer(tokenizer, option="--length-tokenizer"))
    fingerprint = f"{stable_hash('served', name, formatter.fingerprint):016x}"
    return Checkpoint(name=name, path=tokenizer, fingerprint=fingerprint)


def is_on_disk(checkpoint: Checkpoint) -> bool:
    """Return False for the stand-in of a model that only a server knows."""
    return bool(checkpoint.weight_bytes)


def open_endpoint(run: Run, invocation: Invocation, baseline: Checkpoint | None = None) -> Endpoint:
    """Return the facts about the server of the model, or of a baseline; raise EngineError, ServeError or TimeUp."""
    options, checkpoint = run.options, baseline or run.checkpoint
    url, started, deadline = options.base_url, None, run.deadline
    given, served_name = options.model, options.served_model
    if baseline is not None:
        given, served_name = str(options.baseline), None
        if options.baseline_url is not None:
            url, _, name = options.baseline_url.partition("/models/")
            served_name = name or None
    if options.serve is not None and not (baseline and options.baseline_url):
        of = " for the baseline" if baseline else " for the model" if options.baseline else ""
        invocation.announce(f"starting the server of --serve{of} ...")
        url, started = _start_server(run, checkpoint, invocation, is_baseline=baseline is not None)
    elif deadline is not None:
        # A run whose budget is spent still reports what its journal holds, for which it has to know the server.
        deadline = max(deadline, time.time() + min(options.request_timeout, PROBE_SECONDS))
    # Under these names a server may list the model, the most likely first.
    names = (checkpoint.path, given, checkpoint.name) if is_on_disk(checkpoint) else (given,)
    tokenizer = load_tokenizer(checkpoint.path, trust_remote_code=options.trust_remote_code)
    formatter = PromptFormatter(tokenizer, chat=options.chat)  # type: ignore[arg-type]  # one of CHOICES
    encode = _prompt_encoder(options, formatter)
    unknown = Endpoint(
        url=str(url),
        model=served_name or names[0],
        api="chat" if options.api == "chat" else "completions",
        started=started,
        # Caches that outlive a server may hold what other weights have computed from the same texts.
        salt=f"{checkpoint.fingerprint[:16]}-{uuid4().hex[:8]}",
    )
    connection = connect(str(url), timeout_seconds=min(options.request_timeout, PROBE_TIMEOUT_SECONDS))
    invocation.announce(f"asking {unknown.url} ...")
    policy = _waiting(unknown, deadline, invocation)
    probe = Probe(connection=connection, endpoint=unknown, ids=encode, policy=policy)
    endpoint = probe.described(names, served_name, is_own_tokenizer=is_on_disk(checkpoint))
    endpoint = replace(endpoint, notes=_notes(endpoint, checkpoint, formatter))
    if options.signal == "answers":
        return endpoint
    method = require_log_probabilities(connection, endpoint, encode(LONG), policy)
    return replace(endpoint, log_probabilities=method)


def _waiting(endpoint: Endpoint, deadline: float | None, invocation: Invocation) -> RetryPolicy:
    """Return the retries of requests before a run; the first one says that the server is waited for, and why."""
    reasons: list[str] = []

    def may_go_on(failure: RequestFailure) -> bool:
        # These requests are short: what had no reply in time once has none.
        may_come = failure.kind != "time-out" and endpoint.may_recover(failure)
        if may_come and not reasons:
            invocation.announce(f"waiting for {endpoint.url} ({failure.reason}) ...")
            reasons.append(failure.reason)
        return may_come

    return RetryPolicy(may_go_on=may_go_on, budget=TimeBudget(deadline))


def _notes(endpoint: Endpoint, checkpoint: Checkpoint, formatter: PromptFormatter) -> tuple[str, ...]:
    """Return what is known before the run about prompts and answers that are not those of the checkpoint alone."""
    if not is_on_disk(checkpoint):
        return ()
    notes = []
    if endpoint.added_tokens and formatter.chat:
        notes.append(
            f"counts {endpoint.added_tokens:+} tokens in every chat prompt beside those of the checkpoint's own chat "
            "template, so the model reads other prompts than with --engine hf; serve it with its own template, once"
        )
    settings = decoding_settings(Path(checkpoint.path))
    shown = {name: f"{name} {json.dumps(value)[:40]}" for name, value in settings.items()}
    if unswitched := [text for name, text in shown.items() if not endpoint.neutralizes(name)]:
        notes.append(
            f"may apply {', '.join(unswitched)} of the checkpoint's generation_config.json, which no request switches "
            "off, so its answers may be those of another execution than --engine hf; serve the model without that file "
            "(vLLM: --generation-config vllm)"
        )
    elif shown:
        notes.append(
            f"gets neutral values with every request, because the checkpoint's generation_config.json sets "
            f"{', '.join(shown.values())}"
        )
    return tuple(notes)


def _start_server(
    run: Run, checkpoint: Checkpoint, invocation: Invocation, *, is_baseline: bool
) -> tuple[str, StartedServer]:
    """Run --serve until it is ready, and return its URL and process; raise EngineError if the checkpoint changed."""
    options, budget = run.options, TimeBudget(run.deadline)
    port = free_port()
    model = checkpoint.path if is_on_disk(checkpoint) else options.model
    words = split_command(str(options.serve), model=model, port=port)
    url = options.base_url or f"http://127.0.0.1:{port}/v1"

    log = invocation.scratch / f"serve-{os.getpid()}{'-baseline' if is_baseline else ''}.log"

    def start() -> StartedServer:
        server = ServerProcess(words, log)
        invocation.add_cleanup(server.stop)
        server.wait(lambda: is_ready(url), seconds=min(START_TIMEOUT_SECONDS, budget.seconds_left))
        return StartedServer(process_id=server.process_id, log=str(log))

    if not is_on_disk(checkpoint):
        return url, start()
    option = "--baseline" if is_baseline else "--model"
    started, _ = load_unchanged(checkpoint, start, option=option, trust_remote_code=options.trust_remote_code)
    return url, started


def with_baseline_server(run: Run, invocation: Invocation, checkpoint: Checkpoint, formatter: PromptFormatter) -> Run:
    """Return a run whose baseline has the server of --baseline-url, or takes turns with the model's own one."""
    if run.options.baseline_url is not None:
        endpoint = open_endpoint(run, invocation, checkpoint)
        return replace(run, baseline_endpoint=with_canaries(run, endpoint, formatter))
    first = run.endpoint
    assert first is not None
    folder, ended, running = tempfile.mkdtemp(prefix="longctx-"), threading.Event(), first.started

    def start(role: ModelRole) -> Endpoint:
        nonlocal running
        # The line of a test is unfinished.
        invocation.announce("")
        if running is not None:
            running.stop()
            running = None
        try:
            endpoint = open_endpoint(run, invocation, checkpoint if role == "baseline" else None)
        except ServeError:
            TimeBudget(run.deadline, "--serve").raise_if_over()
            raise
        running = endpoint.started
        if ServerSettings(endpoint=endpoint).execution() != ServerSettings(endpoint=first).execution():
            raise EngineError(
                "--serve: the servers of the model and of the baseline take requests in different forms, so their "
                "answers cannot be compared; give each a server of its own with --base-url and --baseline-url"
            )
        return with_canaries(run, endpoint, formatter)

    keep_turns(Path(folder), first, start, ended)
    invocation.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    invocation.add_cleanup(ended.set)
    return replace(run, baseline_endpoint=first, server_turns=folder)


def with_canaries(run: Run, endpoint: Endpoint, formatter: PromptFormatter) -> Endpoint:
    """Return the endpoint of a served run with its canaries, and with notes on those that cannot be used."""
    from longctx.fixtures.engines.openai.engine import OpenAIEngine

    if not run.measurable or not TimeBudget(run.deadline).seconds_left:
        return endpoint
    tokenizer: Any = formatter.tokenizer
    settings = ServerSettings(endpoint=endpoint, timeout_seconds=run.options.request_timeout, deadline=run.deadline)
    engine = OpenAIEngine(settings, tokenizer)
    prompts = [formatter.prompt(text, "", generation_tokens=ANSWER_TOKENS, separator="") for text in TEXTS]
    try:
        canaries, notes = first_answers(engine.ask_canary, prompts)
    finally:
        engine.close()
    return replace(endpoint, canaries=canaries, notes=(*endpoint.notes, *notes))


def check_context(endpoint: Endpoint, lengths: Sequence[int], options: Options) -> None:
    """Raise EngineError if the longest of these lengths exceeds the context that the server reports.

    Nothing is checked with --length-tokenizer, because the server counts tokens with another one; there the first
    sample that is too long fails.
    """
    if endpoint.context is None or options.length_tokenizer is not None:
        return
    needed = max(lengths, default=0) + options.thinking_budget
    if needed > endpoint.context:
        thought = f" and a thought of {options.thinking_budget}" if options.thinking_budget else ""
        raise EngineError(
            f"--lengths: {max(lengths)} tokens{thought} do not fit {endpoint.url}, which serves {endpoint.model!r} "
            f"with a context of {endpoint.context}; serve it with a longer one, or use shorter --lengths"
        )


def _prompt_encoder(options: Options, formatter: PromptFormatter) -> Callable[[str], Sequence[int]]:
    """Return the function that makes the token ids that the server counts for a text, or for a user's turn."""
    if options.api == "chat":
        return lambda text: formatter.prompt(text, "", generation_tokens=1).token_ids
    return lambda text: list(formatter.tokenizer(text, add_special_tokens=True, verbose=False)["input_ids"])
