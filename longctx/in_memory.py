"""A model of transformers that is in memory, as the checkpoint and the engine of a run."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fixtures.checkpoints.checkpoint import Checkpoint, claimed_length
from fixtures.engines import Engine
from fixtures.engines.hf.engine import HfEngine
from fixtures.engines.hf.loading import Loaded

# Of every weight, evenly spaced; training changes all of them.
SAMPLED_ELEMENTS = 4096


def save_description(model: Any, tokenizer: Any, folder: Path, *, name: str) -> Checkpoint:
    """Save config and tokenizer of a model, from which prompts are made, and return its checkpoint record.

    Raises TypeError for a model or a tokenizer that is none of transformers.
    """
    if not hasattr(model, "config") or not hasattr(model, "generate"):
        raise TypeError(f"model: {type(model).__name__} is no causal language model of transformers, and no path")
    if not hasattr(tokenizer, "save_pretrained"):
        raise TypeError("tokenizer: a model in memory needs its tokenizer, as AutoTokenizer returns it")
    folder.mkdir()
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = list(model.parameters())
    config = model.config.to_dict()
    return Checkpoint(
        name=name,
        path=str(folder),
        architecture=type(model).__name__,
        model_type=str(config.get("model_type", "unknown")),
        claimed_length=claimed_length(config),
        dtype=str(model.dtype).removeprefix("torch."),
        parameters=sum(weight.numel() for weight in weights),
        weight_bytes=sum(weight.numel() * weight.element_size() for weight in weights),
        fingerprint=_fingerprint(model, folder),
        config=config,
        calibration=None,
    )


def as_loaded(model: Any) -> dict[str, Any]:
    """Return the options that describe how the model was loaded."""
    attention = getattr(model.config.get_text_config(decoder=True), "_attn_implementation", None)
    dtype = str(model.dtype).removeprefix("torch.")
    return {"device": str(model.device), "dtype": dtype, "attention": attention or "auto"}


def engine_of(model: Any, tokenizer: Any, checkpoint: Checkpoint, stack: ExitStack, settings: dict[str, Any]) -> Engine:
    """Return the engine of a model, in evaluation mode until the stack ends."""
    stack.callback(model.train, model.training)
    model.eval()
    described = as_loaded(model)
    return HfEngine(
        Loaded(model=model, device=model.device, dtype=described["dtype"], attention=described["attention"]),
        checkpoint,
        tokenizer=tokenizer,
        batch_size=settings["batch_size"],
        prefill_chunk=settings["prefill_chunk"],
        thinking_tokens=settings["thinking_tokens"],
    )


def _fingerprint(model: Any, folder: Path) -> str:
    """Return a hash of config, tokenizer and a sample of every weight."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(folder.iterdir()):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    for name, weight in model.named_parameters():
        flat = weight.detach().flatten()
        sample = flat[:: max(1, flat.numel() // SAMPLED_ELEMENTS)].float().cpu()
        digest.update(f"{name} {[*weight.shape]}\n".encode() + sample.numpy().tobytes())
    return digest.hexdigest()
