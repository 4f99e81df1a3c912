"""The scores that gates with `above = "reference"` compare with: those of RULER's paper, a number, or one's own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.tokenization.load import Tokenizer
from longctx.plugins.config.invocation import ConfigError, Invocation
from longctx.plugins.config.materials import Materials
from longctx.plugins.config.run import Run
from longctx.plugins.thresholds.records import ASPECTS, Reference

KINDS = ("aligned", "base")
FORMS = "auto, aligned, base, a score from 0 to 100, or a .toml file of longctx thresholds --yardstick"
ONLY_TEMPLATE = (
    "only the chat template says that this is an aligned model (no turn ends with the config's eos_token_id), so "
    "scores are compared with those of Llama2-7B-chat; for a base model use --yardstick base"
)
# The two turns that tell how the template ends a turn of the model.
_ANSWER = "1234567"
_CONVERSATION = ({"role": "user", "content": "Count."}, {"role": "assistant", "content": _ANSWER})


def check_yardstick(given: str) -> None:
    """Raise ConfigError for a value of --yardstick that no run can use."""
    if given in ("auto", *KINDS) or given.endswith(".toml"):
        return
    if not 0 <= _number(given) < 100:
        raise ConfigError(f"--yardstick: {given!r}; give {FORMS}")


def yardstick_value(given: str, invocation: Invocation) -> str:
    """Return the value of --yardstick, with the absolute path of a file."""
    return str(invocation.path(given)) if given.endswith(".toml") else given


def with_yardstick(run: Run, materials: Materials, tokenizer: Tokenizer) -> Run:
    """Return the run with its reference scores; raise ConfigError if --yardstick names others than fit."""
    yardstick, warning = _choose_yardstick(
        run.options.yardstick,
        run.thresholds.references,
        is_chat_api=run.options.api == "chat",
        tokenizer=tokenizer,
        config=run.checkpoint.config,
    )
    _check_texts(yardstick, f"{materials.corpora.fingerprint}.{materials.prompts_fingerprint}")
    return replace(run, yardstick=yardstick, yardstick_warning=warning)


def _choose_yardstick(
    given: str,
    references: Mapping[str, Reference],
    *,
    is_chat_api: bool,
    tokenizer: Tokenizer,
    config: Mapping[str, Any],
) -> tuple[Reference, str]:
    """Return the reference scores for a model, and a warning, which may be empty.

    For "auto" a model with a chat template is an aligned one, whatever --chat says, so that a run without the template
    has the same bar. If the config does not end turns as the template does, there is a warning.
    """
    has_template = bool(getattr(tokenizer, "chat_template", None)) or is_chat_api
    automatic = references["aligned" if has_template else "base"]
    if given in KINDS:
        return references[given], ""
    if given == "auto":
        is_doubtful = has_template and not is_chat_api and not _ends_turns(tokenizer, config)
        return automatic, ONLY_TEMPLATE if is_doubtful else ""
    if given.endswith(".toml"):
        return _read_yardstick(Path(given)), ""
    scores = {**automatic.scores, "mean": _number(given)}
    return Reference(source=f"--yardstick {given}; for aspects: {automatic.source}", scores=scores), ""


def _read_yardstick(path: Path) -> Reference:
    """Return the reference scores of a file that `longctx thresholds --yardstick` wrote; raise ConfigError."""
    try:
        table = tomllib.loads(read_outside(path).decode("utf-8"))["yardstick"]
        scores = {name: float(table[name]) for name in ("mean", *ASPECTS)}
        reference = Reference(source=str(table["source"]), scores=scores, samples=str(table["samples"]))
    except OSError as error:
        raise ConfigError(f"--yardstick: cannot read {path} ({error.strerror}); give {FORMS}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--yardstick: {path} is no yardstick ({error}); write one with longctx thresholds"
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


def _ends_turns(tokenizer: Tokenizer, config: Mapping[str, Any]) -> bool:
    """Return True if one of the config's end tokens ends the model's turn in the chat template."""
    try:
        text = str(
            tokenizer.apply_chat_template(
                list(_CONVERSATION), chat_template=None, tokenize=False, add_generation_prompt=False
            )
        )
    except Exception:  # a template is a program of the checkpoint, and can raise anything
        return False
    end = text.rpartition(_ANSWER)[2]
    names = {number: name for name, number in tokenizer.get_added_vocab().items()}
    value = config.get("eos_token_id")
    tokens = value if isinstance(value, list) else [value] if isinstance(value, int) else []
    return any(names.get(token, "\0") in end for token in tokens)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
