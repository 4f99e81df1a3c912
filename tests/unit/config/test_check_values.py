"""Option values that no run can use are refused before any file is read."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from fixtures.engines import EngineError
from plugins.config.check_values import check_values
from plugins.config.invocation import ConfigError
from tests.unit.config.test_resolve import DEFAULTS


def refusal(**arguments: Any) -> str:
    with pytest.raises((ConfigError, EngineError)) as error:
        check_values(Namespace(**DEFAULTS | arguments))
    return str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": "helmets"}, "--suite: unknown 'helmets'; use one of ruler, helmet, frontier, all"),
        ({"gpus_per_worker": "0"}, "--gpus-per-worker: '0'; give a whole number of at least 1"),
        ({"step": "last"}, "--step: 'last'; give the training step as a whole number of at least 0"),
        ({"prefill_chunk": "0"}, "--prefill-chunk: '0'; give auto, whole or a number of tokens of at least 1"),
        ({"budget": "inf"}, "--budget: 'inf'; give a number of minutes above 0, such as 30 or 2.5"),
        ({"request_timeout": "0"}, "--request-timeout: '0'; give a number of seconds above 0"),
        (
            {"journal": "a" * 300},
            f"--journal: no file can have the name '{'a' * 40}'..., which is too long or holds a NUL; "
            "give a path that the file system can hold",
        ),
        ({"api": "chat"}, "--api: 'chat' is for a server; give --base-url or --serve"),
    ],
)
def test_an_unusable_value_is_named_with_the_accepted_ones(arguments: dict[str, Any], message: str) -> None:
    assert refusal(**arguments) == message


def test_the_defaults_are_accepted() -> None:
    check_values(Namespace(**DEFAULTS))
    check_values(Namespace(**DEFAULTS | {"prefill_chunk": "512", "budget": "2.5", "step": "0"}))
