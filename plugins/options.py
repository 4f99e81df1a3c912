"""The command line: what may be asked for, checked before anything is loaded, and the cases it means."""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fixtures.engines import ENGINES, EngineError, check_device_and_attention, check_gpus
from fixtures.records import Case, from_json, to_json
from fixtures.tasks import SUITES
from plugins.config.run import RUN, Run, case_of, read_run
from plugins.config.servers import check_server

CASES_DIRECTORY = "tests_longctx"
CHOICES = {
    "suite": (*SUITES, "all"),
    "engine": ("auto", *ENGINES),
    "dtype": ("auto", "bfloat16", "float16", "float32", "bf16", "fp16", "fp32"),
    "chat": ("auto", "on", "off"),
    "api": ("completions", "chat"),
    "scoring": ("strict", "paper"),
}
LEAST = {"samples": 1, "seed": 0, "batch_size": 0, "gpus_per_worker": 1, "thinking_budget": 0}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("longctx", "long-context evaluation")
    add = group.addoption
    add("--model", metavar="PATH", help="checkpoint directory, calibration:4k, ..., or a name on a server")
    add("--suite", default="all", metavar="NAME", help="which tasks: ruler, helmet or all (default: all)")
    add("--lengths", metavar="8k,128k", help="lengths in tokens (default: 4k to 128k, as far as the model claims)")
    add("--samples", default=500, metavar="N", help="questions per case, at most (default: 500)")
    add("--seed", default=0, metavar="N", help="another seed, other samples (default: 0)")
    add("--engine", default="auto", metavar="NAME", help="what runs the model (default: auto)")
    add("--base-url", metavar="URL", help="OpenAI-compatible server that runs the model (key: LONGCTX_API_KEY)")
    add("--serve", metavar="COMMAND", help="start a server first: 'vllm serve {model} --port {port}'")
    add("--api", default="completions", metavar="NAME", help="what the server is asked: completions or chat")
    add("--served-model", metavar="NAME", help="the model's name there (default: what the server lists for it)")
    add("--request-timeout", default=1800, metavar="SECONDS", help="longest wait for one answer (default: 1800)")
    add("--thinking-budget", default=0, metavar="N", help="tokens for a thought before each answer (default: 0)")
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:1 (default: auto, one per worker)")
    add("--dtype", default="auto", metavar="NAME", help="float32, bfloat16 or float16 (default: as stored)")
    add("--attention", default="auto", metavar="NAME", help="a transformers attention (default: flash, else sdpa)")
    add("--batch-size", default=0, metavar="N", help="prompts per forward pass, or requests at once (0: chosen)")
    add("--prefill-chunk", default="auto", metavar="N", help="prompt tokens per pass: auto, whole or N (default: auto)")
    add("--chat", default="auto", metavar="auto|on|off", help="use the chat template (default: if there is one)")
    add("--length-tokenizer", metavar="PATH", help="tokenizer that counts lengths (default: the model's)")
    add("--data-dir", metavar="DIR", help="essays and question sets to use instead of generated text")
    add("--prompts", metavar="FILE", help="TOML file with prompts of your own")
    add("--thresholds", metavar="FILE", help="the gates (default: thresholds.toml)")
    add("--journal", metavar="DIR", help="where results are kept and shared (default: .longctx/journal in the clone)")
    add("--full", action="store_true", help="all samples of every case, whatever is already certain")
    add("--budget", metavar="MINUTES", help="begin no sample after this time; what is open then is inconclusive")
    add("--baseline", metavar="REPORT|PATH", help="compare sample by sample with a JSON report or a checkpoint")
    add("--gpus-per-worker", default=1, metavar="N", help="GPUs for one model, layers spread over them (default: 1)")
    add("--scoring", default="strict", metavar="NAME", help="strict, or paper: to the letter (default: strict)")
    add(
        "--judge-model", metavar="NAME", help="model that judges answers on published texts, by the name its server has"
    )
    add(
        "--judge-url",
        metavar="URL",
        help="its OpenAI-compatible server (key: LONGCTX_JUDGE_KEY; at OpenAI also OPENAI_API_KEY)",
    )
    add("--nli-model", metavar="PATH", help="local model of entailment that checks citations of published texts")
    add("--step", metavar="N", help="training step that reports name (default: from the path, as in step_1000)")
    add("--trust-remote-code", action="store_true", help="run Python code that the checkpoint brings along")
    add("--preflight", action="store_true", help="check every sample of the run; load no model")
    add("--plan", action="store_true", help="print cases, tokens and memory; load no model, run nothing")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        if "longctx" in config.workerinput:
            config.stash[RUN] = from_json(Run, config.workerinput["longctx"])
        return
    if not _collects_cases(config):
        return
    _check_values(config.option)
    config.stash[RUN] = read_run(config)
    if config.option.plan:
        # Nothing is run, so no worker is needed; xdist reads these after us.
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], None
    elif getattr(config.option, "maxschedchunk", 0) is None:
        # Cases are few and long: hand them out one by one.
        config.option.maxschedchunk = 1


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if RUN in node.config.stash:
        node.workerinput["longctx"] = to_json(node.config.stash[RUN])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A family without cases in this run has no tests either: they would count as skipped."""
    if RUN not in config.stash or collection_path.parent != config.rootpath / CASES_DIRECTORY:
        return None
    family = collection_path.stem.removeprefix("test_")
    return True if family not in {case.family for case in config.stash[RUN].cases} else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames and RUN in metafunc.config.stash:
        cases = [
            case for case in metafunc.config.stash[RUN].cases if case.id.startswith(f"{metafunc.function.__name__}[")
        ]
        lacking = metafunc.config.stash[RUN].unavailable
        metafunc.parametrize("case", [_parameter(case, lacking.get(case.id)) for case in cases])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shortest first: workers share a length evenly, so nothing is gained by beginning with the long ones."""
    items.sort(key=lambda item: found.length if (found := case_of(item)) else 0)


def _parameter(case: Case, lacks: str | None) -> Any:
    marks = [getattr(pytest.mark, case.category), *([pytest.mark.skip(reason=lacks)] if lacks else [])]
    return pytest.param(case, id=parameter_id(case), marks=marks)


def parameter_id(case: Case) -> str:
    """What stands in the brackets of the case's id."""
    return case.id[case.id.index("[") + 1 : -1]


def _collects_cases(config: pytest.Config) -> bool:
    option = config.option
    if option.help or option.version or option.markers or option.showfixtures or option.show_fixtures_per_test:
        return False
    home = (config.rootpath / CASES_DIRECTORY).resolve()
    chosen = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return any(path == home or home in path.parents or path in home.parents for path in chosen)


def _check_values(option: argparse.Namespace) -> None:
    """In our own words: argparse would print its usage around the one line that matters."""
    for name, choices in CHOICES.items():
        if getattr(option, name) not in choices:
            raise pytest.UsageError(f"--{name}: unknown {getattr(option, name)!r}; use one of {', '.join(choices)}")
    for name, least in LEAST.items():
        given = str(getattr(option, name))
        if not re.fullmatch(r"[0-9]{1,18}", given) or int(given) < least:
            raise pytest.UsageError(f"--{name.replace('_', '-')}: {given!r}; give a whole number from {least} on")
    if option.step is not None and not re.fullmatch(r"[0-9]{1,18}", option.step):
        raise pytest.UsageError(f"--step: {option.step!r}; give the training step as a whole number from 0 on")
    if option.prefill_chunk not in ("auto", "whole") and not re.fullmatch(r"[1-9][0-9]{0,8}", option.prefill_chunk):
        raise pytest.UsageError(
            f"--prefill-chunk: {option.prefill_chunk!r}; give auto, whole or a number of tokens from 1 on"
        )
    if option.budget is not None and not _is_positive(option.budget):
        raise pytest.UsageError(f"--budget: {option.budget!r}; give a number of minutes above 0, such as 30 or 2.5")
    if not _is_positive(str(option.request_timeout)):
        raise pytest.UsageError(f"--request-timeout: {option.request_timeout!r}; give a number of seconds above 0")
    try:
        check_server(option)
    except EngineError as error:
        raise pytest.UsageError(str(error)) from error
    try:
        if option.device != "auto" or option.attention != "auto":
            check_device_and_attention(option.device, option.attention)
        if int(option.gpus_per_worker) > 1 and not (option.plan or option.preflight or option.collectonly):
            check_gpus(option.device, int(option.gpus_per_worker))
    except EngineError as error:
        raise pytest.UsageError(str(error)) from error


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
