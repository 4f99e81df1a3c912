"""A real Slurm of two nodes: the recipes of `ci/slurm`, and a watch that hands its measurements to `srun`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import slurm_cluster
from tests.helpers.journals import computed_samples, wait_for_samples
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.servers import forget_keys, served_needles

REASON = slurm_cluster.missing()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.whole_loop]
SAMPLES = 24
SECONDS = 600
OPTIONS = ("--suite=ruler", "--lengths=512", f"--samples={SAMPLES}", "--full", "-k", "niah_single_2", "--batch-size=1")
GATE = """
[[gate]]
name = "needles"
kind = "level"
tasks = ["niah_single_2"]
above = 85.6
"""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a cluster for the commands of a test."""
    forget_keys(monkeypatch)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    # The path of munge's socket must be short, and every directory above it safe.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster.slurm_cluster(Path(folder, "cluster")) as environment:
            monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])
            yield


def output_of(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.usefixtures("cluster")
def test_an_array_finishes_all_samples_and_the_gate_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gates.toml").write_text(GATE)
    journal = tmp_path / "journal"
    model = calibration_checkpoint("full")
    with served_needles(100_000, model, delay_seconds=0.4) as server:
        options = shlex.join([*OPTIONS, f"--thresholds={tmp_path}/gates.toml", server])
        (tmp_path / "settings.sh").write_text(f"MODEL={model}\nJOURNAL={journal}\nOPTIONS=({options})\n")
        monkeypatch.setenv("LONGCTX_SETTINGS", str(tmp_path / "settings.sh"))
        monkeypatch.setenv("LONGCTX_PYTEST", str(Path(sys.executable).with_name("pytest")))
        monkeypatch.setenv("LONGCTX_WORKERS", "0")
        monkeypatch.setenv("LONGCTX_REPORT", str(tmp_path / "gate.json"))
        logs = f"--output={tmp_path}/%x-%a.out"
        array = output_of("sbatch", "--parsable", "--array=0-1", logs, "ci/slurm/array.sh")
        after = f"--dependency=afterany:{array}"
        gate = subprocess.Popen(["sbatch", "--wait", after, logs, "ci/slurm/gate.sh"], cwd=REPOSITORY)
        wait_for_samples(journal, 4, SECONDS)
        output_of("scancel", f"{array}_0")
        assert gate.wait(SECONDS) == 0
    computed = computed_samples(journal)
    assert (len(computed), max(computed.values())) == (SAMPLES, 1)
    report = json.loads((tmp_path / "gate.json").read_text())
    assert report["run"]["computed_samples"] == 0
    assert [gate["verdict"] for gate in report["gates"]] == ["pass"]


@pytest.mark.usefixtures("cluster")
def test_a_watch_continues_jobs_that_were_cancelled_and_ends_its_jobs_with_itself(tmp_path: Path) -> None:
    """Cancel the first job, interrupt the watch in a later one, and let the same command finish."""
    (tmp_path / "gates.toml").write_text(GATE)
    (tmp_path / "run").mkdir()
    model = calibration_checkpoint("full")
    (tmp_path / "run" / "step-1").symlink_to(model)
    journal, log = tmp_path / "journal", tmp_path / "watch.log"
    with served_needles(100_000, model, delay_seconds=0.4) as server, log.open("w") as output:
        command = [
            sys.executable, "-m", "longctx", "watch", str(tmp_path / "run"), "--once", "--every", "1s",
            "--out", str(tmp_path / "out"), "--launch", "srun -n1 --gpus=8 --job-name={name} {command}",
            "--parallel", "2", f"--journal={journal}", f"--thresholds={tmp_path}/gates.toml", *OPTIONS, server,
        ]  # fmt: skip
        watch = subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT)
        wait_for_samples(journal, 3, SECONDS)
        output_of("scancel", *output_of("squeue", "--noheader", "--format=%i").split())
        wait_for_samples(journal, 8, SECONDS)
        watch.terminate()
        watch.wait(SECONDS)
        deadline = time.monotonic() + SECONDS
        while output_of("squeue", "--noheader", "--states=running"):
            assert time.monotonic() < deadline, "a job outlives its watch"
            time.sleep(0.2)
        stopped_at = sum(computed_samples(journal).values())
        assert stopped_at < SAMPLES
        assert subprocess.run(command, cwd=REPOSITORY, stdout=output, check=False).returncode == 0
    text = log.read_text()
    assert "was stopped, code 143" in text
    assert "launching it again (1 of 5)" in text
    assert "running on n" in text
    assert "stopped; the same command continues" in text
    computed = computed_samples(journal)
    assert (len(computed), max(computed.values())) == (SAMPLES, 1)
    measured = [json.loads(line) for line in (tmp_path / "out" / "history.jsonl").read_text().splitlines()]
    assert [(line["step"], line["word"]) for line in measured] == [(1, "pass")]
