"""Many machines, as processes without a common parent: one journal, the work of one process, one verdict."""

from __future__ import annotations

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
from tests.helpers.runs import PYTEST, calibration_checkpoint
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, in_json, text_completion

PROCESSES = 4
# What a server is asked before the run is shorter.
MOST_PROBE_CHARACTERS = 500
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
    """The environment of the recipes; a verdict falls long before the samples end."""
    forget_keys(monkeypatch)
    (tmp_path / "gates.toml").write_text(GATE)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return inherited | {
        "LONGCTX_SETTINGS": str(tmp_path / "settings.sh"),
        "LONGCTX_PYTEST": str(PYTEST),
        "LONGCTX_WORKERS": "0",
        "LONGCTX_REPORT": str(tmp_path / "gate.json"),
    }


def test_an_array_does_the_work_of_one_process_and_a_twentieth(settings: dict[str, str], tmp_path: Path) -> None:
    model, journal = calibration_checkpoint("512"), tmp_path / "journal"
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ends = time.monotonic() + 60

    def all_numbers(request: Request) -> Response:
        prompt = request.prompt
        if not isinstance(prompt, str):
            return in_json({"error": "prompt must be a string"}, status=400)
        numbers = set(re.findall(r"\d{7}", prompt)) if len(prompt) > MOST_PROBE_CHARACTERS else set()
        # As slow as models are, nobody has an answer before the last one is there.
        while numbers and len(list(journal.glob("workers/*"))) < PROCESSES and time.monotonic() < ends:
            time.sleep(0.05)
        return text_completion(" ".join(numbers), read=len(tokenizer.encode(prompt).ids), delay_seconds=0.05)

    with ChatServer().serving() as server:
        server.answer = all_numbers
        write_settings(tmp_path, model, f"--base-url={server.url}")
        running = [started("ci/slurm/array.sh", settings | {"SLURM_ARRAY_TASK_ID": str(at)}) for at in range(PROCESSES)]
        printed = [process.communicate(timeout=200)[0] for process in running]
        assert [process.returncode for process in running] == [0] * PROCESSES, printed
        gate = started("ci/slurm/gate.sh", settings)
        assert (gate.communicate(timeout=200)[0], gate.returncode)[1] == 0
    files = [file.read_text().splitlines() for file in journal.glob("*/*.jsonl")]
    by_process = [[line["element"] for line in map(json.loads, lines) if "element" in line] for lines in files]
    computed = [element for each in by_process for element in each]
    assert sum(map(bool, by_process)) > 1
    assert len(computed) == len(set(computed)), "a sample was answered twice"
    report = json.loads((tmp_path / "gate.json").read_text())
    assert {each["verdict"] for each in report["gates"] if each["name"].startswith("needles")} == {"pass"}
    assert report["run"]["computed_samples"] == 0
    # What the verdicts rest on is what one process would have answered.
    counted = sum(case["samples"] for case in report["cases"])
    assert counted < SAMPLES, "no verdict came early"
    assert len(computed) <= 1.05 * counted


def write_settings(folder: Path, model: Path, *options: str) -> None:
    lengths = ",".join(map(str, LENGTHS))
    what = ("--suite=ruler", f"--lengths={lengths}", f"--samples={SAMPLES}", f"--thresholds={folder}/gates.toml")
    selected = ("-k", " or ".join(TASKS), *options)
    text = f"MODEL={model}\nJOURNAL={folder}/journal\nOPTIONS=({shlex.join([*what, *selected])})\n"
    (folder / "settings.sh").write_text(text)


def started(script: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", script],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
