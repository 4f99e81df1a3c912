"""A checkpoint directory is understood without loading it, and every way it can be wrong has its own line."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import memory
from fixtures.checkpoint import Checkpoint, CheckpointError, claimed_length, inspect, peak_memory_bytes
from fixtures.weights import READ_LIMIT, Tensor, read_header, sample_blocks

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
}
TENSORS = {"model.embed.weight": [8, 4], "model.norm.weight": [4]}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n"
Change = Callable[[Path], object]


def safetensors(shapes: dict[str, list[int]], *, dtype: str = "BF16") -> bytes:
    """A file with the bytes 0, 1, 2, ... as weights of two bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(i % 256 for i in range(end))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound checkpoint."""
    path = tmp_path / "step_1000"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(safetensors(TENSORS))
    return path


def configure(folder: Path, **values: Any) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **values}))


def shard(folder: Path) -> None:
    """The same weights in two files with an index."""
    (folder / "model.safetensors").unlink()
    named = {}
    for at, (name, shape) in enumerate(TENSORS.items(), start=1):
        named[name] = f"model-0000{at}-of-00002.safetensors"
        (folder / named[name]).write_bytes(safetensors({name: shape}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": named}))


def test_a_checkpoint_says_what_it_is(folder: Path) -> None:
    found = inspect(str(folder))
    assert (found.name, found.path) == ("step_1000", str(folder))
    assert (found.architecture, found.model_type, found.claimed_length) == ("LlamaForCausalLM", "llama", 131072)
    assert (found.dtype, found.parameters, found.weight_bytes) == ("bfloat16", 36, 72)
    assert found.config["hidden_size"] == 64
    assert found.calibration is None


def test_shards_are_one_checkpoint(folder: Path) -> None:
    shard(folder)
    found = inspect(str(folder))
    assert (found.parameters, found.weight_bytes) == (36, 72)


def test_a_calibration_beside_the_weights_is_read(folder: Path) -> None:
    (folder / "calibration.json").write_text('{"effective_length": 4096}')
    assert inspect(str(folder)).calibration == {"effective_length": 4096}


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"n_positions": 1024}, 1024),
        ({}, None),
        ({"max_position_embeddings": None}, None),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": 512, "text_config": {}}, 512),
        # Llama 3.2: factor x original would be 262144.
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        # Phi 3
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]},
            },
            131072,
        ),
        # Qwen 2.5, yarn switched on as its card says
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        # DeepSeek V3
        (
            {
                "max_position_embeddings": 163840,
                "rope_parameters": {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        # Gemma 3
        (
            {
                "text_config": {
                    "max_position_embeddings": 131072,
                    "rope_parameters": {
                        "full_attention": {"rope_type": "linear", "factor": 8.0},
                        "sliding_attention": {"rope_type": "default"},
                    },
                }
            },
            131072,
        ),
    ],
)
def test_the_claimed_length_is_the_extended_one(config: dict[str, Any], tokens: int | None) -> None:
    assert claimed_length(config) == tokens


def write(name: str, content: bytes | str = b"") -> Change:
    data = content.encode() if isinstance(content, str) else content

    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)

    return change


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


WEIGHTS = "model.safetensors"
NO_WEIGHTS = remove(WEIGHTS)
WHOLE = safetensors(TENSORS)
BROKEN: dict[str, tuple[Change, str]] = {
    "no config": (remove("config.json"), "config.json: missing; copy it from the base model"),
    "a folder of checkpoints": (
        both(remove("config.json"), write("checkpoint-9/config.json", "{}")),
        "config.json: missing; give one of its checkpoints, as .*/checkpoint-9",
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
        "model-00002-of-00002.safetensors: lacks model.norm.weight, which .* says is there",
    ),
    "an empty index": (both(NO_WEIGHTS, write("model.safetensors.index.json", "{}")), "has no weight_map"),
    "shards without their index": (
        both(shard, remove("model.safetensors.index.json")),
        "model-00001-of-00002.safetensors: neither model.safetensors nor named in .*; copy the index too",
    ),
    "cut in the weights": (write(WEIGHTS, WHOLE[:-5]), rf"is cut off, {len(WHOLE) - 5} of {len(WHOLE)} bytes"),
    "cut in the header": (write(WEIGHTS, WHOLE[:40]), "model.safetensors: is cut off, 40 of"),
    "longer than it says": (write(WEIGHTS, WHOLE + b"more"), "has 4 bytes more than its header says"),
    "an empty file": (write(WEIGHTS), "model.safetensors: the file is empty"),
    "a pickle": (
        write(WEIGHTS, b"\x80\x04\x95\x0a" + b"\0" * 40),
        "is a pickle .* where you trust it, save it as safetensors",
    ),
    "a zip": (write(WEIGHTS, b"PK\x03\x04" + b"\0" * 40), "is a pickle under another name"),
    "a pointer": (write(WEIGHTS, POINTER), "is a git-lfs pointer, not the file itself; run git lfs pull"),
    "a web page": (write(WEIGHTS, "\n<!DOCTYPE html><html>"), "is a web page, not the file itself; download it again"),
    "noise": (write(WEIGHTS, b"\xff" * 100), "no safetensors file: its header is unreadable"),
    "a damaged header": (write(WEIGHTS, WHOLE.replace(b'"shape"', b'"shbpe"')), "its header is damaged"),
    "shape and bytes disagree": (write(WEIGHTS, WHOLE.replace(b"[8, 4]", b"[8, 5]")), "bytes of model.embed.weight"),
    "no tensors": (write(WEIGHTS, safetensors({})), "holds no tensors"),
    "an adapter": (both(NO_WEIGHTS, write("adapter_config.json", "{}")), "this is an adapter; merge it into its base"),
    "an adapter beside weights": (write("adapter_config.json", "{}"), "this is an adapter; merge it into its base"),
    "distributed": (
        both(NO_WEIGHTS, write("__0_0.distcp"), write(".metadata")),
        "distributed training shards; merge them with accelerate merge-weights",
    ),
    "distributed, one level down": (
        both(NO_WEIGHTS, remove("config.json"), write("pytorch_model_fsdp_0/__0_0.distcp")),
        "merge them with accelerate merge-weights .*/pytorch_model_fsdp_0 OUTPUT",
    ),
    "zero": (both(NO_WEIGHTS, write("zero_to_fp32.py")), "DeepSpeed ZeRO shards; merge them with python"),
    "compiled": (
        write(WEIGHTS, safetensors({"_orig_mod.model.norm.weight": [4]})),
        "named '_orig_mod.model.norm.weight', .*; save the model inside torch.compile",
    ),
    "wrapped": (
        write(WEIGHTS, safetensors({"module.model.norm.weight": [4]})),
        "named 'module.model.norm.weight', .*; save the unwrapped model",
    ),
    "own code": (
        lambda folder: configure(folder, model_type="mine", auto_map={"AutoModelForCausalLM": "m.M"}),
        "model_type 'mine' runs code of the checkpoint .* use --trust-remote-code",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_checkpoint_is_told_in_one_line(kind: str, folder: Path) -> None:
    change, said = BROKEN[kind]
    change(folder)
    with pytest.raises(CheckpointError, match=said) as caught:
        inspect(str(folder))
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_on_the_hub_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such directory 'org/model'; hub names are not downloaded, give a"):
        inspect("org/model")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file; give the directory"):
        inspect(str(tmp_path / "model.safetensors"))


def test_own_code_is_allowed_by_the_option_and_not_needed_for_built_in_models(folder: Path) -> None:
    configure(folder, auto_map={"AutoModelForCausalLM": "m.M"})
    assert inspect(str(folder)).model_type == "llama"
    configure(folder, model_type="mine", auto_map={"AutoModelForCausalLM": "m.M"})
    assert inspect(str(folder), trust_remote_code=True).model_type == "mine"


def test_weights_saved_whole_beside_training_shards_are_a_checkpoint(folder: Path) -> None:
    both(write("state/__0_0.distcp"), write("zero_to_fp32.py"), write("optimizer.pt"))(folder)
    assert inspect(str(folder)).parameters == 36


@given(cut=st.integers(0, len(WHOLE) - 1))
def test_a_cut_file_is_never_taken_for_a_whole_one(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.safetensors"
    path.write_bytes(WHOLE[:cut])
    with pytest.raises(CheckpointError):
        read_header(path)


@given(at=st.integers(0, 71))
def test_the_fingerprint_changes_with_any_weight(at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "fingerprint"
    folder.mkdir(exist_ok=True)
    both(write("config.json", json.dumps(CONFIG)), write("tokenizer.json", "{}"), write(WEIGHTS, WHOLE))(folder)
    before = inspect(str(folder)).fingerprint
    changed = bytearray(WHOLE)
    changed[len(WHOLE) - 1 - at] ^= 1
    (folder / WEIGHTS).write_bytes(changed)
    assert inspect(str(folder)).fingerprint != before


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: configure(folder, rope_theta=5e5),
        write("tokenizer.json", '{"a": 1}'),
        write("generation_config.json", '{"eos_token_id": 7}'),
        write("chat_template.jinja", "{{ messages }}"),
        write(WEIGHTS, safetensors(dict(reversed(TENSORS.items())))),
    ],
    ids=["config", "tokenizer", "generation config", "chat template", "weights"],
)
def test_the_fingerprint_changes_with_all_that_answers_depend_on(change: Change, folder: Path) -> None:
    before = inspect(str(folder)).fingerprint
    change(folder)
    assert inspect(str(folder)).fingerprint != before


def test_the_fingerprint_is_that_of_the_content_wherever_it_stands(folder: Path) -> None:
    before = inspect(str(folder)).fingerprint
    (folder / "trainer_state.json").write_text("{}")
    assert inspect(str(folder.rename(folder.parent / "step_2000"))).fingerprint == before


def sparse(path: Path, elements: int, tensors: int) -> None:
    """A large file of zeros that takes no room on disk."""
    entries = {
        f"layer.{at}": {
            "dtype": "BF16",
            "shape": [elements],
            "data_offsets": [2 * elements * at, 2 * elements * (at + 1)],
        }
        for at in range(tensors)
    }
    text = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 2 * elements * tensors)


def bytes_read() -> int:
    """What this process has asked of read(), by the kernel's count."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel counts reads on Linux only")
def test_no_more_than_64_mib_of_a_weight_file_are_read(folder: Path) -> None:
    sparse(folder / WEIGHTS, elements=2**27, tensors=12)
    before = bytes_read()
    found = inspect(str(folder))
    # Configs, and the sources in which built-in models are looked up, are read beside it.
    assert READ_LIMIT / 2 < bytes_read() - before < READ_LIMIT + 2**16
    assert found.parameters == 12 * 2**27


def test_a_large_tensor_is_sampled_from_its_first_byte_to_its_last(folder: Path) -> None:
    sparse(folder / WEIGHTS, elements=2**26, tensors=2)
    seen = {inspect(str(folder)).fingerprint}
    for name, tensor in read_header(folder / WEIGHTS).items():
        for at in (tensor.start, tensor.end - 2, (tensor.start + tensor.end) // 2):
            with (folder / WEIGHTS).open("r+b") as file:
                # A training step moves nearly every weight; 32 MiB stand for it here.
                begin = max(tensor.start, min(at, tensor.end - 2**25))
                file.seek(begin)
                file.write(b"\x01" * 2**25)
            seen.add(inspect(str(folder)).fingerprint)
        assert name.startswith("layer.")
    assert len(seen) == 7


@given(sizes=st.lists(st.integers(0, 2**34), min_size=1, max_size=400), header=st.integers(10, 2**20))
def test_samples_stay_in_their_tensors_and_within_the_limit(sizes: list[int], header: int) -> None:
    tensors: dict[str, Tensor] = {}
    start = header
    for at, size in enumerate(sizes):
        tensors[str(at)] = Tensor(dtype="U8", shape=(size,), start=start, end=start + size)
        start += size
    blocks = list(sample_blocks(tensors))
    assert sum(length for _, length in blocks) + header <= READ_LIMIT
    assert all(begin >= 0 and begin + length <= start for begin, length in blocks)
    if start + header <= READ_LIMIT - 512:
        assert sum(length for _, length in blocks) == start
    for tensor in tensors.values():
        inside = [b for b in blocks if tensor.start <= b[0] and b[0] + b[1] <= tensor.end and b[1]]
        assert inside or tensor.start == tensor.end


def with_config(folder: Path, **values: Any) -> Checkpoint:
    configure(folder, **values)
    return inspect(str(folder))


@pytest.mark.parametrize(
    ("values", "tokens_times_elements"),
    [
        ({}, 4 * 1000 * 2 * 2 * 8),
        ({"head_dim": 32}, 4 * 1000 * 2 * 2 * 32),
        ({"num_key_value_heads": None}, 4 * 1000 * 2 * 8 * 8),
        ({"sliding_window": 100}, 4 * 99 * 2 * 2 * 8),
        ({"sliding_window": 5000}, 4 * 1000 * 2 * 2 * 8),
        ({"sliding_window": 100, "use_sliding_window": False}, 4 * 1000 * 2 * 2 * 8),
        ({"sliding_window": 100, "max_window_layers": 3}, 3099 * 2 * 2 * 8),
        ({"sliding_window": 100, "sliding_window_pattern": 2}, 2198 * 2 * 2 * 8),
        ({"sliding_window": 100, "model_type": "gemma2"}, 2198 * 2 * 2 * 8),
        ({"sliding_window": 100, "layer_types": ["sliding_attention"] * 3 + ["full_attention"]}, 1297 * 2 * 2 * 8),
        ({"attention_chunk_size": 10, "layer_types": ["chunked_attention", "full_attention"] * 2}, 2018 * 2 * 2 * 8),
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 1000 * 2 * 2 * 8),
        ({"num_kv_shared_layers": 3}, 1000 * 2 * 2 * 8),
        (
            {"model_type": "bamba", "mamba_d_state": 0, "layers_block_type": ["mamba", "attention"] * 2},
            2000 * 2 * 2 * 8,
        ),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 4 * 1000 * 576),
        ({"num_attention_heads": None}, 0),
        ({"text_config": {"num_hidden_layers": 2}}, 2 * 1000 * 2 * 2 * 8),
    ],
)
def test_the_cache_is_estimated_from_the_layers(
    values: dict[str, Any], tokens_times_elements: int, folder: Path
) -> None:
    checkpoint = with_config(folder, **values)
    assert peak_memory_bytes(checkpoint, 1000, "auto").cache == 2 * tokens_times_elements


@pytest.mark.parametrize(
    ("options", "larger"),
    [
        ({"attention": "eager"}, {"attention": "eager", "prefill": "whole"}),
        ({"attention": "flash_attention_2"}, {"attention": "sdpa"}),
        ({"attention": "sdpa"}, {"attention": "eager", "prefill": "4096"}),
    ],
)
def test_reading_takes_what_its_path_needs(options: dict[str, Any], larger: dict[str, Any], folder: Path) -> None:
    checkpoint = inspect(str(folder))
    less, more = (peak_memory_bytes(checkpoint, 131072, **each) for each in (options, larger))
    assert less.cache == more.cache
    assert 2 * less.activations < more.activations


def test_auto_takes_flash_attention_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    checkpoint = inspect(str(folder))
    without = peak_memory_bytes(checkpoint, 131072)
    monkeypatch.setattr(memory, "version", lambda _: "2.8.3")
    assert peak_memory_bytes(checkpoint, 131072).activations < without.activations / 2
    others: tuple[dict[str, Any], ...] = ({"device": "cpu"}, {"dtype": "float32", "attention": "sdpa"})
    for other in others:
        assert peak_memory_bytes(checkpoint, 131072, **other).activations >= without.activations


def test_a_published_config_may_leave_out_what_its_class_fills_in(folder: Path) -> None:
    """Gemma 3's configs name no heads; 5 of 6 layers have a window."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 6, "sliding_window": 1024}
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    cache = peak_memory_bytes(inspect(str(folder)), 10000).cache
    assert cache == (10000 + 5 * 1023) * 2 * 4 * 256 * 2


def test_memory_grows_with_dtype_batch_and_length(folder: Path) -> None:
    checkpoint = inspect(str(folder))
    base = peak_memory_bytes(checkpoint, 1000, "bfloat16", 1)
    assert base.total == base.weights + base.cache + base.activations
    assert base.weights == checkpoint.weight_bytes
    assert peak_memory_bytes(checkpoint, 1000, "float32", 1).total == 2 * base.total
    doubled = peak_memory_bytes(checkpoint, 1000, "bfloat16", 2)
    assert (doubled.weights, doubled.cache, doubled.activations) == (base.weights, 2 * base.cache, 2 * base.activations)
    assert peak_memory_bytes(checkpoint, 2000, "bfloat16", 1).cache == 2 * base.cache
