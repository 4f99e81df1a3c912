"""A checkpoint of torch.distributed.checkpoint becomes the model that wrote it, also as a part of a run."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from longctx.fixtures.checkpoints.checkpoint import read_source
from longctx.fixtures.conversion import ConversionError, Converter, make_checkpoint
from longctx.fixtures.conversion.__main__ import main as convert
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import calibration_checkpoint, run_pytest
from tests.helpers.servers import served_needles
from tests.helpers.tiny_models import save_distributed


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "step-3000"
    save_distributed(calibration_checkpoint("512"), folder)
    return folder


def test_a_distributed_checkpoint_becomes_the_model_that_wrote_it(raw: Path, tmp_path: Path) -> None:
    like, out = calibration_checkpoint("512"), tmp_path / "out"
    assert convert([str(raw), str(out), "--like", str(like)]) == 0
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (out, like))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert (out / "tokenizer.json").read_bytes() == (like / "tokenizer.json").read_bytes()


def test_a_checkpoint_of_another_model_is_one_line(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "like"
    other.mkdir()
    config = json.loads((calibration_checkpoint("512") / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] + 1}))
    assert convert([str(raw), str(tmp_path / "out"), "--like", str(other)]) == 4
    assert "lacks model.layers." in capsys.readouterr().err
    assert convert([str(raw.parent), str(tmp_path / "out"), "--like", str(other)]) == 4
    assert "has no .metadata; give the directory that" in capsys.readouterr().err


def test_a_run_converts_a_raw_checkpoint_and_removes_what_it_made(raw: Path, tmp_path: Path) -> None:
    like, journal = calibration_checkpoint("512"), tmp_path / "journal"
    command = f"{preloaded('longctx')} convert {{checkpoint}} {{out}} --like {like}"
    with served_needles(512, like) as server:
        run = run_pytest(
            tmp_path, f"--model={raw}", "--convert", command, server, "--lengths=512", "--samples=2",
            "-k=niah_single_2", f"--report-json={tmp_path}/report.json", journal=journal,
        )  # fmt: skip
    assert (run.exit_code, run.errors) == (0, "")
    model = run.report["model"]
    assert (model["path"], model["source"]["kind"], model["source"]["path"]) == (str(raw), "raw", str(raw))
    assert run.report["run"]["step"] == 3000
    assert run.cases["niah_single_2-512"]["score"] == 100
    assert "MistralForCausalLM, converted" in " ".join(run.output.split())
    made = like.parents[1] / "converted"
    assert list(made.glob(f"*/{raw.name}")) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("false {checkpoint} {out}", r"--convert: false .* ended with code 1 and did not write .*: no output"),
        ("true {checkpoint} {out}", r"--convert: true .* ended with code 0 and did not write .*"),
        ("no-such-command {checkpoint} {out}", r"--convert: cannot run 'no-such-command' \(No such file.*"),
    ],
)
def test_a_command_that_fails_is_one_line(command: str, message: str, raw: Path, tmp_path: Path) -> None:
    source = read_source(raw, converts=True)
    assert source is not None
    with pytest.raises(ConversionError, match=message):
        make_checkpoint(source, Converter(command=command, base_model=None, scratch=tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConversionError, match=r"lacks \{checkpoint\} or \{out\}"):
        Converter(command="convert.sh", base_model=None, scratch=tmp_path).check()
