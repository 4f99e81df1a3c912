"""A checkpoint without a tokenizer is measured with that of --tokenizer, and its weights are not copied."""

from collections.abc import Callable
from pathlib import Path

import pytest

from longctx.ci.checkpoint_dirs import fingerprint_of
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint, read_source
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.conversion import Converter, make_checkpoint
from tests.helpers.checkpoints import Change, both, configure, remove, safetensors, sound_checkpoint, write, write_step
from tests.helpers.runs import calibration_checkpoint, run_pytest


def tokenizer_folder(path: Path) -> Path:
    path.mkdir()
    both(
        write("tokenizer.json", '{"a": 1}'), write("tokenizer_config.json", "{}"), write("config.json", '{"other": 1}'),
        write("generation_config.json", '{"eos_token_id": 5}'), write("additional_chat_templates/tool.jinja", "{{a}}"),
    )(path)  # fmt: skip
    return path


@pytest.mark.parametrize(
    "make", [lambda at: sound_checkpoint(at / "step-1"), lambda at: write_step(at, 1)], ids=["whole", "sharded"]
)
def test_weights_are_linked_and_get_the_tokenizer(make: Callable[[Path], Path], tmp_path: Path) -> None:
    folder, tokenizer = make(tmp_path), tokenizer_folder(tmp_path / "base")
    expected = read_checkpoint(str(folder))
    remove("tokenizer.json")(folder)
    write("chat_template.jinja", "{{ messages }}")(folder)
    source = read_source(folder, tokenizer=str(tokenizer))
    assert source is not None
    made = make_checkpoint(
        source, Converter(command=None, base_model=None, scratch=tmp_path / "scratch", tokenizer=str(tokenizer))
    )
    checkpoint = read_checkpoint(str(made))
    assert (checkpoint.name, checkpoint.config, checkpoint.parameters) == ("step-1", expected.config, 36)
    assert all(file.is_symlink() for file in made.glob("*.safetensors"))
    assert not (made / "generation_config.json").exists()
    assert (made / "additional_chat_templates" / "tool.jinja").read_text() == "{{a}}"
    assert (made / "chat_template.jinja").read_text() == "{{ messages }}"


def test_a_tokenizer_of_its_own_is_kept(tmp_path: Path) -> None:
    folder, tokenizer = sound_checkpoint(tmp_path / "step-1"), tokenizer_folder(tmp_path / "base")
    assert read_source(folder, tokenizer=str(tokenizer)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda at: write("tokenizer.json", '{"b": 1}')(at / "base"),
        lambda at: write("tokenizer_config.json", '{"b": 1}')(at / "base"),
        lambda at: configure(at / "step-1", rope_theta=7),
        lambda at: write("model.safetensors", safetensors({"model.norm.weight": [8]}))(at / "step-1"),
    ],
    ids=["vocabulary", "tokenizer config", "config", "weights"],
)
def test_the_fingerprint_covers_both_folders(change: Change, tmp_path: Path) -> None:
    folder, tokenizer = sound_checkpoint(tmp_path / "step-1"), tokenizer_folder(tmp_path / "base")
    remove("tokenizer.json")(folder)
    options = ["--tokenizer", str(tokenizer), "--lengths", "4k"]
    before = fingerprint_of(folder, option="DIR", options=options)
    assert fingerprint_of(folder, option="DIR", options=[f"--tokenizer={tokenizer}"]) == before
    change(tmp_path)
    assert fingerprint_of(folder, option="DIR", options=options) != before


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = sound_checkpoint(tmp_path / "step-1")
    remove("tokenizer.json")(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"--tokenizer: \S+empty has no tokenizer .*; give a folder that has one"):
        read_source(folder, tokenizer=str(tmp_path / "empty"))
    with pytest.raises(CheckpointError, match=r"step-1: no tokenizer .* with --tokenizer"):
        read_checkpoint(str(folder))


def test_a_search_and_a_watch_read_remote_code_where_it_is_allowed(tmp_path: Path) -> None:
    folder = sound_checkpoint(tmp_path / "step-1")
    configure(folder, model_type="mine", auto_map={"AutoModelForCausalLM": "modeling.Mine"})
    with pytest.raises(CheckpointError, match="use --trust-remote-code"):
        fingerprint_of(folder, option="DIR", options=[])
    write("modeling.py", "a = 1")(folder)
    before = fingerprint_of(folder, option="DIR", options=["--trust-remote-code"])
    write("modeling.py", "a = 2")(folder)
    assert fingerprint_of(folder, option="DIR", options=["--trust-remote-code"]) != before


def test_a_run_measures_a_checkpoint_with_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = calibration_checkpoint("512")
    folder = tmp_path / "step-7"
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "model.safetensors", "calibration.json"):
        if (tokenizer / name).is_file():
            (folder / name).write_bytes((tokenizer / name).read_bytes())
    run = run_pytest(
        tmp_path, f"--model={folder}", f"--tokenizer={tokenizer}", "--lengths=512", "--samples=2", "-k=niah_single_2",
        f"--report-json={tmp_path}/report.json",
    )  # fmt: skip
    assert (run.exit_code, run.errors) == (0, "")
    assert run.cases["niah_single_2-512"]["score"] == 100
    model = run.report["model"]
    assert (model["path"], model["source"]["kind"]) == (str(folder), "weights")
    assert "tokenizer of --tokenizer" in " ".join(run.output.split())
