"""The command line: what may be asked for, checked before anything is loaded, and the cases it means."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fixtures import calibration
from fixtures.cases import case_tokens, misfits, plan
from fixtures.checkpoint import Checkpoint, CheckpointError, inspect
from fixtures.corpora import CorpusError, load_corpora
from fixtures.engines import ENGINES, EngineError, check_settings
from fixtures.identity import stable_hash
from fixtures.lengths import LengthError, parse_length
from fixtures.prompts import Framing, TokenizerError, load_tokenizer
from fixtures.records import Case, Options, from_json, to_json
from fixtures.tasks import SUITES, TASKS, load_tasks
from fixtures.tasks.base import CannotFit
from fixtures.tasks.prompt_files import PromptsError
from plugins.gates.thresholds import Thresholds, ThresholdsError, load_thresholds

CASES_DIRECTORY = "tests_longctx"
CHOICES = {
    "suite": (*SUITES, "all"),
    "engine": ("auto", *ENGINES),
    "dtype": ("auto", "bfloat16", "float16", "float32", "bf16", "fp16", "fp32"),
    "chat": ("auto", "on", "off"),
}
LEAST = {"samples": 1, "seed": 0, "batch_size": 0}
USER_ERRORS = (
    calibration.CalibrationError, CannotFit, CheckpointError, CorpusError, EngineError, LengthError, PromptsError,
    ThresholdsError, TokenizerError,
)  # fmt: skip
NO_MODEL = (
    "--model: give a checkpoint directory, e.g. --model path/to/ckpt; "
    "--model calibration:4k builds a small one whose effective length is known"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one pytest run measures.

    `misfits` are cases that cannot fit their length, with the reason. `corpora` and `prompts` are
    fingerprints: runs with the same ones, options and tokenizer have the same samples.
    """

    options: Options
    checkpoint: Checkpoint
    cases: tuple[Case, ...]
    misfits: dict[str, str]
    chat: bool
    corpora: str
    prompts: str


RUN = pytest.StashKey[Run]()
THRESHOLDS = pytest.StashKey[Thresholds]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("longctx", "long-context evaluation")
    add = group.addoption
    add("--model", metavar="PATH", help="checkpoint directory, or calibration:full, calibration:4k, ...")
    add("--suite", default="all", metavar="NAME", help="which tasks: ruler or all (default: all)")
    add("--lengths", metavar="8k,128k", help="lengths in tokens (default: 4k to 128k, as far as the model claims)")
    add("--samples", default=500, metavar="N", help="samples per case (default: 500, as in the paper)")
    add("--seed", default=0, metavar="N", help="another seed, other samples (default: 0)")
    add("--engine", default="auto", metavar="NAME", help="what runs the model (default: auto)")
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:1 (default: auto, one per worker)")
    add("--dtype", default="auto", metavar="NAME", help="float32, bfloat16 or float16 (default: as stored)")
    add("--attention", default="auto", metavar="NAME", help="a transformers attention (default: flash, else sdpa)")
    add("--batch-size", default=0, metavar="N", help="prompts per forward pass (default: 0, chosen)")
    add("--chat", default="auto", metavar="auto|on|off", help="use the chat template (default: if there is one)")
    add("--length-tokenizer", metavar="PATH", help="tokenizer that counts lengths (default: the model's)")
    add("--data-dir", metavar="DIR", help="essays and question sets to use instead of generated text")
    add("--prompts", metavar="FILE", help="TOML file with prompts of your own")
    add("--thresholds", metavar="FILE", help="the gates (default: thresholds.toml)")
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
    if config.option.plan:
        # Nothing is run, so no worker is needed; xdist reads these after us.
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], None
    elif getattr(config.option, "maxschedchunk", 0) is None:
        # Cases are few and long: hand them out one by one, the longest first.
        config.option.maxschedchunk = 1
    config.stash[RUN] = read_run(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if RUN in node.config.stash:
        node.workerinput["longctx"] = to_json(node.config.stash[RUN])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames and RUN in metafunc.config.stash:
        cases = [
            case for case in metafunc.config.stash[RUN].cases if case.id.startswith(f"{metafunc.function.__name__}[")
        ]
        marked = [
            pytest.param(case, id=parameter_id(case), marks=getattr(pytest.mark, case.category)) for case in cases
        ]
        metafunc.parametrize("case", marked)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: -case_tokens(found) if (found := case_of(item)) else 0)


def parameter_id(case: Case) -> str:
    """What stands in the brackets of the case's id."""
    return case.id[case.id.index("[") + 1 : -1]


def case_of(item: pytest.Item) -> Case | None:
    """The case an item measures; None for any other test."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Case) else None


def cases_of(run: Run, node_ids: Sequence[str]) -> tuple[Case, ...]:
    """The run's cases that a list of collected tests holds."""
    names = {node_id.rpartition("::")[2] for node_id in node_ids}
    return tuple(case for case in run.cases if case.id in names)


def read_run(config: pytest.Config) -> Run:
    """The checked options and their cases; raises pytest.UsageError with one line."""
    try:
        return _read_run(config)
    except USER_ERRORS as error:
        raise pytest.UsageError(str(error)) from error


def _collects_cases(config: pytest.Config) -> bool:
    option = config.option
    if option.help or option.version or option.markers or option.showfixtures or option.show_fixtures_per_test:
        return False
    home = (config.rootpath / CASES_DIRECTORY).resolve()
    chosen = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return any(path == home or home in path.parents or path in home.parents for path in chosen)


def _read_run(config: pytest.Config) -> Run:
    option = config.option
    if not option.model:
        raise pytest.UsageError(NO_MODEL)
    _check_values(option)
    thresholds = _path(config, option.thresholds) or str(config.rootpath / "thresholds.toml")
    config.stash[THRESHOLDS] = load_thresholds(Path(thresholds), known_tasks=TASKS)
    lengths = None if option.lengths is None else parse_lengths(option.lengths)
    tasks = load_tasks(_path(config, option.prompts))
    corpora = load_corpora(_path(config, option.data_dir))
    model_path = _model_path(config)
    checkpoint = inspect(model_path, trust_remote_code=option.trust_remote_code)
    options = Options(
        model=option.model,
        model_path=model_path,
        suite=option.suite,
        lengths=lengths or default_lengths(checkpoint.claimed_length),
        samples=int(option.samples),
        seed=int(option.seed),
        engine=option.engine,
        device=option.device,
        dtype=option.dtype,
        attention=option.attention,
        batch_size=int(option.batch_size),
        chat=option.chat,
        length_tokenizer=_path(config, option.length_tokenizer),
        data_dir=_path(config, option.data_dir),
        prompts=_path(config, option.prompts),
        thresholds=thresholds,
        trust_remote_code=option.trust_remote_code,
        preflight=option.preflight,
    )
    framing = load_framing(options)
    cases = plan(options, tasks, corpora)
    unfit = misfits(cases, tasks, seed=options.seed, framing=framing, corpora=corpora)
    narrowed = option.keyword or option.markexpr or any("::" in argument for argument in config.args)
    if unfit and not narrowed:
        raise pytest.UsageError(next(iter(unfit.values())))
    return Run(
        options=options,
        checkpoint=checkpoint,
        cases=cases,
        misfits=unfit,
        chat=framing.chat,
        corpora=corpora.fingerprint,
        prompts=f"{stable_hash(*(sorted(task.prompts.items()) for task in tasks.values())):016x}",
    )


def _check_values(option: argparse.Namespace) -> None:
    """In our own words: argparse would print its usage around the one line that matters."""
    for name, choices in CHOICES.items():
        if getattr(option, name) not in choices:
            raise pytest.UsageError(f"--{name}: unknown {getattr(option, name)!r}; use one of {', '.join(choices)}")
    for name, least in LEAST.items():
        given = str(getattr(option, name))
        if not re.fullmatch(r"[0-9]{1,18}", given) or int(given) < least:
            raise pytest.UsageError(f"--{name.replace('_', '-')}: {given!r}; give a whole number from {least} on")
    if option.device != "auto" or option.attention != "auto":
        check_settings(option.device, option.attention)


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


def load_framing(options: Options) -> Framing:
    """The tokenizers of a run, ready to frame prompts; raises TokenizerError."""
    tokenizer = load_tokenizer(options.model_path, trust_remote_code=options.trust_remote_code)
    counter = options.length_tokenizer and load_tokenizer(options.length_tokenizer, option="--length-tokenizer")
    return Framing(tokenizer, chat=options.chat, length_tokenizer=counter or None)  # type: ignore[arg-type]  # one of CHOICES


def _model_path(config: pytest.Config) -> str:
    model: str = config.option.model
    if model.startswith("calibration:"):
        spec = calibration.parse_spec(model.removeprefix("calibration:"))
        root = config.rootpath / ".longctx" / "calibration"
        try:
            return str(calibration.cached(spec, root))
        except OSError as error:
            raise pytest.UsageError(
                f"--model: {model} cannot be built in {root} ({error.strerror}); make room there, "
                "or write it elsewhere with python -m fixtures.calibration"
            ) from error
    return str(_path(config, model))


def _path(config: pytest.Config, given: str | None) -> str | None:
    return None if given is None else str(Path(config.invocation_params.dir, given).expanduser().resolve())
