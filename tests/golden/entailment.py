"""Golden outputs of local entailment models: a classifier and a generative model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from longctx.fixtures import versions
from longctx.fixtures.engines.hf.entailment import NliModel
from longctx.fixtures.records.errors import EngineError
from tests.golden.output import Output, digest
from tests.helpers.tiny_nli import LIMIT, save_classifier, save_writer

FILLING = LIMIT * 2
# (premise, claim). The tiny models decide for entailment if they read KEY; the one of two keys also needs TOO.
PAIRS = {
    "yes": ("w KEY w", "w"),
    "no": ("w w w", "w w"),
    "key in the claim": ("w", "w KEY"),
    "no premise": ("", "KEY"),
    "no claim": ("KEY", " ... "),
    "just within the limit": (f"{'w ' * (LIMIT - 6)}KEY", "w w"),
    "just beyond the limit": (f"{'w ' * (LIMIT - 4)}KEY", "w w"),
    "key first of many": (f"KEY {'w ' * FILLING}", "w w w"),
    "key in the middle of many": (f"{'w ' * FILLING}KEY TOO {'w ' * FILLING}", "w w w"),
    "key last of many": (f"{'w ' * FILLING}KEY", "w w w"),
    "keys far apart": (f"KEY {'w ' * FILLING}TOO", "w w w"),
    "keys half a window apart": (f"{'w ' * FILLING}KEY {'w ' * 50}TOO {'w ' * FILLING}", "w w w"),
    "long claim": (f"KEY {'w ' * FILLING}", "w " * 50),
    "claim that leaves no space": (f"KEY {'w ' * FILLING}", "w " * 100),
}


def entailment_outputs() -> Iterator[Output]:
    """Yield, for every model and pair, the decision and a digest of everything that the model reads."""
    with TemporaryDirectory() as directory:
        labels = ("contradiction", "neutral", "entailment")
        models = {
            "classifier": save_classifier(Path(directory) / "classifier", labels, yes=2, no=1),
            "classifier of two keys": save_classifier(Path(directory) / "two", labels, yes=2, no=0, keys=2),
            "writer": save_writer(Path(directory) / "writer"),
        }
        for name, path in models.items():
            model = NliModel(str(path), device="cpu")
            for kind, (premise, claim) in PAIRS.items():
                yield Output(
                    name=f"{name}: {kind}",
                    version_name="ENTAILMENT",
                    version=versions.ENTAILMENT,
                    value=_decision_and_inputs(model, premise, claim),
                )


def _decision_and_inputs(model: NliModel, premise: str, claim: str) -> list[Any]:
    with _recorded_inputs() as inputs:
        try:
            decision: bool | None = model.entails(premise, claim)
        except EngineError:
            decision = None
    return [decision, len(inputs), digest(json.dumps(inputs))]


@contextmanager
def _recorded_inputs() -> Iterator[list[Any]]:
    """Collect the integer tensors that are given to a model."""
    from transformers import BertForSequenceClassification, T5ForConditionalGeneration
    from transformers.models.t5.modeling_t5 import T5Stack

    inputs: list[Any] = []
    with (
        _recording(BertForSequenceClassification, inputs),
        _recording(T5ForConditionalGeneration, inputs),
        _recording(T5Stack, inputs),
    ):
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
