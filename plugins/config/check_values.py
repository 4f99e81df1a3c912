"""The checks of option values that need no file and no model.

argparse could check some of them, but it would print its whole usage around the one line that matters.
"""

from __future__ import annotations

import errno
import math
import os
import re
import shutil
from argparse import Namespace

from fixtures.dtypes import SELECTABLE
from fixtures.engines import ENGINES, check_device_and_attention, check_gpus
from fixtures.shown_text import visible_line
from fixtures.tasks import SUITES
from plugins.config.invocation import ConfigError
from plugins.config.servers import check_server
from plugins.config.yardstick import check_yardstick

CHOICES = {
    "suite": (*SUITES, "all"),
    "engine": ("auto", *ENGINES),
    "dtype": ("auto", *SELECTABLE),
    "chat": ("auto", "on", "off"),
    "api": ("completions", "chat"),
    "scoring": ("strict", "paper"),
    "qa_fill": ("own", "random"),
    "signal": ("answers", "likelihood", "both"),
}
MINIMUMS = {"samples": 1, "seed": 0, "batch_size": 0, "gpus_per_worker": 1, "thinking_budget": 0}
WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
PATHS = ("base_model", "tasks", "length_tokenizer", "data_dir", "prompts", "nli_model", "thresholds", "journal")
MAX_COLUMNS = 10_000
CHUNK_TOKENS = re.compile(r"[1-9][0-9]{0,8}")


def check_values(arguments: Namespace) -> None:
    """Raise ConfigError or EngineError for the first option whose value no run can use."""
    _check_choices(arguments)
    _check_paths(arguments)
    _check_whole_numbers(arguments)
    _check_other_numbers(arguments)
    check_server(arguments)
    check_yardstick(arguments.yardstick)
    _check_devices(arguments)
    _check_terminal()
    _check_expressions(arguments)


def option_name(attribute: str) -> str:
    """Return the option that sets an attribute: `batch_size` is set by `--batch-size`."""
    return f"--{attribute.replace('_', '-')}"


def _check_choices(arguments: Namespace) -> None:
    for name, choices in CHOICES.items():
        value = getattr(arguments, name)
        if name == "suite" and (value is None or arguments.tasks is not None):
            # The suites of a tasks file are known once it is read (`plugins.config.resolve`).
            continue
        if value not in choices:
            raise ConfigError(f"{option_name(name)}: unknown {value!r}; use one of {', '.join(choices)}")


def _check_paths(arguments: Namespace) -> None:
    for name in PATHS:
        path = getattr(arguments, name)
        if path is not None and _is_impossible(path):
            raise ConfigError(
                f"{option_name(name)}: no file can have the name {path[:40]!r}..., which is too long or holds a NUL; "
                "give a path that the file system can hold"
            )


def _is_impossible(path: str) -> bool:
    """Return True if the operating system rejects the path itself, so that every look at it would raise an error."""
    try:
        os.lstat(path)
    except ValueError:
        return True
    except OSError as error:
        return error.errno == errno.ENAMETOOLONG
    return False


def _check_whole_numbers(arguments: Namespace) -> None:
    for name, minimum in MINIMUMS.items():
        value = str(getattr(arguments, name))
        if not WHOLE_NUMBER.fullmatch(value) or int(value) < minimum:
            raise ConfigError(f"{option_name(name)}: {value!r}; give a whole number of at least {minimum}")
    if arguments.step is not None and not WHOLE_NUMBER.fullmatch(arguments.step):
        raise ConfigError(f"--step: {arguments.step!r}; give the training step as a whole number of at least 0")


def _check_other_numbers(arguments: Namespace) -> None:
    chunk = arguments.prefill_chunk
    if chunk not in ("auto", "whole") and not CHUNK_TOKENS.fullmatch(chunk):
        raise ConfigError(f"--prefill-chunk: {chunk!r}; give auto, whole or a number of tokens of at least 1")
    if arguments.budget is not None and not _is_positive(arguments.budget):
        raise ConfigError(f"--budget: {arguments.budget!r}; give a number of minutes above 0, such as 30 or 2.5")
    if arguments.confidence is not None and not 0.5 <= _number(arguments.confidence) < 1:
        raise ConfigError(
            f"--confidence: {arguments.confidence!r}; give a probability from 0.5 to below 1, such as 0.99"
        )
    if not _is_positive(str(arguments.request_timeout)):
        raise ConfigError(f"--request-timeout: {arguments.request_timeout!r}; give a number of seconds above 0")


def _check_devices(arguments: Namespace) -> None:
    """Ask torch about the machine only if an option depends on it, because importing torch takes seconds."""
    if arguments.device != "auto" or arguments.attention != "auto":
        check_device_and_attention(arguments.device, arguments.attention)
    gpus = int(arguments.gpus_per_worker)
    if gpus > 1 and not (arguments.plan or arguments.preflight or arguments.collectonly):
        check_gpus(arguments.device, gpus)


def _check_terminal() -> None:
    """Raise ConfigError for a width with which pytest cannot draw a line across the terminal."""
    if shutil.get_terminal_size().columns > MAX_COLUMNS:
        given = os.environ.get("COLUMNS", "")[:20]
        raise ConfigError(f"COLUMNS: {given} is too wide for a terminal; unset it, or give at most {MAX_COLUMNS:,}")


def _check_expressions(arguments: Namespace) -> None:
    """Raise ConfigError for an expression that pytest would print with its escape sequences."""
    # A measurement from Python has no such options.
    for name, attribute in (("-k", "keyword"), ("-m", "markexpr")):
        expression = getattr(arguments, attribute, "")
        if not expression.isprintable():
            raise ConfigError(f"{name}: {visible_line(expression)} has control characters; write names, and, or, not")


def _is_positive(text: str) -> bool:
    return 0 < _number(text) < math.inf


def _number(text: str) -> float:
    """Return a number; NaN, which no range contains, for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan
