"""A checkpoint directory is read without loading the model, and every defect has an error message of its own."""

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.checkpoints.checkpoint import claimed_length, read_checkpoint
from longctx.fixtures.checkpoints.fingerprint import check_texts
from longctx.fixtures.checkpoints.safetensors import CheckpointError, read_header
from tests.helpers.checkpoints import (
    WEIGHTS,
    WHOLE,
    Change,
    both,
    configure,
    remove,
    safetensors,
    shard,
    sound_checkpoint,
    write,
    write_step,
)

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sound_checkpoint(tmp_path / "step_1000")


def test_a_checkpoint_has_the_facts_of_its_directory(folder: Path) -> None:
    checkpoint = read_checkpoint(str(folder))
    assert (checkpoint.name, checkpoint.path) == ("step_1000", str(folder))
    assert (checkpoint.architecture, checkpoint.model_type, checkpoint.claimed_length) == (
        "LlamaForCausalLM",
        "llama",
        131072,
    )
    assert (checkpoint.dtype, checkpoint.parameters, checkpoint.weight_bytes) == ("bfloat16", 36, 72)
    assert checkpoint.config["hidden_size"] == 64
    assert checkpoint.calibration is None


def test_shards_are_one_checkpoint(folder: Path) -> None:
    shard(folder)
    checkpoint = read_checkpoint(str(folder))
    assert (checkpoint.parameters, checkpoint.weight_bytes) == (36, 72)


def test_a_calibration_beside_the_weights_is_read(folder: Path) -> None:
    (folder / "calibration.json").write_text('{"effective_length": 4096}')
    assert read_checkpoint(str(folder)).calibration == {"effective_length": 4096}


def claims(tokens: int, original: int | None = None, **rope: Any) -> dict[str, Any]:
    """Return a config that states a length and settings of its rotary embeddings."""
    more = {} if original is None else {"original_max_position_embeddings": original}
    return {"max_position_embeddings": tokens, "rope_scaling": rope | more}


LONGROPE: dict[str, Any] = {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}
LAYER_TYPES = {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}
CLAIMS: tuple[tuple[dict[str, Any], int | None], ...] = (
    ({"max_position_embeddings": 8192}, 8192), ({"n_positions": 1024}, 1024), ({}, None),
    ({"max_position_embeddings": None}, None), ({"text_config": {"max_position_embeddings": 4096}}, 4096),
    ({"max_position_embeddings": 512, "text_config": {}}, 512),
    # Llama 3.2: factor x original would be 262144; Phi 3; Qwen 2.5 with yarn as its card says; DeepSeek V3; Gemma 3.
    (claims(131072, 8192, rope_type="llama3", factor=32.0), 131072),
    (claims(131072, **LONGROPE) | {"original_max_position_embeddings": 4096}, 131072),
    (claims(32768, 32768, type="yarn", factor=4.0), 131072),
    (claims(163840, 4096, rope_type="yarn", factor=40), 163840),
    ({"text_config": {"max_position_embeddings": 131072, "rope_parameters": LAYER_TYPES}}, 131072),
    # yarn without the original length: transformers multiplies the stated one
    (claims(4096, rope_type="yarn", factor=4.0), 16384), (claims(4096, rope_type="yarn"), 4096),
    ({"text_config": {"max_position_embeddings": 8192, "rope_parameters": {"rope_type": "yarn", "factor": 2}}}, 16384),
    # vicuna-16k; dynamic scaling leaves the stated length as it is
    (claims(4096, type="linear") | {"max_sequence_length": 16384}, 16384),
    (claims(4096, type="dynamic", factor=4), 4096),
    # text models of InternVL, DeepSeek-VL2 and Qwen 2.5 Omni
    ({"llm_config": {"max_position_embeddings": 32768}}, 32768),
    ({"language_config": {"max_position_embeddings": 4096}}, 4096),
    ({"thinker_config": {"text_config": {"max_position_embeddings": 32768}, "audio_config": {}}}, 32768),
    # other names of the text model, beside other models
    ({"speech_config": {"n_layer": 2}, "llm_cfg": {"n_layer": 2, "n_positions": 2048}}, 2048),
    ({"vision_tower_config": {"num_hidden_layers": 1}, "decoder": {"num_layers": 9, "max_seq_length": 8192}}, 8192),
    ({"lm_config": {"text_config": {"context_length": 16384}, "num_hidden_layers": 4}}, 16384),
    ({"num_hidden_layers": 2, "n_positions": 64, "drafter": {"num_hidden_layers": 1, "n_positions": 9}}, 64),
    # Baichuan, and what transformers writes for no limit
    ({"model_max_length": 4096}, 4096), ({"model_max_length": 10**30, "n_ctx": 512}, 512),
)  # fmt: skip


@pytest.mark.parametrize(("config", "tokens"), CLAIMS)
def test_the_claimed_length_is_the_extended_one(config: dict[str, Any], tokens: int | None) -> None:
    assert claimed_length(config) == tokens


NO_WEIGHTS = remove(WEIGHTS)


def named(name: str) -> Change:
    return write(WEIGHTS, safetensors({name: [4]}))


def header(**places: tuple[int, int]) -> Change:
    """Return a change to weights with these first and last bytes."""
    tensors = {}
    for name, (a, b) in places.items():
        tensors[name] = {"dtype": "U8", "shape": [b - a], "data_offsets": [a, b]}
    text = json.dumps(tensors)
    end = max(end for _, end in places.values())
    return write(WEIGHTS, struct.pack("<Q", len(text)) + text.encode() + bytes(end))


def bare(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


BROKEN: dict[str, tuple[Change, str]] = {
    "no config": (remove("config.json"), "config.json: missing; copy it from the base model"),
    "a folder of checkpoints": (
        both(bare, write("checkpoint-9/config.json", "{}"), write("checkpoint-9/model.safetensors", WHOLE)),
        "config.json: missing; give one of its checkpoints, such as .*/checkpoint-9",
    ),
    "a folder of training that has a checkpoint far below": (
        both(bare, write("actor/huggingface/config.json", "{}"), write("actor/huggingface/model.safetensors", WHOLE)),
        "config.json: missing; give one of its checkpoints, such as .*/actor/huggingface",
    ),
    "an empty folder": (bare, "is empty; wait until the checkpoint is saved"),
    "nothing but a note": (
        both(bare, write("README.md")),
        "step_1000: no checkpoint: it has neither config.json nor w",
    ),
    "no json": (write("config.json", "{'a': 1}"), "config.json: no valid JSON .*; copy it again"),
    "no object": (write("config.json", "[]"), "config.json: holds no JSON object"),
    "a pointer for a config": (write("config.json", POINTER), "config.json: is a git-lfs pointer.*; run git lfs pull"),
    "no tokenizer": (remove("tokenizer.json"), "no tokenizer .*; copy the tokenizer files of the base model there"),
    "no weights": (NO_WEIGHTS, "no weights; model.safetensors or model.safetensors.index.json with its shards"),
    "pickled": (both(NO_WEIGHTS, write("pytorch_model.bin")), "pytorch_model.bin: pickled .*; convert to safetensors"),
    "pickled pth": (both(NO_WEIGHTS, write("consolidated.00.pth")), "consolidated.00.pth: pickled"),
    "trainer state is no model": (both(NO_WEIGHTS, write("training_args.bin")), "step_1000: no weights"),
    "a missing shard": (
        both(shard, remove("model-00002-of-00002.safetensors")),
        "model-00002-of-00002.safetensors: missing, but named in model.safetensors.index.json; copy all 2 shards",
    ),
    "a shard of another save": (
        both(shard, write("model-00002-of-00002.safetensors", safetensors({"other": [2]}))),
        "model-00002-of-00002.safetensors: lacks model.norm.weight, which .* lists there",
    ),
    "an empty index": (both(NO_WEIGHTS, write("model.safetensors.index.json", "{}")), "has no weight_map"),
    "shards without their index": (
        both(shard, remove("model.safetensors.index.json")),
        "model-00001-of-00002.safetensors: neither model.safetensors nor named in .*, or copy the index of",
    ),
    "truncated in the weights": (write(WEIGHTS, WHOLE[:-5]), "is no complete .*file not fully covered.*; copy"),
    "truncated in the header": (write(WEIGHTS, WHOLE[:40]), "invalid header length.*, or wait until it is saved"),
    "longer than it says": (write(WEIGHTS, WHOLE + b"more"), "file not fully covered"),
    "an empty file": (write(WEIGHTS), "model.safetensors: is empty"),
    "a pointer": (write(WEIGHTS, POINTER), "is a git-lfs pointer, not the file itself; run git lfs pull"),
    "noise": (write(WEIGHTS, b"\xff" * 100), "is no complete safetensors file .header too large"),
    "a damaged header": (write(WEIGHTS, WHOLE.replace(b'"shape"', b'"shbpe"')), "missing field `shape`"),
    "tensors of the same bytes": (header(a=(0, 4), b=(0, 4)), "invalid offset"),
    "bytes of no tensor": (header(a=(0, 4), b=(8, 12)), "invalid offset"),
    "bytes before the first tensor": (header(a=(4, 8)), "invalid offset"),
    "tensors that overlap": (header(a=(0, 8), b=(4, 8), c=(8, 8)), "invalid offset"),
    "a list of facts": (write(WEIGHTS, WHOLE.replace(b'{"format": "pt"}', b'["format", "pt"]')), "expected a map"),
    "a number for a fact": (write(WEIGHTS, WHOLE.replace(b'"pt"', b"  10")), "expected a string"),
    "an unfinished download": (write("model.safetensors.aria2"), "s.aria2: belongs to a download that has not ended"),
    "an adapter far below": (
        both(bare, write("checkpoint-9/adapter_config.json", "{}")),
        "config.json: missing; give one .*/checkpoint-9",
    ),
    "shape and bytes disagree": (write(WEIGHTS, WHOLE.replace(b"[8, 4]", b"[8, 5]")), "invalid shape"),
    "no tensors": (write(WEIGHTS, safetensors({})), "holds no tensors"),
    "an adapter": (both(NO_WEIGHTS, write("adapter_config.json", "{}")), "this is an adapter; merge it into its base"),
    "an adapter beside weights": (write("adapter_config.json", "{}"), "an adapter beside the weights of a model"),
    "compiled": (named("_orig_mod.model.norm.weight"), "'_orig_mod.'; save the model inside torch.compile"),
    "compiled, layer by layer": (named("model.layers.0._orig_mod.x"), "named 'model.layers.0._orig_mod.x', with"),
    "wrapped": (named("module.model.norm.weight"), "named 'module.model.norm.weight', .*; save the unwrapped model"),
    "sharded": (named("model.layers.0._fsdp_wrapped_module.x"), "'_fsdp_wrapped_module.'; save a full state dict"),
    "recomputed": (named("layers.0._checkpoint_wrapped_module.x"), "save a full state dict, as accelerator"),
    "with an adapter": (named("base_model.model.lm_head.weight"), "'base_model.model.'; merge the adapter .* before"),
    "with an adapter's layers": (named("model.q_proj.base_layer.weight"), "'base_layer.'; merge the adapter"),
    "own code": (
        lambda folder: configure(folder, model_type="mine", auto_map={"AutoModelForCausalLM": "m.M"}),
        "model_type 'mine' runs code of the checkpoint .* use --trust-remote-code",
    ),
}


VERL = "python -m verl.model_merger merge --backend"
OTHER_FORMATS = {
    "model-q4.gguf": "is read by llama.cpp and not by this suite; start a server with it, .* --base-url",
    "gguf/model-q4.gguf": "is read by llama.cpp", "model.onnx": "ONNX Runtime",
    ".metadata": "belongs to distributed training shards; run longctx convert .*step_1000 OUTPUT --like BASE",
    "pytorch_model_fsdp_0/__0_0.distcp": "longctx convert .*/pytorch_model_fsdp_0 OUTPUT",
    "zero_to_fp32.py": "DeepSpeed ZeRO; merge them with zero_to_fp32.py CHECKPOINT OUTPUT",
    "global_step9/mp_rank_00_model_states.pt": "DeepSpeed ZeRO", "zero_pp_rank_0_mp_rank_00_optim_states.pt": "ZeRO",
    "actor/model_world_size_8_rank_0.pt": rf"{VERL} fsdp --local_dir \S+/step_1000/actor --target_dir OUTPUT",
    "actor/dist_ckpt/common.pt": rf"{VERL} megatron --local_dir \S+/step_1000/actor --target_dir OUTPUT",
    "mp_rank_00/model_optim_rng.pt": "Megatron; name a command that exports it with --convert", "common.pt": "Megatron",
    "model.embedding.weight/.zarray": "Megatron", "llama.nemo": "NeMo", "context/model.yaml": "NeMo",
    "manifest.ocdbt": "Orbax",
    "params.json": "belongs to another format", "ggml-model-q4_0.bin": "is read by llama.cpp",
    "checkpoint_metadata.json": "nanotron", "model.safetensors.part": "a download that has not ended; wait for it",
    ".cache/huggingface/download/a.incomplete": "a download", "model-00001-of-00002.safetensors.aria2": "a download",
}  # fmt: skip


@pytest.mark.parametrize("has_config", [True, False])
@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_a_folder_of_another_format_is_refused_with_what_to_do(name: str, has_config: bool, folder: Path) -> None:
    change = both(NO_WEIGHTS if has_config else bare, write(name), write("optimizer.pt"), write("latest", "x"))
    change(folder)
    with pytest.raises(CheckpointError, match=rf"/{re.escape(name)}: .*{OTHER_FORMATS[name]}"):
        read_checkpoint(str(folder))


def test_the_folder_that_verl_writes_beside_its_shards_names_the_merger(folder: Path) -> None:
    inner = sound_checkpoint(folder / "huggingface")
    both(NO_WEIGHTS, write("../model_world_size_2_rank_1.pt"))(inner)
    with pytest.raises(CheckpointError, match=rf"{VERL} fsdp --local_dir {folder} --target_dir OUTPUT"):
        read_checkpoint(str(inner))


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_checkpoint_is_refused_in_one_line(kind: str, folder: Path) -> None:
    change, message = BROKEN[kind]
    change(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_on_the_hub_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory 'org/model'; models of the hub are read from"):
        read_checkpoint("org/model")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file; give the directory"):
        read_checkpoint(str(tmp_path / "model.safetensors"))


def test_own_code_needs_the_option_except_for_built_in_models(folder: Path) -> None:
    configure(folder, auto_map={"AutoModelForCausalLM": "m.M"})
    assert read_checkpoint(str(folder)).model_type == "llama"
    configure(folder, model_type="mine", auto_map={"AutoModelForCausalLM": "m.M"})
    assert read_checkpoint(str(folder), trust_remote_code=True).model_type == "mine"


def test_complete_weights_beside_training_shards_are_a_checkpoint(folder: Path) -> None:
    both(write("state/__0_0.distcp"), write("zero_to_fp32.py"), write("optimizer.pt"))(folder)
    assert read_checkpoint(str(folder)).parameters == 36


@given(cut=st.integers(0, len(WHOLE) - 1))
def test_a_truncated_file_is_never_accepted(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    path.write_bytes(WHOLE[:cut])
    with pytest.raises(CheckpointError):
        read_header(path)


def test_links_into_the_blobs_of_a_hub_cache_are_read(tmp_path: Path) -> None:
    cache = tmp_path / "models--org--name"
    folder = write_step(cache / "snapshots", 1)
    expected = read_checkpoint(str(folder))
    (cache / "blobs").mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(cache / "blobs" / f"{number:064x}")
        file.symlink_to(Path("..", "..", "blobs", f"{number:064x}"))
    assert read_checkpoint(str(folder)).fingerprint == expected.fingerprint
    (tmp_path / "link").symlink_to(folder)
    check_texts(tmp_path / "link")
