"""A tiny model of natural-language inference whose weights are set: it says yes where it reads the word KEY."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import T5Config, T5ForConditionalGeneration

from tests.helpers.checkpoints import edit_json
from tests.helpers.tiny_models import wrapped

WORDS = ("<pad>", "</s>", "<unk>", "0", "1", "premise:", "hypothesis:", "KEY", "TOO", "w")
PAD, END, _, ZERO, ONE, _, _, KEY, _, _ = range(len(WORDS))
WIDTH = 8
LIMIT = 128


def word_tokenizer(**special: Any) -> Any:
    """Return a tokenizer with one id per word, which ends a text with an end token."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    return wrapped(tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", **special)


def save_writer(path: Path, *, dtype: torch.dtype = torch.float32) -> Path:
    """Save a T5 that writes 1 and ends if KEY is anywhere in its input, else 0."""
    sizes: Any = {"d_model": WIDTH, "d_kv": WIDTH, "d_ff": WIDTH, "num_layers": 1, "num_heads": 1}
    config = T5Config(vocab_size=len(WORDS), **sizes)
    model: Any = T5ForConditionalGeneration(config)
    cross = model.decoder.block[0].layer[1].EncDecAttention
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "layer_norm.weight" not in name:
                parameter.zero_()
        model.shared.weight[PAD, 0] = 1.0
        model.shared.weight[[ZERO, ONE], 1] = 1.0
        model.shared.weight[KEY, 2] = 1.0
        cross.v.weight.copy_(torch.eye(WIDTH) * 1e4)
        cross.o.weight.copy_(torch.eye(WIDTH))
    model.config.decoder_start_token_id = PAD
    model.to(dtype)
    model.save_pretrained(path)
    # T5 1.1, which the published models come from, has a head of its own; transformers would save the shared table.
    head = torch.zeros(len(WORDS), WIDTH)
    # What it starts with asks for 0, KEY outweighs that by far, and after a digit comes the end.
    head[ZERO, 0], head[ONE, 2], head[END, 1] = 1.0, 1.0, 1e6
    weights = load_file(path / "model.safetensors") | {"lm_head.weight": head.to(dtype)}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config_file = path / "config.json"
    edit_json(config_file, tie_word_embeddings=False)
    word_tokenizer().save_pretrained(path)
    return path
