"""Changes of a checkpoint or of its execution that change no answer beyond rounding: a verdict about them is false."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file

Change = Callable[[Path], None]
WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"


def shard(folder: Path) -> None:
    """Store the weights in two files with an index."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    weight_map: dict[str, str] = {}
    for number, names in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    _write(folder / INDEX, {"metadata": {}, "weight_map": weight_map})


def store_in_float32(folder: Path) -> None:
    """Store the same values in four bytes each."""
    tensors = {name: tensor.float() for name, tensor in load_file(folder / WEIGHTS).items()}
    _replace_weights(folder, tensors)
    _configure(folder, dtype="float32")


def save_again(folder: Path) -> None:
    """Write the weight file again, with other metadata."""
    with safe_open(folder / WEIGHTS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in reversed(list(file.keys()))}
    _replace_weights(folder, tensors)


def store_tied_head(folder: Path) -> None:
    """Store a copy of the embeddings as the head of a model that ties them."""
    tensors = load_file(folder / WEIGHTS)
    if "lm_head.weight" in tensors:
        raise ValueError(f"{folder}: the head is not tied to the embeddings; leave out =tied_head_stored")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    _replace_weights(folder, tensors)


def save_tokenizer_again(folder: Path) -> None:
    """Load the tokenizer and write its files again."""
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def move_template(folder: Path) -> None:
    """Keep the chat template in tokenizer_config.json, as older versions did; nothing without a template."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        _write(folder / "tokenizer_config.json", settings | {"chat_template": file.read_text(encoding="utf-8")})
        file.unlink()


def use_old_rope_names(folder: Path) -> None:
    """State the rotary settings under the names of transformers 4."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters")
    if "full_attention" in rope:
        local = rope["sliding_attention"]["rope_theta"]
        config |= {"rope_theta": rope["full_attention"]["rope_theta"], "rope_local_base_freq": local}
    else:
        config |= {"rope_theta": rope["rope_theta"]}
    _write(folder / CONFIG, config)


def remove_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink(missing_ok=True)


def add_training_files(folder: Path) -> None:
    """Leave the files of a trainer beside the checkpoint."""
    _write(folder / "trainer_state.json", {"global_step": 1})


def rename(folder: Path) -> None:
    """Change nothing; the copy has another name."""


FILE_CHANGES: dict[str, Change] = {
    "renamed": rename,
    "sharded": shard,
    "saved_again": save_again,
    "stored_in_float32": store_in_float32,
    "tied_head_stored": store_tied_head,
    "tokenizer_saved_again": save_tokenizer_again,
    "template_moved": move_template,
    "old_rope_names": use_old_rope_names,
    "no_generation_config": remove_generation_config,
    "training_files": add_training_files,
}
# Options of pytest.
EXECUTIONS: dict[str, tuple[str, ...]] = {
    "float32": ("--dtype", "float32"),
    "eager": ("--attention", "eager"),
    "chunks_of_128": ("--prefill-chunk", "128"),
    "batches_of_4": ("--batch-size", "4"),
}


def write_changed(checkpoint: Path, out: Path, name: str) -> Path:
    """Write a copy of the checkpoint with one of FILE_CHANGES to a new directory and return it."""
    partial = out.with_name(f".{out.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(checkpoint, partial)
    FILE_CHANGES[name](partial)
    partial.rename(out)
    return out


def _replace_weights(folder: Path, tensors: dict[str, Any]) -> None:
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def _configure(folder: Path, **values: Any) -> None:
    _write(folder / CONFIG, json.loads((folder / CONFIG).read_text(encoding="utf-8")) | values)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
