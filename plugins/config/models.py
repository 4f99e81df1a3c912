"""The models of a run, from its options: the one that is measured, and what it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fixtures import calibration
from fixtures.cases import samples_fingerprint
from fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint
from fixtures.corpora import load_corpora
from fixtures.engines.openai.probe import Endpoint
from fixtures.records import Options
from fixtures.tasks import load_tasks
from fixtures.tokenization.prompts import PromptFormatter, TokenizerError, load_tokenizer
from plugins.config.assistants import scored_by
from plugins.config.baseline import Baseline, BaselineError, read_baseline
from plugins.config.servers import is_served, named_only


def checkpoint_of(config: pytest.Config, option: Any) -> tuple[Checkpoint, bool]:
    """The model, and whether nothing is known of it but its name on a server; raises CheckpointError."""
    path = _directory(config, option.model)
    if is_served(option) and not Path(path).exists():
        return named_only(option.model, path_of(config, option.length_tokenizer)), True
    return read_checkpoint(path, trust_remote_code=option.trust_remote_code), False


def baseline_of(
    config: pytest.Config, options: Options, samples: str, endpoint: Endpoint | None = None
) -> Baseline | None:
    """What --baseline names; raises BaselineError where no sample of it could be paired.

    A checkpoint is loaded here, also where the model answers at an endpoint, and reads what that reads.
    """
    given: str | None = config.option.baseline
    if given is None:
        return None
    if given.endswith(".json"):
        return read_baseline(Path(str(path_of(config, given))), options, samples)
    path = _directory(config, given, option="--baseline")
    checkpoint = read_checkpoint(path, option="--baseline", trust_remote_code=options.trust_remote_code)
    formatter = load_formatter(options, path, endpoint, option="--baseline")
    tasks, corpora = load_tasks(options.prompts, options.scoring), load_corpora(options.data_dir)
    if samples_fingerprint(tasks, corpora, formatter, scored_by=scored_by(options)) != samples:
        raise BaselineError(
            f"--baseline: {given} has another tokenizer or chat template than --model, so no sample could be paired; "
            "give a checkpoint of the same family, or fix the chat template with --chat"
        )
    return Baseline(name=given, fingerprint=checkpoint.fingerprint, journal=options.journal, checkpoint=checkpoint)


def load_formatter(
    options: Options, path: str, endpoint: Endpoint | None = None, *, option: str = "--model"
) -> PromptFormatter:
    """The tokenizers of a run, ready to frame prompts as the endpoint reads them; raises TokenizerError."""
    tokenizer = load_tokenizer(path, option=option, trust_remote_code=options.trust_remote_code)
    counter = options.length_tokenizer and load_tokenizer(options.length_tokenizer, option="--length-tokenizer")
    formatter = PromptFormatter(
        tokenizer,
        chat=options.chat,  # type: ignore[arg-type]  # one of CHOICES
        length_tokenizer=counter or None,
        # A thought comes before the answer, so nothing of the answer can stand there already.
        prefix="instruction" if options.thinking_budget else "continued" if endpoint is None else endpoint.prefix,
        keeps_turns=options.api == "chat",
    )
    if options.thinking_budget and not (formatter.chat or options.api == "chat"):
        raise TokenizerError("--thinking-budget: only models with a chat template think; use it with --chat on")
    return formatter


def _directory(config: pytest.Config, model: str, *, option: str = "--model") -> str:
    if model.startswith("calibration:"):
        spec = calibration.parse_spec(model.removeprefix("calibration:"))
        root = config.rootpath / ".longctx" / "calibration"
        try:
            return str(calibration.cached(spec, root))
        except OSError as error:
            raise pytest.UsageError(
                f"{option}: {model} cannot be built in {root} ({error.strerror}); make room there, "
                "or write it elsewhere with python -m fixtures.calibration"
            ) from error
    return str(path_of(config, model))


def path_of(config: pytest.Config, given: Any) -> str | None:
    """A path as whoever gave it sees it, whole."""
    return None if given is None else str(Path(config.invocation_params.dir, given).expanduser().resolve())
