"""One set of weights decides every answer: what an engine could load in its place is refused, and nothing else is."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from longctx.fixtures.checkpoints.checkpoint import read_checkpoint, read_identity
from longctx.fixtures.checkpoints.fingerprint import changed_file
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from tests.helpers.checkpoints import (
    CONFIG,
    TENSORS,
    WEIGHTS,
    WHOLE,
    Change,
    both,
    configure,
    remove,
    safetensors,
    sound_checkpoint,
    write,
    write_step,
)  # fmt: skip

INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00002.safetensors"
TWICE = safetensors({"model.norm.weight": [4], "model.embed.weight": [8, 4]})


def at(name: str, seconds: int, content: bytes = b"weights") -> Change:
    """Return a change that writes a file so many seconds after all others."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)
        newest = max(file.stat().st_mtime for file in folder.iterdir())
        os.utime(folder / name, (newest + seconds, newest + seconds))

    return change


def mark_download(folder: Path) -> None:
    (folder / ".cache" / "huggingface").mkdir(parents=True)


def index(*names: str) -> Change:
    return write(INDEX, json.dumps({"weight_map": dict.fromkeys(TENSORS, names[0])}))


REFUSED: dict[str, tuple[bool, Change, str]] = {
    "a whole file beside a sharded save": (True, write(WEIGHTS, WHOLE), "two sets of weights: .* vLLM the 2 files"),
    "a sharded save beside a whole file": (
        False, both(write("model-00001-of-00001.safetensors", WHOLE), index("model-00001-of-00001.safetensors")),
        "two sets of weights",
    ),
    "a shard of a longer save": (
        True, write("model-00001-of-00003.safetensors", safetensors({"a": [2]})),
        r"model-00001-of-00003\.safetensors: belongs to another set of weights: .* does not name it",
    ),
    "averaged weights": (False, write("ema.safetensors", WHOLE), r"ema\.safetensors: .* vLLM both; move"),
    "averaged weights beside shards": (True, write("model_ema.safetensors", WHOLE), r"model_ema\.safetensors: belongs"),
    "a variant": (False, write("model.fp16.safetensors", WHOLE), r"model\.fp16\.safetensors: belongs to another set"),
    "a sharded variant": (True, write("model.bf16-00001-of-00001.safetensors", WHOLE), "belongs to another set"),
    "only a variant": (
        False, both(remove(WEIGHTS), write("model.fp16.safetensors", WHOLE)), "nor named in .*; rename it",
    ),
    "an adapter without its config": (False, write("adapter_model.safetensors", WHOLE), "belongs to another set"),
    "a tensor that stands twice": (True, write(SHARD, TWICE), r"holds model\.embed\.weight, as model-00001-of-00002"),
    "a later pickle": (False, at("pytorch_model.bin", 60), r"pytorch_model\.bin: pickled weights that are newer than"),
    "a later pickled shard": (True, at("pytorch_model-00001-of-00002.bin", 1), "pickled weights that are newer than"),
    "a later pickle of Meta": (False, at("consolidated.00.pth", 1), r"consolidated\.00\.pth: .* newer than"),
    "weights that the config names": (
        False,
        both(lambda folder: configure(folder, transformers_weights="other.safetensors"), remove(WEIGHTS),
             write("other.safetensors", WHOLE)),
        "config.json: transformers_weights is 'other.safetensors', and only transformers",
    ),
    "an index that the config names": (
        False, lambda folder: configure(folder, transformers_weights=INDEX), "transformers_weights is 'model.*index",
    ),
    "weights that a text config names": (
        False, lambda folder: configure(folder, text_config=CONFIG | {"transformers_weights": "../x.safetensors"}),
        "transformers_weights is '../x.safetensors'",
    ),
    "another config for later versions": (
        False, lambda folder: configure(folder, configuration_files=["config.4.0.0.json", "config.json"]),
        "configuration_files is .*; keep the right one as config.json",
    ),
    "another tokenizer for later versions": (
        False, write("tokenizer_config.json", '{"fast_tokenizer_files": ["../tokenizer.4.0.0.json"]}'),
        "tokenizer_config.json: fast_tokenizer_files is .*tokenizer.4.0.0.json",
    ),
}  # fmt: skip


def make(folder: Path, is_sharded: bool) -> Path:
    return write_step(folder, 1) if is_sharded else sound_checkpoint(folder / "step-1")


@pytest.mark.parametrize("kind", REFUSED)
def test_what_an_engine_could_load_instead_is_refused(kind: str, tmp_path: Path) -> None:
    is_sharded, change, message = REFUSED[kind]
    folder = make(tmp_path, is_sharded)
    change(folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_checkpoint(str(folder))
    assert str(folder) in str(caught.value)


HARMLESS: dict[str, Change] = {
    "an older pickle": at("pytorch_model.bin", -3600),
    "a pickle of a download": both(at("pytorch_model.bin", 60), mark_download),
    "an optimizer": both(at("optimizer.bin", 60), at("optimizer.pt", 60), write("optimizer.safetensors", WHOLE)),
    "other training state": both(at("rng_state_0.pth", 60), at("scheduler.pt", 60), at("training_args.bin", 60)),
    "pickled averages": at("ema.pt", 60),
    "averages in a folder": write("ema/model.safetensors", WHOLE),
    "the copy of a Mistral release": write("consolidated.safetensors", safetensors({"tok_embeddings.weight": [4]})),
    "an index of the one file": index(WEIGHTS),
    "the usual tokenizer by name": write("tokenizer_config.json", '{"fast_tokenizer_files": ["tokenizer.json"]}'),
    "the usual weights by name": lambda folder: configure(folder, transformers_weights=WEIGHTS),
    "the usual config by name": lambda folder: configure(folder, configuration_files=["config.json"]),
    "the name of the base": lambda folder: configure(folder, _name_or_path="/data/base"),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_no_engine_would_load_is_harmless(kind: str, tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    HARMLESS[kind](folder)
    assert read_checkpoint(str(folder)).parameters == 36


@pytest.mark.parametrize("is_same", [True, False])
def test_a_later_pickle_of_the_same_weights_is_a_copy(is_same: bool, tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    weights = {name: torch.randn(shape) for name, shape in TENSORS.items()}
    save_file(weights, folder / WEIGHTS)
    torch.save(weights if is_same else {name: tensor + 1 for name, tensor in weights.items()}, folder / "new")
    at("pytorch_model.bin", 5, (folder / "new").read_bytes())(folder)
    if is_same:
        assert read_checkpoint(str(folder)).parameters == 36
    else:
        with pytest.raises(CheckpointError, match="newer than"):
            read_checkpoint(str(folder))


def test_the_second_copy_of_a_mistral_release_is_in_the_fingerprint(tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    both(write("params.json", "{}"), write("consolidated.safetensors", WHOLE))(folder)
    before, identity = read_checkpoint(str(folder)), read_identity(folder)
    write("consolidated.safetensors", safetensors(dict(reversed(TENSORS.items()))))(folder)
    assert read_checkpoint(str(folder)).fingerprint != before.fingerprint
    assert changed_file(identity) == folder / "consolidated.safetensors"
    assert before.parameters == 36


LINKED = (WEIGHTS, INDEX, "model-00001-of-00002.safetensors", SHARD)
TEXTS = (
    "config.json", "tokenizer.json", "chat_template.jinja", "tokenizer_config.json", "generation_config.json",
    "tokenizer.model", "qwen.tiktoken", "additional_chat_templates/tool.jinja", "vocab.txt",
)  # fmt: skip


@pytest.mark.parametrize("is_sharded", [True, False])
def test_weights_may_be_links_which_are_watched_at_their_target(is_sharded: bool, tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded)
    expected = read_checkpoint(str(folder)).fingerprint
    for file in [folder / name for name in LINKED if (folder / name).exists()]:
        target = file.rename(tmp_path / f"elsewhere-{file.name}")
        file.symlink_to(target)
    assert read_checkpoint(str(folder)).fingerprint == expected
    identity = read_identity(folder)
    content = bytearray(target.read_bytes())
    content[-1] ^= 1
    target.write_bytes(content)
    assert changed_file(identity) is not None
    assert read_checkpoint(str(folder)).fingerprint != expected


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_a_link_out_of_the_checkpoint_is_refused(name: str, tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("{}")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match=rf"{name}: is a link to {elsewhere}, outside .*; only weights may be"):
        read_checkpoint(str(folder))


def test_a_folder_of_texts_and_a_chain_of_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    write("elsewhere/a.jinja", "{{ messages }}")(tmp_path)
    (folder / "additional_chat_templates").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"a\.jinja: is a link to"):
        read_checkpoint(str(folder))
    (folder / "additional_chat_templates").unlink()
    (folder / "inner.jinja").symlink_to(tmp_path / "elsewhere" / "a.jinja")
    (folder / "chat_template.jinja").symlink_to("inner.jinja")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja: is a link to"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("target", ["nowhere", "folder", "/dev/zero"])
@pytest.mark.parametrize("is_sharded", [True, False])
def test_weights_that_link_to_no_regular_file_are_refused(target: str, is_sharded: bool, tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded)
    (tmp_path / "folder").mkdir()
    file = next(folder / name for name in (WEIGHTS, SHARD) if (folder / name).exists())
    file.unlink()
    file.symlink_to(tmp_path / target)
    with pytest.raises(CheckpointError, match=rf"{file.name}: is a link to \S*{target}, and that is no regular file"):
        read_checkpoint(str(folder))


def test_code_of_another_folder_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    configure(folder, auto_map={"AutoModel": "../up.Mine"})
    with pytest.raises(CheckpointError, match=r"auto_map takes '\.\./up\.Mine' from outside the checkpoint"):
        read_checkpoint(str(folder), trust_remote_code=True)


def test_a_folder_of_code_that_is_a_link_is_refused_where_it_may_run(tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    write("elsewhere/attention.py")(tmp_path)
    (folder / "parts").symlink_to(tmp_path / "elsewhere")
    assert read_checkpoint(str(folder)).parameters == 36
    with pytest.raises(CheckpointError, match="/parts: is a link to"):
        read_checkpoint(str(folder), trust_remote_code=True)


def test_a_link_inside_the_checkpoint_is_read(tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    (folder / "tokenizer.json").rename(folder / "of-the-base.json")
    (folder / "tokenizer.json").symlink_to("of-the-base.json")
    assert read_checkpoint(str(folder)).parameters == 36


CODE = {"AutoModelForCausalLM": "modeling.Mine", "AutoConfig": "configuration.Config"}


def test_remote_code_is_hashed_and_watched_where_it_may_run(tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    configure(folder, model_type="mine", auto_map=CODE)
    both(write("modeling.py", "a = 1"), write("parts/attention.py", "b = 1"))(folder)
    seen = {read_checkpoint(str(folder), trust_remote_code=True).fingerprint}
    for name in ("modeling.py", "parts/attention.py"):
        identity = read_identity(folder, trust_remote_code=True)
        write(name, "c = 22")(folder)
        assert changed_file(identity) == folder / name
        seen.add(read_checkpoint(str(folder), trust_remote_code=True).fingerprint)
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"auto_map": {"AutoModelForCausalLM": "org/other--modeling.Mine"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["org/other--tokens.Slow", None]}}),
        ("tokenizer_config.json", {"auto_map": ["org/other--tokens.Slow", None]}),
        ("config.json", {"auto_map": {"AutoModel": "org/other--../up.Mine"}}),
    ],
)
def test_code_of_another_repository_is_refused(name: str, content: dict[str, object], tmp_path: Path) -> None:
    folder = make(tmp_path, is_sharded=False)
    write(name, json.dumps((CONFIG if name == "config.json" else {}) | content))(folder)
    with pytest.raises(CheckpointError, match=rf"{name}: auto_map takes 'org/other--.*' from outside the checkpoint"):
        read_checkpoint(str(folder), trust_remote_code=True)
    assert read_checkpoint(str(folder)).parameters == 36
