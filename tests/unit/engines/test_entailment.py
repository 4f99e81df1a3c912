"""Local models of natural-language inference, on checkpoints whose answers are known."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.hf.entailment import NliModel
from tests.helpers.tiny_nli import KEY, LIMIT, ONE, WIDTH, WORDS, save_classifier, save_writer, word_tokenizer

LABELS = ("contradiction", "neutral", "entailment")
# Beside a premise of so many words and a claim of two, three ends fill the input.
WHOLE = LIMIT - 5
SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": WIDTH,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_classifier(tmp_path_factory.mktemp("classifier"), LABELS, yes=2, no=1)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_writer(tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="module", params=["classifier", "writer"])
def model(request: pytest.FixtureRequest) -> NliModel:
    return NliModel(str(request.getfixturevalue(request.param)), device="cpu")


def saved(path: Path, model: Any) -> Path:
    model.save_pretrained(path)
    word_tokenizer().save_pretrained(path)
    return path


def edited(path: Path, name: str, **changes: Any) -> None:
    """Entries of a JSON file replaced; None takes one away."""
    config = json.loads((path / name).read_text()) | changes
    (path / name).write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def refused(path: Path, premise: str = "w w", claim: str = "w") -> str:
    with pytest.raises((EngineError, CheckpointError)) as raised:
        NliModel(str(path), device="cpu").entails(premise, claim)
    message = str(raised.value)
    assert "\n" not in message
    assert ";" in message
    return message


def test_both_kinds_of_models_decide_entailment(model: NliModel) -> None:
    assert model.entails("w w KEY w", "w w")
    assert not model.entails("w w w", "w w")


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_label_of_entailment_is_recognized_by_its_name(tmp_path: Path, order: tuple[int, int, int]) -> None:
    labels = [LABELS[index].upper() if index == 2 else LABELS[index] for index in order]
    path = save_classifier(tmp_path, labels, yes=order.index(2), no=order.index(0))
    model = NliModel(str(path), device="cpu")
    assert model.entails("w KEY", "w")
    assert not model.entails("w", "w")


def test_two_labels_will_do(tmp_path: Path) -> None:
    model = NliModel(str(save_classifier(tmp_path, ("entailment", "not_entailment"), yes=0, no=1)), device="cpu")
    assert model.entails("w KEY", "w")
    assert not model.entails("w", "w")


@pytest.mark.parametrize(
    "labels", [("LABEL_0", "LABEL_1"), ("entailment", "Entailment"), ("entailment",), ("not_entailment", "neutral")]
)
def test_labels_without_one_for_entailment_are_refused(tmp_path: Path, labels: tuple[str, ...]) -> None:
    path = save_classifier(tmp_path, labels, yes=0, no=len(labels) - 1)
    assert "id2label is" in refused(path)


def test_a_model_that_writes_and_has_a_longest_input_reads_no_longer_one(tmp_path: Path) -> None:
    sizes: Any = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    sizes |= {f"{side}_ffn_dim": WIDTH for side in ("encoder", "decoder")}
    config = BartConfig(vocab_size=len(WORDS), d_model=WIDTH, max_position_embeddings=LIMIT, pad_token_id=0, **sizes)
    path = saved(tmp_path, BartForConditionalGeneration(config))
    assert f"reads {LIMIT} tokens, and a pair has 205" in refused(path, " ".join(["w"] * 200), "w w")


def test_a_claim_that_leaves_too_few_tokens_for_a_premise_is_an_error(classifier: Path) -> None:
    assert f"reads {LIMIT} tokens" in refused(classifier, " ".join(["w"] * 100), " ".join(["w"] * (LIMIT - 40)))


def test_positions_that_begin_behind_the_padding_are_counted(tmp_path: Path) -> None:
    """RoBERTa's table is longer than its input; one position too many would be an index error."""
    labels: Any = {"id2label": dict(enumerate(LABELS)), "label2id": {label: at for at, label in enumerate(LABELS)}}
    roberta = RobertaForSequenceClassification(RobertaConfig(**SIZES, max_position_embeddings=LIMIT + 1, **labels))
    model = NliModel(str(saved(tmp_path, roberta)), device="cpu")
    for length in (WHOLE, WHOLE + 1, WHOLE + 2):
        model.entails(" ".join(["w"] * length), "w")


@pytest.mark.parametrize("wins", range(3))
def test_a_deberta_answers_by_its_bias(tmp_path: Path, wins: int) -> None:
    labels: Any = {"id2label": dict(enumerate(LABELS)), "label2id": {label: at for at, label in enumerate(LABELS)}}
    config = DebertaV2Config(**SIZES, **labels, relative_attention=True, pos_att_type=["p2c", "c2p"])
    deberta = DebertaV2ForSequenceClassification(config)
    with torch.no_grad():
        deberta.classifier.weight.zero_()
        deberta.classifier.bias.copy_(torch.eye(3)[wins])
    assert NliModel(str(saved(tmp_path, deberta)), device="cpu").entails("w", "w") == (wins == 2)


def test_a_checkpoints_own_generation_settings_do_not_matter(tmp_path: Path) -> None:
    settings = {"do_sample": True, "temperature": 90.0, "min_length": 9, "forced_bos_token_id": 3, "num_beams": 4}
    save_writer(tmp_path)
    edited(tmp_path, "generation_config.json", **settings)
    model = NliModel(str(tmp_path), device="cpu")
    assert model.entails("w KEY", "w")
    assert not model.entails("w", "w")


def test_a_model_that_writes_something_else_is_an_error_and_not_a_no(tmp_path: Path) -> None:
    weights = load_file(save_writer(tmp_path) / "model.safetensors")
    head = weights["lm_head.weight"]
    head[[ONE, KEY]] = head[[KEY, ONE]].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert "answers 'KEY" in refused(tmp_path, "w KEY")


def test_scores_that_are_not_numbers_are_an_error(tmp_path: Path) -> None:
    bert = BertForSequenceClassification(BertConfig(**SIZES, id2label={0: "entailment", 1: "other"}))
    with torch.no_grad():
        bert.classifier.bias[0] = float("nan")
    assert "not numbers" in refused(saved(tmp_path, bert))


def test_a_model_that_is_no_nli_model_is_refused(tmp_path: Path) -> None:
    llama = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=1))
    assert "LlamaForCausalLM is neither" in refused(saved(tmp_path, llama))


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path, classifier: Path) -> None:
    bert = BertForSequenceClassification(BertConfig(**SIZES, id2label=dict(enumerate(LABELS))))
    saved(tmp_path, bert.bert)
    edited(tmp_path, "config.json", architectures=["BertForSequenceClassification"])
    assert "does not fit its config.json" in refused(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    save_classifier(tmp_path, LABELS, yes=2, no=1)
    edited(tmp_path, "config.json", id2label={"0": "entailment", "1": "other"}, label2id=None)
    assert "does not fit its config.json" in refused(tmp_path)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    save_classifier(tmp_path, LABELS, yes=2, no=1)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert "safetensors" in refused(tmp_path)


def test_a_directory_that_is_not_there_names_the_option(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere").startswith("--data-dir: ")


def test_nothing_is_loaded_before_the_first_pair(tmp_path: Path) -> None:
    model = NliModel(str(save_classifier(tmp_path, LABELS, yes=2, no=1)), device="cpu")
    (tmp_path / "model.safetensors").unlink()
    assert not model.entails("", "w")
    with pytest.raises(EngineError, match=r"--data-dir: \S+ was replaced during the run \(its content changed\)"):
        model.entails("w", "w")
