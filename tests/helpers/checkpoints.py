"""Checkpoint directories with few weights, and changes that break them."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
WEIGHTS = "model.safetensors"
Change = Callable[[Path], object]


def safetensors(shapes: dict[str, list[int]], *, dtype: str = "BF16") -> bytes:
    """Return a safetensors file whose weights are the bytes 0, 1, 2, ..., two bytes each."""
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


WHOLE = safetensors(TENSORS)


def sound_checkpoint(path: Path) -> Path:
    """Write a valid checkpoint into a new directory and return it."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(safetensors(TENSORS))
    return path


def configure(folder: Path, **values: Any) -> None:
    """Write the config with some other values."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, **values}))


def edit_json(path: Path, **values: Any) -> None:
    """Change these values of a file, and keep the others."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def write(name: str, content: bytes | str = b"") -> Change:
    """Return a change that writes a file."""
    data = content.encode() if isinstance(content, str) else content

    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return change


def remove(name: str) -> Change:
    """Return a change that removes a file."""
    return lambda folder: (folder / name).unlink()


def shard(folder: Path) -> None:
    """Move the weights into two files with an index."""
    (folder / WEIGHTS).unlink()
    for name, data in files(1).items():
        if name.startswith("model"):
            (folder / name).write_bytes(data)


def both(*changes: Change) -> Change:
    """Return all changes, in their order, as one."""
    return lambda folder: [change(folder) for change in changes]


def files(step: int) -> dict[str, bytes]:
    """Return the files of a sharded checkpoint in the order in which training writes them: config, shards, index."""
    shards = {name: f"model-0000{number}-of-00002.safetensors" for number, name in enumerate(TENSORS, start=1)}
    return {
        "config.json": json.dumps(CONFIG | {"step": step}).encode(),
        "tokenizer.json": b"{}",
        **{shards[name]: safetensors({name: shape}) for name, shape in TENSORS.items()},
        "model.safetensors.index.json": json.dumps({"weight_map": shards}).encode(),
    }


def write_step(folder: Path, step: int) -> Path:
    """Write the sharded checkpoint of a step below `folder` and return its directory."""
    directory = folder / f"step-{step}"
    directory.mkdir(parents=True)
    for name, data in files(step).items():
        (directory / name).write_bytes(data)
    return directory


def write_steps(folder: Path, *steps: int) -> None:
    """Write the checkpoints of several steps."""
    for step in steps:
        write_step(folder, step)
