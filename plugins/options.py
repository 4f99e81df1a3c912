"""The `longctx` options, the run that they describe, and the test cases of that run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures.cli import ERROR_CHARACTERS, print_line
from fixtures.installation import CASES_DIRECTORY
from fixtures.records import Case
from fixtures.shown_text import one_line
from fixtures.tasks import SUITES
from plugins.config.check_values import check_values
from plugins.config.invocation import Invocation
from plugins.config.resolve import CONFIG_ERRORS, resolve
from plugins.config.run import Run

RUN = pytest.StashKey[Run]()
PLANNED_WORKERS = pytest.StashKey[int]()
"""The number of workers that the run of a plan would have."""


def pytest_addoption(parser: pytest.Parser) -> None:
    _add_model_options(parser)
    _add_sample_options(parser)
    _add_engine_options(parser)
    _add_scoring_options(parser)
    _add_run_options(parser)


def _add_model_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("longctx", "long-context evaluation").addoption
    add("--model", metavar="PATH", help="checkpoint directory, calibration:4k, ..., or a model's name on a server")
    add("--baseline", metavar="REPORT|PATH", help="JSON report or checkpoint to compare with, sample by sample")
    add(
        "--confidence",
        metavar="P",
        help="probability that no blocking verdict is wrong (default: [verdict] confidence)",
    )
    add("--step", metavar="N", help="training step shown in reports (default: from the path, as in step_1000)")
    add("--base-model", metavar="PATH", help="base model of a LoRA adapter (default: the one that the adapter names)")
    add(
        "--convert", metavar="COMMAND",
        help="command that makes a checkpoint of a raw one: 'convert.sh {checkpoint} {out}'",
    )  # fmt: skip
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the checkpoint")


def _add_sample_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("longctx").addoption
    add(
        "--suite",
        metavar="NAME",
        help="tasks to run: ruler, helmet, all (these two), frontier, or a suite of --tasks (default: all)",
    )
    add("--tasks", metavar="FILE", help="TOML file with question sets of your own; a run without --suite has only them")
    add("--lengths", metavar="8k,128k", help="lengths in tokens (default: 4k to 128k, up to the model's claim)")
    add("--samples", default=500, metavar="N", help="most questions per case (default: 500)")
    add(
        "--only-samples", action="append", default=[], metavar="CASE:3,17",
        help="measure only these samples of the case, without gates; may be repeated, for other cases",
    )  # fmt: skip
    add("--signal", default="answers", metavar="NAME", help="answers, likelihood or both (default: answers)")
    add("--seed", default=0, metavar="N", help="seed of the samples; another seed draws others (default: 0)")
    add("--chat", default="auto", metavar="auto|on|off", help="use the chat template (default: if there is one)")
    add("--length-tokenizer", metavar="PATH", help="tokenizer that counts lengths (default: the model's)")
    add("--data-dir", metavar="DIR", help="essays and question sets to use instead of generated text")
    add("--prompts", metavar="FILE", help="TOML file that replaces the wording of prompts")
    add(
        "--qa-fill",
        default="own",
        metavar="own|random",
        help="paragraphs around a question of SQuAD or HotpotQA: its article or item first, or random (default: own)",
    )


def _add_engine_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("longctx").addoption
    add(
        "--engine",
        default="auto",
        metavar="NAME",
        help="engine for the model: auto, hf or openai (default: auto)",
    )
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:1 (default: auto, one per worker)")
    add("--dtype", default="auto", metavar="NAME", help="float32, bfloat16 or float16 (default: as stored)")
    add("--attention", default="auto", metavar="NAME", help="transformers attention (default: flash, else sdpa)")
    add(
        "--batch-size",
        default=0,
        metavar="N",
        help="prompts per pass or parallel requests (default: 0, automatic)",
    )
    add("--prefill-chunk", default="auto", metavar="N", help="prompt tokens per pass: auto, whole or N (default: auto)")
    add("--gpus-per-worker", default=1, metavar="N", help="GPUs over which one model is spread (default: 1)")
    add("--base-url", metavar="URL", help="OpenAI-compatible server that runs the model (key: LONGCTX_API_KEY)")
    add("--serve", metavar="COMMAND", help="command that starts a server: 'vllm serve {model} --port {port}'")
    add("--api", default="completions", metavar="NAME", help="server API: completions or chat (default: completions)")
    add("--served-model", metavar="NAME", help="the model's name on the server (default: as the server lists it)")
    add("--request-timeout", default=1800, metavar="SECONDS", help="longest time of one request (default: 1800)")
    add("--thinking-budget", default=0, metavar="N", help="most tokens of thought before an answer (default: 0)")


def _add_scoring_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("longctx").addoption
    add("--scoring", default="strict", metavar="NAME", help="strict, or paper for the papers' rules (default: strict)")
    add(
        "--yardstick",
        default="auto",
        metavar="NAME",
        help="reference scores: auto, aligned, base, a score or a .toml file (default: auto, by the chat template)",
    )
    add("--judge-model", metavar="NAME", help="model that judges answers on published texts, as its server names it")
    add("--judge-url", metavar="URL", help="the judge's server (keys: LONGCTX_JUDGE_KEY, at OpenAI OPENAI_API_KEY)")
    add("--nli-model", metavar="PATH", help="local entailment model that checks citations of published texts")


def _add_run_options(parser: pytest.Parser) -> None:
    add = parser.getgroup("longctx").addoption
    add("--thresholds", metavar="FILE", help="TOML file with the gates (default: thresholds.toml)")
    add("--journal", metavar="DIR", help="directory of stored results (default: .longctx/journal in the clone)")
    add("--full", action="store_true", help="measure all samples, even after the verdicts are final")
    add("--budget", metavar="MINUTES", help="start no sample after this time; open verdicts become inconclusive")
    add("--preflight", action="store_true", help="check all samples of the run without loading a model")
    add("--plan", action="store_true", help="print cases, tokens and memory; load no model and run nothing")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        if "longctx" in config.workerinput:
            config.stash[RUN] = msgspec.convert(config.workerinput["longctx"], Run)
            _declare_markers(config)
        return
    if not _collects_cases(config):
        return
    config.stash[RUN] = read_run(config)
    _declare_markers(config)
    if config.option.plan:
        config.stash[PLANNED_WORKERS] = local_worker_count(config) or 1
        # A plan needs no workers. pytest-xdist reads these options after this hook.
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], None
    elif getattr(config.option, "maxschedchunk", 0) is None:
        # Cases are few and long, so workers get them one at a time.
        config.option.maxschedchunk = 1


def pytest_report_header(config: pytest.Config) -> str | None:
    """Warn of a checkpoint that can be loaded but looks wrong, and of a yardstick that may be the wrong one."""
    if RUN not in config.stash:
        return None
    run = config.stash[RUN]
    warnings = [f"warning: {run.checkpoint.path}: {run.checkpoint.warning}"] if run.checkpoint.warning else []
    warnings += [f"warning: --yardstick: {run.yardstick_warning}"] if run.yardstick_warning else []
    return "\n".join(warnings) or None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if RUN in node.config.stash:
        node.workerinput["longctx"] = msgspec.to_builtins(node.config.stash[RUN])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the test files of families without cases in this run, which pytest would report as skipped."""
    if RUN not in config.stash or collection_path.parent != config.rootpath / CASES_DIRECTORY:
        return None
    tests = {case.id.partition("[")[0] for case in config.stash[RUN].cases}
    return True if collection_path.stem not in tests else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames and RUN in metafunc.config.stash:
        run, prefix = metafunc.config.stash[RUN], f"{metafunc.function.__name__}["
        cases = [case for case in run.cases if case.id.startswith(prefix)]
        metafunc.parametrize("case", [_parameter(case, run.unavailable.get(case.id)) for case in cases])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the cases by length: the workers share one length evenly, so the longest need not start first."""
    items.sort(key=lambda item: case.length if (case := case_of(item)) else 0)


def read_run(config: pytest.Config) -> Run:
    """Return the run that the command line describes; raise pytest.UsageError with one line."""
    try:
        check_values(config.option)
        return resolve(_invocation(config))
    except CONFIG_ERRORS as error:
        raise usage_error(error) from error


def usage_error(problem: object) -> pytest.UsageError:
    """Return the error that pytest prints as one line before it exits with 4."""
    return pytest.UsageError(one_line(str(problem), ERROR_CHARACTERS))


def is_thresholds_file(config: pytest.Config, argument: str) -> bool:
    """Return True for an argument that names a gate by its id, such as "thresholds.toml::gate[mean at 4k]"."""
    return Path(argument.partition("::")[0]).name == Path(config.option.thresholds or "thresholds.toml").name


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that a test measures; None for any other test."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Case) else None


def cases_of(run: Run, node_ids: Sequence[str]) -> tuple[Case, ...]:
    """Return the available cases of a run that are among the collected tests."""
    names = {node_id.rpartition("::")[2] for node_id in node_ids}
    return tuple(case for case in run.available if case.id in names)


def _invocation(config: pytest.Config) -> Invocation:
    option = config.option
    return Invocation(
        arguments=option,
        root=config.rootpath,
        directory=Path(config.invocation_params.dir),
        local_workers=local_worker_count(config),
        is_narrowed=bool(option.keyword or option.markexpr or any("::" in argument for argument in config.args)),
        add_cleanup=config.add_cleanup,
        announce=(lambda line: None) if config.get_verbosity() < 0 else print_line,
    )


def local_worker_count(config: pytest.Config) -> int | None:
    """Return how many workers run on this machine; None if some of them run on other machines."""
    if getattr(config.option, "dist", "no") == "no":
        return 1
    # pytest-xdist has turned -n and --maxprocesses into --tx values such as "3*popen" by now.
    specs = [spec.rpartition("*")[::2] for spec in config.option.tx]
    is_local = all(kind.startswith("popen") for _, kind in specs)
    return sum(int(number or 1) for number, _ in specs) if is_local else None


def _parameter(case: Case, skip_reason: str | None) -> Any:
    names = [case.category] if case.suite in SUITES else dict.fromkeys((case.category, case.suite))
    marks = [getattr(pytest.mark, name) for name in names]
    if skip_reason:
        marks.append(pytest.mark.skip(reason=skip_reason))
    return pytest.param(case, id=parameter_id(case), marks=marks)


def _declare_markers(config: pytest.Config) -> None:
    """Declare the suites and categories of tasks files, because pytest refuses unknown markers."""
    for case in config.stash[RUN].cases:
        if case.suite not in SUITES:
            config.addinivalue_line("markers", f"{case.suite}: the tasks of --tasks that belong to this suite")
            config.addinivalue_line("markers", f"{case.category}: the tasks of --tasks that belong to this category")


def parameter_id(case: Case) -> str:
    """Return the part of a case's id within the brackets."""
    return case.id[case.id.index("[") + 1 : -1]


def _collects_cases(config: pytest.Config) -> bool:
    """Return True if pytest was given the suite's test files, and not only an option such as --help."""
    option = config.option
    if option.help or option.version or option.markers or option.showfixtures or option.show_fixtures_per_test:
        return False
    suite = (config.rootpath / CASES_DIRECTORY).resolve()
    chosen = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return any(
        path == suite or suite in path.parents or path in suite.parents or is_thresholds_file(config, argument)
        for path, argument in zip(chosen, config.args, strict=True)
    )
