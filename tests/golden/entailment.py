"""Golden outputs of a local entailment model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from longctx.fixtures import versions
from longctx.fixtures.engines.hf.entailment import NliModel
from tests.golden.output import Output, digest
from tests.helpers.tiny_nli import save_writer

FILLING = "w " * 256
# (premise, claim). The tiny model decides for entailment if it reads KEY.
PAIRS = {
    "yes": ("w KEY w", "w"),
    "no": ("w w w", "w w"),
    "key in the claim": ("w", "w KEY"),
    "no premise": ("", "KEY"),
    "no claim": ("KEY", " ... "),
    "key first of many": (f"KEY {FILLING}", "w w w"),
    "key last of many": (f"{FILLING}KEY", "w w w"),
    "long claim": (f"KEY {FILLING}", "w " * 50),
}


def entailment_outputs() -> Iterator[Output]:
    """Yield, for every pair, the decision and a digest of everything that the model reads."""
    with TemporaryDirectory() as directory:
        model = NliModel(str(save_writer(Path(directory))))
        for kind, (premise, claim) in PAIRS.items():
            yield Output(
                name=f"writer: {kind}",
                version_name="ENTAILMENT",
                version=versions.ENTAILMENT,
                value=_decision_and_inputs(model, premise, claim),
            )


def _decision_and_inputs(model: NliModel, premise: str, claim: str) -> list[Any]:
    with _recorded_inputs() as inputs:
        decision = model.entails(premise, claim)
    return [decision, len(inputs), digest(json.dumps(inputs))]


@contextmanager
def _recorded_inputs() -> Iterator[list[Any]]:
    """Collect the integer tensors that are given to a model."""
    from transformers import T5ForConditionalGeneration
    from transformers.models.t5.modeling_t5 import T5Stack

    inputs: list[Any] = []
    with _recording(T5ForConditionalGeneration, inputs), _recording(T5Stack, inputs):
        yield inputs


def _recording(kind: Any, inputs: list[Any]) -> Any:
    forward = kind.forward

    def recorded(self: Any, *positional: Any, **named: Any) -> Any:
        tensors = {name: value for name, value in named.items() if hasattr(value, "is_floating_point")}
        inputs.append(
            [[name, value.tolist()] for name, value in sorted(tensors.items()) if not value.is_floating_point()]
        )
        return forward(self, *positional, **named)

    return mock.patch.object(kind, "forward", recorded)
