"""What a new user types by mistake is one line that names it and the next step, before anything is loaded."""

import gzip
import shlex
from pathlib import Path

import pytest

from longctx.cli import main
from longctx.fixtures.shown_text import known_names
from longctx.run import with_model
from tests.helpers.runs import usage_error

CKPT = "calibration:4k"

SEMICOLONS = """
[[dataset]]
name = "own"
version = 1
category = "qa"
source = { file = "semicolons.csv" }
fields = { context = "text", references = "answer" }
prompt = { text = "{context}" }
budget = 9
metric = { name = "exact_match" }
"""
WRONG = {
    # Values.
    f"--model {CKPT} --lengths 8kb": "--lengths: unknown '8kb'; write 8k, 8192 or 1m",
    f"--model {CKPT} --lengths 1k,,2k": "--lengths: unknown ''; write 8k, 8192 or 1m",
    f"--model {CKPT} --lengths 1K-4K": "--lengths: unknown '1K-4K'; write 8k, 8192 or 1m",
    f"--model {CKPT} --lengths 1.5k": "--lengths: unknown '1.5k'; write 8k, 8192 or 1m",
    f"--model {CKPT} --lengths=": "--lengths: unknown ''",
    f"--model {CKPT} --samples 0": "--samples: '0'; give a whole number of at least 1",
    f"--model {CKPT} --samples -5": "--samples: '-5'; give a whole number of at least 1",
    f"--model {CKPT} --limit ten": "--samples: 'ten'; give a whole number of at least 1",
    f"--model {CKPT} --limit 0.1": "--samples: '0.1'; give a whole number of at least 1",
    f"--model {CKPT} --tensor-parallel-size two": "--gpus-per-worker: 'two'; give a whole number of at least 1",
    f"--model {CKPT} --dtype fp7": "--dtype: unknown 'fp7'; ",
    f"--model {CKPT} --suite RULER": "--suite: unknown 'RULER'; did you mean 'ruler'?",
    f"--model {CKPT} --tasks niah": "--tasks: unknown 'niah'; known are niah_single_1, niah_single_2, niah_single_3",
    f"--model {CKPT} --suite rular": "--suite: unknown 'rular'; did you mean 'ruler'?",
    f"--model {CKPT} --thresholds nope.toml": "nope.toml",
    f"--model {CKPT} --budget 30m": "--budget: '30m'; give a number of minutes",
    f"--model {CKPT} --seed 1.5": "--seed: '1.5'; give a whole number",
    f"--model {CKPT} --chat yes": "--chat: unknown 'yes'; use one of auto, on, off, server",
    f"--model {CKPT} --only-samples vt": "--only-samples: 'vt'; write CASE:INDEX",
    # Models.
    "--lengths 1k": "--model: give a checkpoint directory",
    "no_such --lengths 1k": "--model: no such directory",
    "--model /no/such": "--model: no such directory '/no/such'",
    "--model empty": "is empty; wait until the checkpoint is saved",
    "--model gguf": "is read by llama.cpp and not by this suite; start a server with it, and measure that with --base",
    "--model gguf/x.gguf": "is read by llama.cpp and not by this suite; start a server with it",
    "gguf/x.gguf": "is read by llama.cpp and not by this suite",
    "--model pickled": "pickled weights can run code and are not read; convert to safetensors",
    "--model notes.txt": "is a file; give the directory that holds config.json and the weights",
    "--model calibration:4kb": "calibration",
    # Options.
    f"--model {CKPT} --task niah_single_1": "--task: no such option; did you mean --tasks?",
    f"--model {CKPT} --length 1k": "--length: no such option; did you mean --lengths?",
    f"--model {CKPT} --length=1k": "--length: no such option; did you mean --lengths?",
    f"--model {CKPT} --report-jsn x": "--report-jsn: no such option; did you mean --report-json?",
    f"--model {CKPT} --num-fewshot 3": "--num-fewshot: no such option; longctx run --help lists all",
    f"--model {CKPT} --samples": "expected one argument; longctx run --help lists all options",
    f"--model {CKPT} --samples-from DIR": "--samples-from: gone; use --tasks-file DIR",
    # Selections.
    f"--model {CKPT} --tasks niah_sngle_1": "--tasks: unknown 'niah_sngle_1'; did you mean 'niah_single_1'?",
    f"--model {CKPT} --tasks vt,": "--tasks: unknown ''",
    f"--model {CKPT} --tasks own.toml": "--tasks: unknown 'own.toml'; give files with --tasks-file",
    f"--model {CKPT} --tasks-file own.toml": "own.toml: no such file; give a TOML file",
    f"--model {CKPT} --tasks-file vt": "--tasks-file: ",
    f"--model {CKPT} --lengths 4k --suite ruler --tasks rerank_msmarco": "--tasks: ",
    f"--model {CKPT} --lengths 256 --tasks cwe": "cwe at 256 tokens cannot fit",
    f"--model {CKPT} -m retrival --plan": "-m: unknown 'retrival'; did you mean 'retrieval'?",
    f"--model {CKPT} --lengths 4k 'tests_longctx/test_ruler.py::test_ruler[niah_single_2-1k]'":
        "test_ruler[niah_single_2-1k]: no case of this run; did you mean 'test_ruler[niah_single_2-4k]'?",
    f"--model {CKPT} --lengths 4k 'tests_longctx/test_ruler.py::test_ruler[nosuch-4k]'":
        "test_ruler[nosuch-4k]: no case of this run; ",
    # Baselines and reports.
    f"--model {CKPT} --baseline nope.json": "nope.json (No such file or directory); give a JSON report or a checkpoint",
    f"--model {CKPT} --baseline x.gz": "x.gz is compressed by gzip; give a file of --report-json, or a checkpoint",
    f"--model {CKPT} --baseline junit.xml": "junit.xml is XML; give a file of --report-json",
    f"--model {CKPT} --baseline page.html": "page.html is a page in HTML; give a file of --report-json",
    f"--model {CKPT} --baseline nope.xml": "nope.xml (No such file or directory); give a JSON report or a checkpoint",
    f"--model {CKPT} --baseline newer.json": "newer.json is not a longctx",
    f"--model {CKPT} --baseline notes.txt": "notes.txt is not JSON",
    f"--model {CKPT} --baseline results": "results: no checkpoint: it has neither config.json nor weights; longctx",
    f"--model {CKPT} --baseline results/samples_a.jsonl": "or a checkpoint directory; longctx gate compares results",
    # Files of other kinds, forms of other programs.
    f"--model {CKPT} --thresholds notes.txt": "notes.txt is not TOML: ",
    f"--model {CKPT} --tasks-file results/samples_a.jsonl": "; name a file of questions as the source in a TOML file",
    f"--model {CKPT} --tasks-file semicolons.toml": "semicolons.csv, line 1: cells stand between ';', not ','",
    f"--model {CKPT} --yardstick notes.toml": "notes.toml is no yardstick (it lacks 'yardstick'); write one with",
    f"--model {CKPT} --prompts notes.toml": "has a table [notes]; known are niah_single_1, niah_single_2, ",
    "--model s3://bucket/ckpt": "models of the hub are read from its local cache and not downloaded, give a checkpoint",
    f"--model {CKPT} --lengths '4k 8k'": "--lengths: unknown '4k 8k'; write 8k, 8192 or 1m, and several as 4k,8k",
    f"--model {CKPT} --samples 20%": "--samples: '20%'; give a whole number of at least 1",
    f"--model {CKPT} --suite helmet,ruler": "--suite: unknown 'helmet,ruler'; use one of ruler, helmet, frontier, all",
    f"--model {CKPT} --tasks 'niah_*'": "--tasks: unknown 'niah_*'; known are niah_single_1, ",
    f"--model {CKPT} --base-url localhost:8000/v1": "--base-url: not of the form http(s)://host[:port]/path",
    f"--model {CKPT} --base-url http://127.0.0.1:9/v1": "the connection fails ([Errno 111] Connection refused); start",
    f"--model {CKPT} --engine sglang": "--engine: unknown 'sglang'; use one of auto, hf, vllm, openai",
    f"--model {CKPT} --yardstick 200": "--yardstick: '200'; give auto, aligned, base, a score from 0 to 100, or a",
    f"--model {CKPT} --attention flash": "--attention: unknown 'flash'; use auto, eager, ",
    f"--model {CKPT} --data-dir nope": "nope: no such directory; name an existing one, or leave out --data-dir",
    f"--model {CKPT} --step last": "--step: 'last'; give the training step as a whole number of at least 0",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files that are no checkpoints, in which the commands are typed."""
    for name in ("empty", "gguf", "pickled", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "gguf/x.gguf").write_bytes(b"GGUF")
    (tmp_path / "pickled/pytorch_model.bin").write_bytes(b"\x80\x02")
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"{}"))
    texts = {
        "junit.xml": "<?xml version='1.0'?><testsuites/>", "page.html": "<!doctype html>", "notes.txt": "hello",
        "newer.json": '{"schema": "longctx.report.v99"}', "results/samples_a.jsonl": '{"id": 1}\n{"id": 2}\n',
        "notes.toml": "[notes]\n", "semicolons.csv": "text;answer\na;b\n", "semicolons.toml": SEMICOLONS,
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("typed", WRONG)
def test_a_wrong_use_names_the_next_step_in_one_line(typed: str) -> None:
    said = usage_error(*with_model(shlex.split(typed)))
    assert WRONG[typed] in said
    assert "\n" not in said
    assert "usage:" not in said


@pytest.mark.parametrize(("typed", "meant"), [("rnu", "run"), ("wach", "watch"), ("bisct", "bisect")])
def test_a_misspelt_command_is_suggested(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed, "--model", "x"]) == 4
    assert capsys.readouterr().err == f"error: unknown command {typed!r}; did you mean {meant!r}?\n"


def test_a_name_is_found_whatever_its_case() -> None:
    assert known_names("leases", ["Leases", "halls"]) == "did you mean 'Leases'?"


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("ckpt --lengths 1k", "--model=ckpt --lengths 1k"),
        ("--lengths 1k ckpt", "--lengths 1k --model=ckpt"),
        ("-x --full ckpt", "-x --full --model=ckpt"),
        ("--model a b", "--model a b"),
        ("test_ruler[vt-4k] --lengths 4k", "test_ruler[vt-4k] --lengths 4k"),
        ("--maxfail 2 --samples 3", "--maxfail 2 --samples 3"),
    ],
)
def test_the_first_word_that_is_no_value_is_the_model(typed: str, given: str) -> None:
    assert with_model(typed.split()) == given.split()
