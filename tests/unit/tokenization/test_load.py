"""A tokenizer loaded without `AutoTokenizer` equals the one that `AutoTokenizer` loads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS

from longctx.fixtures.tokenization import load
from longctx.fixtures.tokenization.load import TokenizerError, is_plain, load_tokenizer
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.tiny_tokenizers import KINDS, byte_level, formatter

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
TURN = [{"role": "user", "content": "Two\nlines of 17 words."}]
FAST = [kind for kind in KINDS if kind != "pieces"]
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
# Contents of config.json; None is a directory that contains only a tokenizer.
MODELS: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {},
    LLAMA,
    {"model_type": "mistral", "sliding_window": 512, "tokenizer_class": "LlamaTokenizer"},
    {"model_type": "gpt2"},
    {"model_type": "t5", "tokenizer_class": "T5Tokenizer"},
    {"model_type": "known to nobody"},
)


def saved(folder: Path, kind: str, model: Mapping[str, Any] | None, **declared: Any) -> Path:
    """Save a tokenizer like a checkpoint's: with a token added by name only, and settings in tokenizer_config.json."""
    formatter(kind).tokenizer.save_pretrained(folder)  # type: ignore[attr-defined]  # a Hugging Face tokenizer
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text()) | {"extra_special_tokens": ["<extra>"], "chat_template": TEMPLATE} | declared
    file.write_text(json.dumps(config))
    if model is not None:
        (folder / "config.json").write_text(json.dumps(model))
    return folder


def automatic(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def definition(tokenizer: Any) -> Any:
    """Return everything that defines a tokenizer."""
    tokens = (tokenizer.get_added_vocab(), tokenizer.special_tokens_map, tokenizer.all_special_ids)
    turn = tokenizer.apply_chat_template(TURN, tokenize=False, add_generation_prompt=True)
    init_settings = {name: str(value) for name, value in tokenizer.init_kwargs.items()}
    return type(tokenizer), tokenizer.backend_tokenizer.to_str(), tokens, turn, init_settings


@pytest.mark.parametrize("declared", ["PreTrainedTokenizerFast", "TokenizersBackend"])
@pytest.mark.parametrize(
    ("kind", "model"), [*(("byte level", model) for model in MODELS), *((kind, LLAMA) for kind in FAST[1:])], ids=str
)
def test_a_plain_tokenizer_equals_the_one_of_the_automatic_class(
    tmp_path: Path, kind: str, model: Mapping[str, Any] | None, declared: str
) -> None:
    folder = saved(tmp_path, kind, model, tokenizer_class=declared)
    assert is_plain(folder)
    assert definition(load_tokenizer(str(folder))) == definition(automatic(folder))


@pytest.mark.parametrize("spec", ["4k", "4k-chat"])
def test_the_calibration_tokenizer_is_plain(spec: str) -> None:
    folder = calibration_checkpoint(spec)
    assert is_plain(folder)
    plain: Any = load_tokenizer(str(folder))
    loaded = automatic(folder)
    assert plain.backend_tokenizer.to_str() == loaded.backend_tokenizer.to_str()
    assert (plain.chat_template, plain.special_tokens_map) == (loaded.chat_template, loaded.special_tokens_map)
    assert type(plain) is type(loaded)


@pytest.mark.parametrize(
    ("model", "declared"),
    [
        ({"model_type": "llama"}, {"tokenizer_class": "LlamaTokenizerFast"}),
        ({"model_type": "llama"}, {"tokenizer_class": None}),
        ({"model_type": "qwen2"}, {}),
        ({"model_type": "llama", "model_name": "phi3"}, {}),
        ({"model_type": "llama"}, {"auto_map": {"AutoTokenizer": [None, "own.Own"]}}),
        ({"model_type": "llama", "auto_map": {"AutoConfig": "own.Own"}}, {}),
    ],
    ids=str,
)
def test_a_tokenizer_with_code_or_a_class_of_its_own_is_left_to_the_automatic_class(
    tmp_path: Path, model: Mapping[str, Any], declared: Mapping[str, Any]
) -> None:
    saved(tmp_path, "byte level", {"model_type": "llama"}, tokenizer_class="TokenizersBackend")
    assert is_plain(tmp_path)
    saved(tmp_path, "byte level", model, **{"tokenizer_class": "TokenizersBackend", **declared})
    assert not is_plain(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"), [("tekken.json", "{}"), ("config.json", "{"), ("config.json", "[]"), ("tokenizer.json", None)]
)
def test_unexpected_files_are_left_to_the_automatic_class(tmp_path: Path, name: str, content: str | None) -> None:
    saved(tmp_path, "byte level", {"model_type": "llama"}, tokenizer_class="TokenizersBackend")
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    assert not is_plain(tmp_path)


def test_a_model_that_declares_a_wrong_tokenizer_gets_the_one_of_its_type(tmp_path: Path) -> None:
    folder = saved(tmp_path, "byte level", {"model_type": "qwen2"}, tokenizer_class="TokenizersBackend")
    assert type(load_tokenizer(str(folder))).__name__ == type(automatic(folder)).__name__ == "Qwen2Tokenizer"


def test_the_models_known_to_declare_wrong_tokenizers_are_those_of_transformers() -> None:
    assert set(load.overruled_models() or ()) == set(MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"chat_template": "{{ messages }}"}', "{{ messages }}"),
        ("{}", None),
        ("[", None),
        ('{"chat_template": []}', None),
    ],
)
def test_a_template_in_the_file_of_a_processor_is_read(content: str, expected: str | None, tmp_path: Path) -> None:
    byte_level().save_pretrained(str(tmp_path))
    (tmp_path / "chat_template.json").write_text(content)
    if expected is None:
        with pytest.raises(TokenizerError, match=r"no tokenizer can be loaded from .* \((no valid|.* no text|Exp)"):
            load_tokenizer(str(tmp_path))
    else:
        assert load_tokenizer(str(tmp_path)).chat_template == expected
