"""What differs between two checkpoints is found by their files, and nothing else is named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.differences import differences
from longctx.fixtures.records.report import ReportDifference as Difference
from tests.helpers.checkpoints import (
    TENSORS,
    WEIGHTS,
    Change,
    both,
    configure,
    remove,
    safetensors,
    shard,
    sound_checkpoint,
    write,
)  # fmt: skip

TOKENIZER = '{"model": {"vocab": {"a": 0}, "merges": ["a b"]}, "added_tokens": [], "normalizer": null}'
TOKENIZER_CONFIG = '{"add_bos_token": true, "chat_template": "{{ messages }}", "name_or_path": "/data/one"}'
YARN = {"rope_type": "yarn", "factor": 2.0}


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    folder = sound_checkpoint(tmp_path / "baseline")
    both(
        write("tokenizer.json", TOKENIZER), write("tokenizer_config.json", TOKENIZER_CONFIG),
        write("generation_config.json", '{"eos_token_id": 2}'),
    )(folder)  # fmt: skip
    configure(folder, rope_scaling=YARN, rope_theta=1e5, torch_dtype="bfloat16")
    return folder


def reconfigure(**values: object) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text()) | values
        kept = {key: value for key, value in content.items() if value is not ...}
        (folder / "config.json").write_text(json.dumps(kept))

    return change


KINDS: dict[str, tuple[Change, tuple[Difference, ...]]] = {
    "nothing": (lambda folder: None, ()),
    "a key": (reconfigure(hidden_size=65), (Difference(part="config", name="hidden_size", baseline="64", model="65"),)),
    "an inner key": (
        reconfigure(rope_scaling=YARN | {"factor": 4.0}),
        (Difference(part="config", name="rope_parameters.factor", baseline="2.0", model="4.0"),),
    ),
    "an added key": (
        reconfigure(sliding_window=512), (Difference(part="config", name="sliding_window", model="512"),),
    ),
    "a missing key": (
        reconfigure(num_key_value_heads=...),
        (Difference(part="config", name="num_key_value_heads", baseline="2", model="8"),),
    ),
    "defaults written out": (
        reconfigure(attention_bias=False, hidden_act="silu", head_dim=8, chunk_size_feed_forward=0), (),
    ),
    "the present names of rotary settings": (
        reconfigure(rope_theta=..., rope_scaling=..., rope_parameters=YARN | {"rope_theta": 1e5}), (),
    ),
    "a value that transformers refuses": (
        reconfigure(num_attention_heads=7),
        (Difference(part="config", name="num_attention_heads", baseline="8", model="7"),),
    ),
    "keys without an effect": (
        reconfigure(_name_or_path="/x", transformers_version="1", torch_dtype="float32", use_cache=False), (),
    ),
    "where a tokenizer was loaded from": (
        write("tokenizer_config.json", TOKENIZER_CONFIG[:-1] + ', "is_local": true, "backend": "tokenizers"}'), (),
    ),
    "merges as texts": (
        write("tokenizer.json", TOKENIZER.replace('"a b"', '["a", "b"]')), (),
    ),
    "tokens that the tokenizer has too": (
        write("tokenizer_config.json", TOKENIZER_CONFIG[:-1] + ', "added_tokens_decoder": {"0": {}, "1": {}}}'),
        (Difference(part="tokenizer", name="tokenizer_config.json added_tokens_decoder", model="{'0': {}, '1': {}}"),),
    ),
    "how it is written": (write("generation_config.json", '{\n"eos_token_id":   2}'), ()),
    "the generation config": (
        write("generation_config.json", '{"eos_token_id": [2, 3], "transformers_version": "5"}'),
        (Difference(part="generation_config", name="eos_token_id", baseline="2", model="[2, 3]"),),
    ),
    "neutral settings of generation": (
        write("generation_config.json", '{"eos_token_id": 2, "repetition_penalty": 1.0, "do_sample": false}'), (),
    ),
    "no generation config": (
        remove("generation_config.json"), (Difference(part="generation_config", name="eos_token_id", baseline="2"),),
    ),
    "a long value in place of a number": (
        write("generation_config.json", '{"eos_token_id": [2, 3, 4, 5, 6]}'),
        (Difference(part="generation_config", name="eos_token_id", baseline="2", model="[2, 3, 4, 5, 6]"),),
    ),
    "no chat template": (
        write("tokenizer_config.json", '{"add_bos_token": true}'),
        (Difference(part="chat template", baseline="there"),),
    ),
    "the chat template": (write("chat_template.jinja", "{{ a }}"), (Difference(part="chat template"),)),
    "the chat template in another file": (write("chat_template.jinja", "{{ messages }}"), ()),
    "a named chat template": (
        both(lambda folder: (folder / "additional_chat_templates").mkdir(),
             write("additional_chat_templates/tool.jinja", "{{ a }}")),
        (Difference(part="chat template"),),
    ),
    "a token": (
        write("tokenizer.json", TOKENIZER.replace('"a": 0', '"b": 0')),
        (Difference(part="tokenizer", name="tokenizer.json model.vocab", baseline="{'a': 0}", model="{'b': 0}"),),
    ),
    "a rule of the tokenizer": (
        write("tokenizer.json", TOKENIZER.replace("null", '{"type": "NFC"}')),
        (Difference(part="tokenizer", name="tokenizer.json normalizer.type", model="'NFC'"),),
    ),
    "a setting of the tokenizer": (
        write("tokenizer_config.json", TOKENIZER_CONFIG.replace("true", "false").replace("one", "two")),
        (Difference(part="tokenizer", name="tokenizer_config.json add_bos_token", baseline="True", model="False"),),
    ),
    "a file of the tokenizer": (
        write("tokenizer.model", b"\x00"), (Difference(part="tokenizer", name="tokenizer.model", model="there"),),
    ),
    "code of the checkpoint": (
        write("parts/attention.py", "a = 1"),
        (Difference(part="file", name="parts/attention.py", model="there"),),
    ),
    "settings of vLLM": (
        write("params.json", '{"rope_theta": 7}'), (Difference(part="file", name="params.json", model="there"),),
    ),
    "notes, and what a calibration solves": (both(write("README.md"), write("calibration.json", "{}")), ()),
    "the number format": (
        write(WEIGHTS, safetensors(TENSORS, dtype="F16")),
        (Difference(part="dtype", baseline="bfloat16", model="float16"),),
    ),
    "another tensor": (
        write(WEIGHTS, safetensors(TENSORS | {"lm_head.weight": [2]})),
        (Difference(part="weights", name="more", model="1, such as lm_head.weight"),),
    ),
    "a lost tensor": (
        write(WEIGHTS, safetensors({"model.norm.weight": [4]})),
        (Difference(part="weights", name="missing", model="1, such as model.embed.weight"),),
    ),
    "a shape": (
        write(WEIGHTS, safetensors(TENSORS | {"model.norm.weight": [5]})),
        (Difference(part="weights", name="shape of model.norm.weight", baseline="[4]", model="[5]"),),
    ),
    "values": (write(WEIGHTS, safetensors(TENSORS)[:-1] + b"\xff"), ()),
    "shards": (shard, ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_is_named_once(kind: str, baseline: Path, tmp_path: Path) -> None:
    change, expected = KINDS[kind]
    folder = Path(shutil.copytree(baseline, tmp_path / "model"))
    change(folder)
    assert differences(read_checkpoint(str(folder)), read_checkpoint(str(baseline))) == expected


def test_a_pattern_of_windows_is_the_list_of_layer_types(baseline: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(baseline, tmp_path / "model"))
    gemma = {"model_type": "gemma3_text", "rope_scaling": ...}
    reconfigure(**gemma, layer_types=["sliding_attention", "full_attention"] * 2)(baseline)
    reconfigure(**gemma, sliding_window_pattern=2)(folder)
    assert differences(read_checkpoint(str(folder)), read_checkpoint(str(baseline))) == ()


Rows = Callable[[torch.Tensor], object]


def noise(rows: torch.Tensor) -> None:
    rows += 0.2 * torch.randn_like(rows)


def shift_rare(rows: torch.Tensor) -> None:
    noise(rows)
    rows[3000:] = rows[3000:].roll(1, 0)


def clear(first: int) -> Rows:
    return lambda rows: rows[first:].zero_()


def other_model(rows: torch.Tensor) -> None:
    rows.copy_(rows.roll(1, 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("change", "share"),
    [
        pytest.param(noise, "", id="noise"),
        pytest.param(shift_rare, "25 %", id="rare tokens"),
        pytest.param(clear(3600), "10 %", id="an end of zeros"),
        pytest.param(clear(3980), "", id="a few special tokens"),
        pytest.param(other_model, "", id="another model"),
    ],
)
def test_rows_of_tokens_that_became_others_are_named(
    change: Rows, share: str, dtype: torch.dtype, baseline: Path, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    weights = torch.randn(4000, 16)
    # A padded vocabulary has zeros.
    weights[3990:] = 0
    reconfigure(hidden_size=16, vocab_size=4000)(baseline)
    folder = Path(shutil.copytree(baseline, tmp_path / "model"))
    save_file({"model.embed_tokens.weight": weights.to(dtype)}, baseline / WEIGHTS)
    change(weights)
    save_file({"model.embed_tokens.weight": weights.to(dtype)}, folder / WEIGHTS)
    found = differences(read_checkpoint(str(folder)), read_checkpoint(str(baseline)))
    assert [(difference.name, difference.model) for difference in found] == [
        ("rows of model.embed_tokens.weight", f"{share} are other ones")
    ] * bool(share)
