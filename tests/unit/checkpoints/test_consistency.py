"""A checkpoint that no engine can load rightly is refused in one line; weights that were never written are named."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from benchmarks.faults.__main__ import main
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.consistency import unwritten_tensors
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.tokenization.load import TokenizerError, check_special_tokens, load_tokenizer
from tests.helpers.checkpoints import edit_json
from tests.helpers.runs import usage_error
from tests.helpers.tiny_models import CONFIGS, HYBRIDS, SIZES, change_weights, save_model

UNTIED = LlamaConfig(**SIZES, tie_word_embeddings=False)
TIED = LlamaConfig(**SIZES, tie_word_embeddings=True)
EMBEDDINGS, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.mark.parametrize("family", [*CONFIGS, *HYBRIDS])
def test_sound_checkpoints_of_every_architecture_pass(family: str, tmp_path: Path) -> None:
    path = save_model((CONFIGS | HYBRIDS)[family], tmp_path / family)
    assert read_checkpoint(str(path)).warning is None


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"vocab_size": 512}, "vocab_size is 512, but model.embed_tokens.weight has 320 rows"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 3, but the weights lack layer 2"),
        ({"num_hidden_layers": 1}, "num_hidden_layers is 1, but the weights hold 2 layers"),
        ({"rope_theta": 5e5}, "rope_theta is 500000.0, but rope_parameters says rope_theta 10000.0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "rope_scaling says factor 8.0, but rope_parameters"),
        ({"rope_scaling": {"type": "yarn", "rope_type": "linear"}}, "says type 'yarn' and rope_type 'linear'"),
    ],
)
def test_a_config_that_contradicts_weights_or_itself_is_refused(
    values: dict[str, Any], line: str, tmp_path: Path
) -> None:
    path = save_model(TIED, tmp_path / "model")
    edit_json(path / "config.json", **values)
    assert line in usage_error("--model", str(path))


def test_a_tied_head_that_differs_from_the_embeddings_is_refused(tmp_path: Path) -> None:
    path = save_model(TIED, tmp_path / "model")
    change_weights(path, lambda tensors: tensors.update({HEAD: tensors[EMBEDDINGS] * 2}))
    with pytest.raises(CheckpointError, match="the weights hold a head that differs from the embeddings"):
        read_checkpoint(str(path))


def test_a_tied_head_that_is_stored_as_a_copy_passes(tmp_path: Path) -> None:
    path = save_model(TIED, tmp_path / "model")
    change_weights(path, lambda tensors: tensors.update({HEAD: tensors[EMBEDDINGS].clone()}))
    assert read_checkpoint(str(path)).warning is None


def test_an_untied_head_that_is_the_embeddings_gets_a_warning(tmp_path: Path) -> None:
    path = save_model(UNTIED, tmp_path / "model")
    assert read_checkpoint(str(path)).warning is None
    assert main(["inject", str(path), str(tmp_path / "out"), "--fault", "head_from_embeddings"]) == 0
    warning = read_checkpoint(str(tmp_path / "out")).warning
    assert warning is not None
    assert "the head equals the embeddings" in warning


def test_settings_under_both_names_that_agree_pass(tmp_path: Path) -> None:
    path = save_model(TIED, tmp_path / "model")
    edit_json(path / "config.json", rope_theta=10000.0, rope_scaling=None)
    assert read_checkpoint(str(path)).warning is None


def test_an_end_token_outside_the_vocabulary_is_refused_unless_another_file_names_one(tmp_path: Path) -> None:
    path = save_model(TIED, tmp_path / "model")
    edit_json(path / "config.json", eos_token_id=400)
    tokenizer = load_tokenizer(str(path))
    check_special_tokens(tokenizer, (), path, json.loads((path / "config.json").read_text()))
    settings = json.loads((path / "tokenizer_config.json").read_text())
    settings.pop("eos_token")
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    (path / "generation_config.json").unlink()
    line = "no end token is within vocab_size 320: the files name 400"
    assert line in usage_error("--model", str(path), "--lengths", "1k")


@pytest.mark.parametrize(
    ("leading_id", "config", "generation", "line"),
    [
        (1, {"bos_token_id": 0}, {}, "bos_token_id is 0 in config.json, but 1"),
        (320, {"bos_token_id": 0}, {}, "begins every text with token 320"),
        # Two files agree: models distilled from DeepSeek R1 into Qwen, and others.
        (1, {"bos_token_id": 0}, {"bos_token_id": 1}, ""),
        (1, {"bos_token_id": None}, {}, ""),
        (1, {}, {"bos_token_id": 5}, ""),
        (1, {"bos_token_id": 1, "text_config": {"vocab_size": 320, "bos_token_id": 0}}, {}, ""),
        (None, {"bos_token_id": 0}, {}, ""),
    ],
)
def test_a_bos_token_on_which_no_two_files_agree_is_refused(
    leading_id: int | None, config: dict[str, Any], generation: dict[str, Any], line: str, tmp_path: Path
) -> None:
    class Leading:
        bos_token_id = leading_id

    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    leading = () if leading_id is None else (leading_id,)
    with pytest.raises(TokenizerError, match=line) if line else nullcontext():
        check_special_tokens(Leading(), leading, tmp_path, {"vocab_size": 320} | config)  # type: ignore[arg-type]  # all that is read


@pytest.mark.parametrize(
    ("key", "value"), [("rms_norm_eps", "small"), ("num_attention_heads", 0), ("vocab_size", "many")]
)
def test_a_wrong_config_is_no_fault_of_the_tokenizer(key: str, value: object, tmp_path: Path) -> None:
    path = save_model(TIED, tmp_path / "model")
    edit_json(path / "tokenizer_config.json", tokenizer_class="LlamaTokenizerFast")
    edit_json(path / "config.json", **{key: value})
    with pytest.raises(TokenizerError, match=r"--model: \S+/config\.json: .*; correct it, or copy the file from its"):
        load_tokenizer(str(path))


def test_a_vocabulary_that_was_cut_below_the_tokenizer_is_refused(tmp_path: Path) -> None:
    path = save_model(TIED, tmp_path / "model")
    change_weights(path, lambda tensors: tensors.update({EMBEDDINGS: tensors[EMBEDDINGS][:200].clone()}))
    edit_json(path / "config.json", vocab_size=200, eos_token_id=0, bos_token_id=0)
    line = usage_error("--model", str(path), "--lengths", "1k")
    assert re.search(r"the tokenizer has \d+ ordinary tokens, but vocab_size is 200", line), line


WRITTEN = torch.arange(1, 20_001, dtype=torch.float32).reshape(100, 200)
ONE_DIFFERENT = torch.zeros(100, 200)
ONE_DIFFERENT[73, 45] = 1.0
# The rows of embeddings that belong to a token.
TOKENS = 150


def cut(zeros: int, *, rows: int = 100, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return weights whose last values are zero."""
    weights = torch.arange(1, rows * 200 + 1, dtype=dtype)
    weights[len(weights) - zeros :] = 0
    return weights.reshape(rows, 200)


PRUNED = cut(400)
PRUNED[20:30] = PRUNED[90] = 0


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"a.weight": WRITTEN}, {}),
        ({"a.weight": torch.zeros(200, 200), "b.weight": WRITTEN}, {"a.weight": 0}),
        ({"a.weight": torch.full((3, 70_000), -1.5, dtype=torch.bfloat16)}, {"a.weight": 0}),
        # The zero points of quantized weights are alike.
        ({"a.qzeros": torch.full((3, 70_000), 7, dtype=torch.int32)}, {}),
        # Biases start at 0, and norms at 1 or, where 1 is added, at 0.
        ({"a.bias": torch.zeros(200), "norm.weight": torch.ones(200)}, {}),
        ({f"{layer}.norm.weight": torch.zeros(200) for layer in range(3)}, {}),
        # Norms before a matrix may be folded into it, and others stay.
        ({f"{layer}.{place}_norm.weight": torch.full((200,), float(place != "in"))
            for layer in range(3) for place in ("in", "q", "k")}, {}),
        ({"1.norm.weight": torch.ones(200), "2.norm.weight": torch.zeros(200)}, {"2.norm.weight": 200}),
        ({"a.weight": torch.zeros(1, 1), "b.weight": torch.zeros(0, 4)}, {}),
        # The end of a file may fall within a row, within one of several matrices, and behind many zeros.
        ({"a.weight": cut(1077, dtype=torch.bfloat16), "b.weight": WRITTEN}, {"a.weight": 1077}),
        ({"a.weight": cut(400).reshape(2, 50, 200)}, {"a.weight": 400}),
        ({"a.weight": ONE_DIFFERENT}, {}),
        ({"a.weight": cut(20)}, {}),
        # Rows of no token are zero, and those of added tokens may be.
        ({"embed.weight": cut(50 * 200, rows=200), "head.weight": cut(400, rows=160)}, {}),
        ({"embed.weight": cut(50 * 200 + 3, rows=200)}, {}),
        ({"embed.weight": cut(51 * 200, rows=200)}, {"embed.weight": 51 * 200}),
        # Padded heads of all layers, and one layer of three.
        ({f"layers.{layer}.q.weight": cut(400) for layer in range(3)}, {}),
        ({f"layers.{layer}.q.weight": cut(400 * (layer == 2)) for layer in range(3)}, {"layers.2.q.weight": 400}),
        # Pruned rows, of which the last is one.
        ({"a.weight": PRUNED}, {}),
    ],
)  # fmt: skip
def test_weights_that_were_not_written_are_named(
    tensors: dict[str, torch.Tensor], named: dict[str, int], tmp_path: Path
) -> None:
    written = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(written, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert unwritten_tensors(tmp_path, TOKENS) == named
