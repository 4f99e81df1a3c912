"""Malformed files of a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutations import mutate_bytes, mutate_json
from tests.fuzz.programs import SMALL, Command, Kind, Program, Sound, suite

TEMPLATES = (
    "{{1//0}}", "{{ undefined.x.y }}", "{% for m in messages %}", "{{ messages[99] }}",
    "{% for i in range(10**10) %}{% endfor %}",
    "{{ 'a' * 10**9 }}", "{{ raise_exception('no') }}", "{% include 'x' %}", "{{ ''.__class__.__mro__ }}",
    "{{", "%}", "",
    "{{ messages }}", "{{ bos_token * 3 }}", "\x1b[31m{{ messages[0].content }}", "{% set x = namespace() %}{{ x.y }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ messages[0]['content'] | tojson | safe }}",
    "{{ 10**10**8 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{{ messages[0].content[:10] }}",
    "{{ strftime_now('%Y') }}", "{{ messages | map(attribute='content') | join * 1000000 }}",
    "{{ raise_exception('\x1b[31m\n::error::x') }}", "{{ messages[0].content | replace('a', 'a' * 99999) }}",
    "{{ '%0999999999d' % 1 }}", "{{ range(10**9) | list }}", "{{ messages[0].content | center(10**10) }}",
)  # fmt: skip
# Values that once ended in a traceback, or that a person would try first.
CONFIGS: tuple[dict[str, Any], ...] = (
    {"architectures": 5}, {"architectures": []}, {"architectures": [None]}, {"architectures": {"a": 1}},
    {"hidden_size": "x"}, {"hidden_size": 0}, {"hidden_size": -256}, {"hidden_size": 1.5}, {"hidden_size": 10**12},
    {"hidden_size": 250, "head_dim": None, "num_attention_heads": 7}, {"num_attention_heads": 7, "head_dim": None},
    {"num_attention_heads": 3, "num_key_value_heads": 2}, {"num_key_value_heads": 0}, {"num_attention_heads": 10**9},
    {"num_hidden_layers": 10**9}, {"num_hidden_layers": []}, {"num_hidden_layers": 0}, {"num_hidden_layers": 8},
    {"head_dim": 10**12}, {"vocab_size": 5}, {"vocab_size": 10**12}, {"model_type": "nothing"}, {"model_type": 5},
    {"rope_scaling": {"rope_type": "yarn", "factor": "x", "original_max_position_embeddings": 512}},
    {"rope_parameters": {"rope_type": "yarn", "factor": "x"}}, {"rope_parameters": {"rope_type": "x"}},
    {"rope_parameters": {"rope_type": "yarn", "factor": -4, "original_max_position_embeddings": 1}},
    {"rope_parameters": {"rope_type": "longrope"}}, {"rope_parameters": [1]}, {"rope_parameters": {"rope_theta": 0}},
    {"text_config": 5}, {"text_config": {"hidden_size": "x"}}, {"text_config": {"text_config": {}}},
    {"max_position_embeddings": "x"}, {"max_position_embeddings": -1}, {"max_position_embeddings": 10**30},
    {"sliding_window": "x"}, {"sliding_window": -5}, {"layer_types": ["x"] * 7}, {"layer_types": ["full_attention"]},
    {"layer_types": 5}, {"dtype": "x"}, {"dtype": 5}, {"hidden_act": "x"}, {"rms_norm_eps": "x"},
    {"auto_map": {"AutoModel": "x.y"}}, {"quantization_config": {"quant_method": "x"}}, {"quantization_config": 5},
    {"eos_token_id": "x"}, {"bos_token_id": [[1]]}, {"tie_word_embeddings": "x"}, {"intermediate_size": [1, "x"]},
    {"attention_bias": 5}, {"pad_token_id": 10**30}, {"transformers_version": 5}, {"use_cache": "x"},
)  # fmt: skip
SPECIAL_TOKENS = {
    "bos_token": {"content": "<s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False},
    "eos_token": "</s>", "additional_special_tokens": ["<|end|>"],
}  # fmt: skip
ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": 8, "target_modules": ["q_proj"]}
PROCESSOR = {"chat_template": "{{ messages[0].content }}"}


def copied(sound: Sound, folder: Path) -> Path:
    """Return a copy of the sound checkpoint whose weights are a link."""
    copy = folder / "checkpoint"
    shutil.copytree(sound.checkpoint, copy, copy_function=_link_weights)
    return copy


def _link_weights(source: str, target: str) -> str:
    if source.endswith(".safetensors"):
        Path(target).hardlink_to(source)
    else:
        shutil.copyfile(source, target)
    return target


def checkpoint_file(name: str, *options: str, like: Any = None) -> Kind:
    """Return the kind that malforms one JSON file of a checkpoint, which is made `like` this where it has none."""

    def kind(random: Random, sound: Sound, folder: Path) -> Program:
        copy = copied(sound, folder)
        content = (copy / name).read_bytes() if like is None else json.dumps(like).encode()
        data = mutate_bytes(random, content) if len(content) > 100_000 else mutate_json(random, json.loads(content))
        (copy / name).write_bytes(data)
        return suite(f"--model={copy}", *SMALL, *options)

    return kind


def loaded(kind: Kind) -> Kind:
    """Return a kind whose inputs are also measured, one in ten, and only checked without a model else."""

    def sometimes(random: Random, sound: Sound, folder: Path) -> Program:
        program = kind(random, sound, folder)
        assert isinstance(program, Command)
        arguments = program.arguments
        if random.random() < 0.9:
            return suite(*arguments, "--plan")
        return suite(*arguments, f"--journal={folder / 'journal'}", f"--report-json={folder / 'report.json'}")

    return sometimes


def config_values(random: Random, sound: Sound, folder: Path) -> Program:
    """Give a config one of the values that a person would try first."""
    copy = copied(sound, folder)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | random.choice(CONFIGS)))
    return suite(f"--model={copy}", *SMALL, f"--journal={folder / 'journal'}")


def template(random: Random, sound: Sound, folder: Path) -> Program:
    """Give a checkpoint a chat template that fails, loops, or says too much."""
    copy = copied(sound, folder)
    text = random.choice(TEMPLATES) if random.random() < 0.7 else "".join(random.choices(TEMPLATES, k=2))
    if random.random() < 0.3:
        (copy / "chat_template.jinja").write_text(text)
    else:
        config = json.loads((copy / "tokenizer_config.json").read_text())
        config["chat_template"] = text if random.random() < 0.8 else [{"name": "default", "template": text}]
        (copy / "tokenizer_config.json").write_text(json.dumps(config))
    return suite(f"--model={copy}", *SMALL, "--preflight")


def vocabulary(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the structure of a tokenizer outside its vocabulary."""
    copy = copied(sound, folder)
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    model = tokenizer["model"]
    vocabulary, merges = model.pop("vocab"), model.pop("merges", None)
    small = dict(list(vocabulary.items())[:20])
    changed = json.loads(json.dumps(tokenizer | {"model": model | {"vocab": small}}))
    text = mutate_json(random, changed)
    if random.random() < 0.7:
        try:
            again = json.loads(text)
            again["model"]["vocab"] = vocabulary | again["model"]["vocab"]
            again["model"] |= {} if merges is None else {"merges": merges}
            text = json.dumps(again).encode()
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
    (copy / "tokenizer.json").write_bytes(text)
    return suite(f"--model={copy}", *SMALL, "--preflight")


def weights(random: Random, sound: Sound, folder: Path) -> Program:
    """Malform the header of the weights."""
    copy = copied(sound, folder)
    (file,) = copy.glob("*.safetensors")
    data = file.read_bytes()
    file.unlink()
    size = int.from_bytes(data[:8], "little")
    if random.random() < 0.5:
        head = mutate_json(random, json.loads(data[8 : 8 + size]))
        file.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + size :])
    else:
        file.write_bytes(mutate_bytes(random, data[:2000]) + data[2000:200_000])
    return suite(f"--model={copy}", *SMALL, "--plan")


def shard_index(random: Random, sound: Sound, folder: Path) -> Program:
    """Give a checkpoint a malformed index of shards."""
    copy = copied(sound, folder)
    (file,) = copy.glob("*.safetensors")
    file.rename(copy / "model-00001-of-00001.safetensors")
    files = {"model.norm.weight": "model-00001-of-00001.safetensors"}
    if random.random() < 0.3:
        files["x"] = random.choice(("../../etc/passwd", "/etc/passwd", "", ".", "\x00", "a" * 5000))
        data = json.dumps({"weight_map": files}).encode()
    else:
        data = mutate_json(random, {"metadata": {"total_size": 100}, "weight_map": files})
    (copy / "model.safetensors.index.json").write_bytes(data)
    return suite(f"--model={copy}", *SMALL, "--plan")


def file_shapes(random: Random, sound: Sound, folder: Path) -> Program:
    """Put a directory, a pipe, a device, a loop of links or a huge file in the place of an input file."""
    copy = copied(sound, folder)
    inside = [copy / name for name in os.listdir(copy)]
    outside = {
        "--thresholds": folder / "gates.toml", "--prompts": folder / "prompts.toml", "--baseline": folder / "b.json",
    }  # fmt: skip
    option, path = random.choice([*outside.items(), *[("", path) for path in inside]])
    if path.exists():
        path.unlink()
    shape = random.choice(("directory", "pipe", "zero", "null", "loop", "dangling", "huge", "empty", "unreadable"))
    match shape:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "zero" | "null":
            path.symlink_to(f"/dev/{shape}")
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nowhere")
        case _:
            path.touch(0o000 if shape == "unreadable" else 0o600)
    if shape == "huge":
        os.truncate(path, 3 * 2**30)
    more = [f"{option}={path}"] if option else []
    return suite(f"--model={copy}", *SMALL, "--plan", *more)
