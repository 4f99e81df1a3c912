"""A local model of natural-language inference, on checkpoints whose answers are known."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import BartConfig, BartForConditionalGeneration, BertConfig, BertForSequenceClassification

from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.engines import EngineError
from longctx.fixtures.engines.hf.entailment import NliModel
from tests.helpers.checkpoints import edit_json
from tests.helpers.tiny_nli import KEY, LIMIT, ONE, WIDTH, WORDS, save_writer, word_tokenizer


def saved(path: Path, model: Any) -> Path:
    model.save_pretrained(path)
    word_tokenizer().save_pretrained(path)
    return path


def refused(path: Path, premise: str = "w w", claim: str = "w") -> str:
    with pytest.raises((EngineError, CheckpointError)) as raised:
        NliModel(str(path)).entails(premise, claim)
    message = str(raised.value)
    assert "\n" not in message
    assert ";" in message
    return message


def test_a_model_that_writes_and_has_a_longest_input_reads_no_longer_one(tmp_path: Path) -> None:
    sizes: Any = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    sizes |= {f"{side}_ffn_dim": WIDTH for side in ("encoder", "decoder")}
    config = BartConfig(vocab_size=len(WORDS), d_model=WIDTH, max_position_embeddings=LIMIT, pad_token_id=0, **sizes)
    path = saved(tmp_path, BartForConditionalGeneration(config))
    assert "fails on a pair of 402 characters: " in refused(path, " ".join(["w"] * 200), "w w")


def test_a_checkpoints_own_generation_settings_do_not_matter(tmp_path: Path) -> None:
    settings = {"do_sample": True, "temperature": 90.0, "min_length": 9, "forced_bos_token_id": 3, "num_beams": 4}
    edit_json(save_writer(tmp_path) / "generation_config.json", **settings)
    model = NliModel(str(tmp_path))
    assert model.entails("w w KEY w", "w w")
    assert not model.entails("w w w", "w w")


def test_a_model_that_writes_something_else_is_an_error_and_not_a_no(tmp_path: Path) -> None:
    weights = load_file(save_writer(tmp_path) / "model.safetensors")
    head = weights["lm_head.weight"]
    head[[ONE, KEY]] = head[[KEY, ONE]].clone()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert "answers 'KEY" in refused(tmp_path, "w KEY")


def test_a_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    sizes: Any = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": WIDTH}
    bert = BertForSequenceClassification(BertConfig(vocab_size=len(WORDS), **sizes))
    assert "it has to be a whole sequence-to-sequence model" in refused(saved(tmp_path, bert))


@pytest.mark.parametrize("size", [{"num_layers": 2}, {"d_ff": WIDTH + 1}], ids=["missing", "of another shape"])
def test_weights_that_the_files_lack_are_not_made_up(tmp_path: Path, size: dict[str, int]) -> None:
    edit_json(save_writer(tmp_path) / "config.json", **size)
    assert "does not fit its config.json (" in refused(tmp_path)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    save_writer(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert "safetensors" in refused(tmp_path)


def test_a_directory_that_is_not_there_names_the_option(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere").startswith("--data-dir: ")


def test_nothing_is_loaded_before_the_first_pair(tmp_path: Path) -> None:
    model = NliModel(str(save_writer(tmp_path)))
    (tmp_path / "model.safetensors").unlink()
    assert not model.entails("", "w")
    with pytest.raises(EngineError, match=r"--data-dir: \S+ was replaced during the run \(its content changed\)"):
        model.entails("w", "w")
