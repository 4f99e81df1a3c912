"""Job arrays: processes without a common parent share one journal and split the samples of one run."""

import json
import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, in_json, text_completion

PROCESSES = 4
# The requests that probe a server before the run are shorter.
MAX_PROBE_CHARACTERS = 500
SAMPLES = 100
LENGTHS = (2048, 4096)
TASKS = ("niah_single_1", "niah_single_2", "niah_multikey_1")
GATE = f"""
[[gate]]
name = "needles"
kind = "level"
tasks = {json.dumps(TASKS)}
above = 85.6
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of the recipes, with a gate that is decided long before all samples are measured."""
    forget_keys(monkeypatch)
    (tmp_path / "gates.toml").write_text(GATE)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return inherited | {
        "LONGCTX_SETTINGS": str(tmp_path / "settings.sh"),
        "LONGCTX_PYTEST": str(preloaded("pytest")),
        "LONGCTX_WORKERS": "0",
        "LONGCTX_REPORT": str(tmp_path / "gate.json"),
    }


@pytest.mark.whole_loop
def test_an_array_computes_at_most_a_twentieth_more_samples_than_one_process(
    settings: dict[str, str], tmp_path: Path
) -> None:
    model, journal = calibration_checkpoint("512"), tmp_path / "journal"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    deadline = time.monotonic() + 300

    def all_numbers(request: Request) -> Response:
        prompt = request.prompt
        if not isinstance(prompt, str):
            return in_json({"error": "prompt must be a string"}, status=400)
        numbers = set(re.findall(r"\d{7}", prompt)) if len(prompt) > MAX_PROBE_CHARACTERS else set()
        # A model is slow: no process receives an answer of the run before the last process has started.
        while numbers and len(list(journal.glob("workers/*"))) < PROCESSES and time.monotonic() < deadline:
            time.sleep(0.05)
        return text_completion(" ".join(numbers), read=len(tokenizer.encode(prompt).ids), delay_seconds=0.05)

    with ChatServer().serving() as server:
        server.answer = all_numbers
        write_settings(tmp_path, model, f"--base-url={server.url}")
        running = [
            start_script("ci/slurm/array.sh", settings | {"SLURM_ARRAY_TASK_ID": str(index)})
            for index in range(PROCESSES)
        ]
        printed = [process.communicate(timeout=900)[0] for process in running]
        assert [process.returncode for process in running] == [0] * PROCESSES, printed
        gate = start_script("ci/slurm/gate.sh", settings)
        assert (gate.communicate(timeout=900)[0], gate.returncode)[1] == 0
    files = [file.read_text().splitlines() for file in journal.glob("*/*.jsonl")]
    samples_by_process = [[line["element"] for line in map(json.loads, lines) if "element" in line] for lines in files]
    computed = [sample for samples in samples_by_process for sample in samples]
    assert sum(map(bool, samples_by_process)) > 1
    assert len(computed) == len(set(computed)), "a sample was answered twice"
    report = json.loads((tmp_path / "gate.json").read_text())
    assert {gate_report["verdict"] for gate_report in report["gates"] if gate_report["name"].startswith("needles")} == {
        "pass"
    }
    assert report["run"]["computed_samples"] == 0
    # One process would have computed exactly the samples that count as evidence.
    evidence_samples = sum(case["samples"] for case in report["cases"])
    assert evidence_samples < SAMPLES, "no verdict was reached early"
    assert len(computed) <= 1.05 * evidence_samples


def write_settings(folder: Path, model: Path, *options: str) -> None:
    lengths = ",".join(map(str, LENGTHS))
    size = ("--suite=ruler", f"--lengths={lengths}", f"--samples={SAMPLES}", f"--thresholds={folder}/gates.toml")
    selection = ("-k", " or ".join(TASKS), *options)
    text = f"MODEL={model}\nJOURNAL={folder}/journal\nOPTIONS=({shlex.join([*size, *selection])})\n"
    (folder / "settings.sh").write_text(text)


def start_script(script: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", script],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
