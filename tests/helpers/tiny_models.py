"""Random checkpoints of two layers, one for every kind of attention, and tokenizers for them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GraniteMoeHybridConfig,
    JambaConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MiniMaxConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    RwkvConfig,
    xLSTMConfig,
)

from longctx.fixtures.records import Prompt
from tests.helpers.checkpoints import edit_json

VOCABULARY = 320
WINDOW = 32
LONGROPE_TURN = 95
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
    # Wide enough that greedy answers of random weights do not repeat one token.
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**SIZES),
    "yarn": LlamaConfig(**SIZES, rope_parameters=YARN),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=WINDOW),
    "gemma2": Gemma2Config(**SIZES, head_dim=16, sliding_window=WINDOW),
    "gemma3": Gemma3TextConfig(
        **SIZES, head_dim=16, sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"]
    ),
    "longrope": Phi3Config(**SIZES, original_max_position_embeddings=LONGROPE_TURN, rope_parameters=LONGROPE),
    "jamba": JambaConfig(
        **SIZES,
        num_experts=2,
        num_experts_per_tok=1,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_d_state=8,
        use_mamba_kernels=False,
    ),
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3),
}
# Attention beside recurrent states.
STATES: dict[str, Any] = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16}
HYBRIDS: dict[str, Any] = {
    "lfm2": Lfm2Config(**SIZES, layer_types=["conv", "full_attention"], conv_L_cache=3),
    "granite_hybrid": GraniteMoeHybridConfig(
        **SIZES,
        **STATES,
        layer_types=["linear_attention", "full_attention"],
        num_local_experts=0,
        shared_intermediate_size=64,
    ),
    "bamba": BambaConfig(**SIZES, **STATES, attn_layer_indices=[1]),
}
# States of their own instead of keys and values.
RECURRENT: dict[str, Any] = {
    "rwkv": RwkvConfig(vocab_size=VOCABULARY, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2),
    "xlstm": xLSTMConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_blocks=2, num_heads=2, chunk_size=16,
        qk_dim_factor=1.0,
    ),
    "minimax": MiniMaxConfig(**SIZES, head_dim=16, num_local_experts=2, block_size=16),
    "mamba": MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, state_size=8),
}  # fmt: skip


class Ids:
    """A tokenizer that writes ids as numbers, so equal texts mean equal ids."""

    eos_token_id = None

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        return "".join(f"{token} " for token in token_ids)


def save_model(config: Any, path: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """Save a model with random weights, which depend on the config only."""
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    model.to(dtype)
    model.save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return path


def change_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint. They may share memory afterwards, which its file cannot."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    stored = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})


def changed_copy(
    source: Path, out: Path, change: Callable[[dict[str, torch.Tensor]], object] | None = None, **config: Any
) -> Path:
    """Write a copy of a checkpoint with other weights and other values in its config."""
    shutil.copytree(source, out)
    if change is not None:
        change_weights(out, change)
    edit_json(out / "config.json", **config)
    return out


def save_distributed(model: Path, path: Path) -> None:
    """Write what training with FSDP leaves: the model below a key, and the state of an optimizer."""
    # Every worker that collects tests would wait for these packages.
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    state = {
        "model": AutoModelForCausalLM.from_pretrained(model).state_dict(),
        "optimizer": {"step": 3, "exp_avg": torch.ones(8)},
    }
    save(state, storage_writer=FileSystemWriter(path), no_dist=True)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with some merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox jumps over the lazy dog. " * 5], trainer)
    return wrapped(tokenizer, bos_token="<s>", eos_token="</s>")


def wrapped(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer as a transformers object."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)  # type: ignore[no-untyped-call]  # as above


def prompt(token_ids: Sequence[int], generation_tokens: int = 8, stop: tuple[str, ...] = ()) -> Prompt:
    return Prompt(
        text="",
        token_ids=tuple(token_ids),
        length_tokens=len(token_ids),
        generation_tokens=generation_tokens,
        stop=stop,
    )


def random_prompt(length: int, generation_tokens: int = 8) -> Prompt:
    rng = Random(length)
    return prompt([rng.randrange(2, 300) for _ in range(length)], generation_tokens)
