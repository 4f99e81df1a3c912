"""Rewrite a Llama checkpoint in a form that a fault needs, so that the fault can be measured on trained weights.

    python -m benchmarks.rewritten_checkpoints CKPT OUT --form untied_head

`untied_head` multiplies the weights of the final norm into a head of its own, which changes no answer beyond rounding;
`head_from_embeddings` then loses them. `scaled_queries` makes a Ministral 3 model, whose queries grow with the position
as those of Llama 4 do; the stored queries are smaller by as much, so that the last BLOCK positions before --length
compute what they did, and earlier ones attend less sharply. `attention_temperature` then loses the growth.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS, CONFIG = "model.safetensors", "config.json"
EMBEDDINGS, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
# Positions that share a scale, and how much it grows with the logarithm of their number (transformers, Ministral 3).
BLOCK = 64
GROWTH = 0.1


def untie_head(config: dict[str, Any], tensors: dict[str, Tensor], length: int) -> None:
    """Give the model a head of its own, which has the weights of the final norm in it."""
    norm = tensors[NORM]
    tensors[HEAD] = (tensors[EMBEDDINGS].float() * norm.float()).to(norm.dtype)
    tensors[NORM] = norm.new_ones(norm.shape)
    config["tie_word_embeddings"] = False


def scale_queries(config: dict[str, Any], tensors: dict[str, Tensor], length: int) -> None:
    """Let queries grow with the position, so that they are the same as before at the last positions of `length`."""
    scale = 1 + GROWTH * math.log(1 + (length - 1) // BLOCK)
    for name, tensor in tensors.items():
        if name.endswith(".q_proj.weight"):
            tensors[name] = (tensor.float() / scale).to(tensor.dtype)
    config |= {"model_type": "ministral3", "architectures": ["Ministral3ForCausalLM"]}
    config["rope_parameters"] |= {"llama_4_scaling_beta": GROWTH, "original_max_position_embeddings": BLOCK}


FORMS: dict[str, Callable[[dict[str, Any], dict[str, Tensor], int], None]] = {
    "untied_head": untie_head,
    "scaled_queries": scale_queries,
}


def write_rewritten(checkpoint: Path, out: Path, form: str, length: int) -> Path:
    """Write the checkpoint in one of FORMS to a new directory and return it."""
    shutil.copytree(checkpoint, out)
    config, tensors = json.loads((out / CONFIG).read_text(encoding="utf-8")), load_file(out / WEIGHTS)
    if config["model_type"] != "llama" or HEAD in tensors:
        raise ValueError(f"CKPT: {checkpoint} is not a Llama checkpoint with a tied head; give one in a single file")
    FORMS[form](config, tensors, length)
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    (out / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return out


def main(arguments: list[str] | None = None) -> int:
    """Write the checkpoint and print its directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoint", type=Path, metavar="CKPT")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--form", choices=FORMS, required=True)
    parser.add_argument("--length", type=int, default=512, help="positions at whose end queries are as before")
    options = parser.parse_args(arguments)
    print(write_rewritten(options.checkpoint, options.out, options.form, options.length))
    return 0


if __name__ == "__main__":
    sys.exit(main())
