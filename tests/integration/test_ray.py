"""A real Ray of two nodes: the suite's workers as its tasks, and a server that needs both nodes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import ray_cluster
from tests.helpers.journals import computed_samples, wait_for_samples
from tests.helpers.paths import REPOSITORY
from tests.helpers.recipes import CI, write_program
from tests.helpers.runs import calibration_checkpoint, run_pytest
from tests.helpers.servers import forget_keys, served_needles

REASON = ray_cluster.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
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
# So many of the 512 tokens are seen: some samples are answered and some are not.
REACH = 200
# Takes the GPUs that a vLLM of this size takes from Ray, and answers needles on the port.
VLLM = """#!{ray_python}
import argparse, os, subprocess, ray
from ray.util.placement_group import placement_group
parser = argparse.ArgumentParser()
parser.add_argument("words", nargs=2)
parser.add_argument("--port")
parser.add_argument("--tensor-parallel-size", type=int)
parser.add_argument("--pipeline-parallel-size", type=int)
parser.add_argument("--distributed-executor-backend", choices=["ray"], required=True)
args = parser.parse_known_args()[0]
ray.init(os.environ["RAY_ADDRESS"])
group = placement_group([{{"GPU": 1}}] * args.tensor_parallel_size * args.pipeline_parallel_size)
ray.get(group.ready(), timeout=300)
nodes = ray.util.placement_group_table(group)["bundles_to_node_id"].values()
open("{folder}/nodes", "w").write(" ".join(nodes))
subprocess.run(["{python}", "{folder}/serve.py", args.words[1], args.port])
"""
SERVE = """
import sys, time
from pathlib import Path
sys.path.insert(0, "{repository}")
from tests.helpers.servers import ChatServer, needles_within
server = ChatServer(int(sys.argv[2]))
server.answer = needles_within(100_000, Path(sys.argv[1]))
with server.serving():
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ray_cluster.RayCluster]:
    """Two nodes for all tests of this module: they take half a minute to start."""
    # The path of Ray's sockets must be short.
    folder = tempfile.TemporaryDirectory(prefix="ray-")
    with folder, ray_cluster.ray_cluster(Path(folder.name, "c")) as cluster:
        yield cluster


@pytest.fixture
def environment(cluster: ray_cluster.RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables of commands on the cluster, and a gate in the test's directory."""
    forget_keys(monkeypatch)
    (tmp_path / "gates.toml").write_text(GATE)
    return {name: value for name, value in (os.environ | cluster.environment).items() if not name.startswith("PYTEST_")}


def workers(model: Path, folder: Path, server: str) -> list[str]:
    """Return the command of two workers."""
    options = (f"--model={model}", f"--thresholds={folder}/gates.toml", *OPTIONS, server)
    files = (f"--journal={folder}/journal", f"--report-json={folder}/ray.json")
    python = str(ray_cluster.ray_python())
    return [python, "-m", "longctx.ci.ray", "--workers", "2", "--python", sys.executable, "--", *options, *files]


def tasks_with_a_run_on(journal: Path) -> list[int]:
    """Return the processes of Ray that run the suite on a journal."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, status = (process / "cmdline").read_text(), (process / "stat").read_text()
            parent = int(status.rpartition(")")[2].split()[1])
            is_task = Path(f"/proc/{parent}/comm").read_text().startswith("ray::")
        except OSError:
            continue
        if is_task and f"--journal={journal}" in command.split("\0"):
            found.append(parent)
    return found


def test_workers_finish_the_samples_of_a_task_that_was_killed_and_have_the_verdict_of_one_process(
    environment: dict[str, str], tmp_path: Path
) -> None:
    model, journal = calibration_checkpoint("full"), tmp_path / "journal"
    with served_needles(REACH, model, delay_seconds=0.3) as server, (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(
            workers(model, tmp_path, server), cwd=REPOSITORY, env=environment, stdout=log, stderr=log
        )
        wait_for_samples(journal, 4, SECONDS)
        os.kill(tasks_with_a_run_on(journal)[0], signal.SIGKILL)
        assert running.wait(SECONDS) == 1, (tmp_path / "log").read_text()
        (tmp_path / "alone").mkdir()
        gates = f"--thresholds={tmp_path}/gates.toml"
        alone = run_pytest(
            tmp_path / "alone",
            f"--model={model}",
            gates,
            *OPTIONS,
            server,
            f"--report-json={tmp_path}/alone/report.json",
        )
    computed = computed_samples(journal)
    assert (len(computed), max(computed.values()) <= 2, computed.total() <= SAMPLES + 1) == (SAMPLES, True, True)
    report = json.loads((tmp_path / "ray.json").read_text())
    assert report["run"]["computed_samples"] == 0
    assert 0 < report["cases"][0]["score"] < 100
    for name in ("id", "score", "samples"):
        assert [case[name] for case in report["cases"]] == [case[name] for case in alone.report["cases"]]
    for name in ("name", "verdict", "measured"):
        assert [gate[name] for gate in report["gates"]] == [gate[name] for gate in alone.report["gates"]]
    assert (alone.exit_code, report["gates"][0]["verdict"]) == (1, "fail")
    assert "A worker died or was killed" in (tmp_path / "log").read_text()


def test_a_run_on_ray_starts_its_server_on_the_gpus_of_both_nodes(environment: dict[str, str], tmp_path: Path) -> None:
    model = calibration_checkpoint("full")
    names = {"ray_python": ray_cluster.ray_python(), "folder": tmp_path, "python": sys.executable}
    write_program(tmp_path / "env/bin/vllm", VLLM.format(**names))
    (tmp_path / "serve.py").write_text(SERVE.format(repository=REPOSITORY))
    # The edit of somebody whose nodes have four GPUs.
    script = (CI / "servers/vllm.sh").read_text().replace("GPUS=8 ", "GPUS=4 ")
    (tmp_path / "vllm.sh").write_text(script)
    serve = f"env NODES=2 SERVER_ENV={tmp_path}/env bash {tmp_path}/vllm.sh {{model}} {{port}}"
    run = (
        sys.executable, "-m", "longctx", "run", f"--model={model}", "--serve", serve, *OPTIONS,
        f"--thresholds={tmp_path}/gates.toml", f"--journal={tmp_path}/journal", f"--report-json={tmp_path}/report.json",
    )  # fmt: skip
    ended = subprocess.run(
        ["ray", "job", "submit", "--", *run], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert ended.returncode == 0, shlex.join(run) + ended.stdout + ended.stderr
    assert [gate["verdict"] for gate in json.loads((tmp_path / "report.json").read_text())["gates"]] == ["pass"]
    nodes = (tmp_path / "nodes").read_text().split()
    assert (len(nodes), len(set(nodes))) == (8, 2)
