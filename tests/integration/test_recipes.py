"""Recipes for servers and Slurm are short, have three places to edit, and use only existing options."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longctx.fixtures.engines.openai.probe import is_ready
from longctx.fixtures.engines.openai.server_process import ServeError, ServerProcess, free_port, split_command
from longctx.plugins.config.options import RUN_OPTIONS
from tests.helpers.paths import REPOSITORY
from tests.helpers.recipes import (
    CI,
    DOCKERFILE,
    MANIFEST,
    SCRIPTS,
    launched,
    launched_server,
    manifest,
    write_program,
)

# A fake server that listens on --host and --port and ignores all other arguments.
LISTENING = f"""#!{sys.executable}
import argparse, http.server
parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
args = parser.parse_known_args()[0]
http.server.HTTPServer((args.host, args.port), http.server.BaseHTTPRequestHandler).serve_forever()
"""


@pytest.mark.parametrize("recipe", [*SCRIPTS, MANIFEST, DOCKERFILE], ids=lambda path: str(path.relative_to(CI)))
def test_a_recipe_is_short_and_has_three_places_to_edit_or_none(recipe: Path) -> None:
    lines = recipe.read_text().splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 120
    edited = [at for at, line in enumerate(lines) if "# EDIT: " in line]
    if recipe == MANIFEST:
        # The manifest has one block to edit.
        assert edited == list(range(edited[0], edited[-1] + 1))
        assert [lines[at].split(":")[0].strip() for at in edited] == list(manifest()["ConfigMap"]["data"])
    else:
        assert len(edited) == (0 if recipe.name in ("array.sh", "gate.sh", "vllm-cpu.sh", "Dockerfile") else 3)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(CI)))
def test_a_script_is_valid_bash_and_stops_at_its_first_error(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=120)
    assert script.name == "settings.sh" or "set -euo pipefail" in script.read_text()


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_server_starts_on_one_node_with_the_model_and_port_of_a_run(server: str, tmp_path: Path) -> None:
    (seen,) = launched_server(server, tmp_path, "8123", SERVER_HOST="10.0.0.7")
    assert seen[0] == ("vllm" if server == "vllm" else "python")
    assert "/ckpt/a b" in seen
    assert seen[seen.index("--port") + 1] == "8123"
    assert seen[seen.index("--host") + 1] == "10.0.0.7"
    assert seen[seen.index("--tensor-parallel-size" if server == "vllm" else "--tp") + 1] == "8"
    assert not {"ray", "--nnodes", "--distributed-executor-backend"} & set(seen)


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_run_starts_a_server_from_its_own_environment(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "bin" / ("vllm" if server == "vllm" else "python"), LISTENING)
    monkeypatch.setenv("SERVER_ENV", str(tmp_path))
    port = free_port()
    words = split_command(f"bash {CI}/servers/{server}.sh {{model}} {{port}}", model="/ckpt", port=port)
    started = ServerProcess(words, tmp_path / "log")
    try:
        started.wait(lambda: is_ready(f"http://127.0.0.1:{port}/v1"), seconds=120)
    finally:
        started.stop()


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_missing_server_environment_is_reported_in_one_line(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server program beside pytest must not be used instead.
    write_program(tmp_path / "vllm", LISTENING)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SERVER_ENV", raising=False)
    started = ServerProcess(["bash", str(CI / f"servers/{server}.sh"), "/ckpt", "1"], tmp_path / "log")
    try:
        with pytest.raises(ServeError, match=rf"{server}\.sh: SERVER_ENV: no bin/\w+ in .*; install .* set SERVER_ENV"):
            started.wait(lambda: False, seconds=120)
    finally:
        started.stop()
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_vllm_on_two_nodes_starts_a_ray_head_with_the_server_and_a_ray_worker(tmp_path: Path) -> None:
    two = {"NODES": "2", "HEAD": "10.0.0.1"}
    ray, head = launched_server("vllm", tmp_path / "head", RANK="0", **two)
    assert ray == ["ray", "start", "--head", "--port=6379"]
    assert head[head.index("--pipeline-parallel-size") + 1] == "2"
    assert head[head.index("--host") + 1] == "0.0.0.0"
    assert head[-2:] == ["--distributed-executor-backend", "ray"]
    assert launched_server("vllm", tmp_path / "worker", RANK="1", **two) == [
        ["ray", "start", "--address=10.0.0.1:6379", "--block"]
    ]


def test_vllm_in_a_job_of_ray_uses_the_cluster_of_the_job(tmp_path: Path) -> None:
    (seen,) = launched_server("vllm", tmp_path, NODES="2", RAY_ADDRESS="10.0.0.1:6379")
    assert seen[0] == "vllm"
    assert seen[-2:] == ["--distributed-executor-backend", "ray"]


def test_sglang_on_two_nodes_has_a_rank_on_every_node(tmp_path: Path) -> None:
    (seen,) = launched_server("sglang", tmp_path, NODES="2", HEAD="10.0.0.1", RANK="1")
    assert seen[-6:] == ["--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:20000"]
    assert seen[seen.index("--tp") + 1] == "16"
    assert seen[seen.index("--host") + 1] == "0.0.0.0"


@pytest.mark.parametrize("script", ["array", "gate"])
def test_a_slurm_script_uses_existing_options(script: str, tmp_path: Path) -> None:
    (seen,) = launched(["bash", str(CI / f"slurm/{script}.sh")], tmp_path)
    options = [word.partition("=")[0] for word in seen[1:] if word.startswith("-")]
    assert {"--model", "--journal", "--lengths"} <= set(options)
    assert [option for option in options if option not in RUN_OPTIONS] == []
    assert ("--budget" in options) == (script == "gate")


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 0), (2, 2), (4, 4)])
def test_an_array_task_fails_for_wrong_use_and_not_for_a_failed_gate(code: int, expected: int, tmp_path: Path) -> None:
    fake_pytest = tmp_path / "pytest"
    write_program(fake_pytest, f"#!/bin/sh\nexit {code}\n")
    environment = {"PATH": "/usr/bin:/bin", "LONGCTX_PYTEST": str(fake_pytest)}
    ended = subprocess.run(["bash", str(CI / "slurm/array.sh")], cwd=REPOSITORY, env=environment, timeout=120)
    assert ended.returncode == expected


def test_documented_commands_can_be_parsed_and_use_existing_options() -> None:
    documented = [line.strip("# ").partition(":")[2] for path in SCRIPTS for line in path.read_text().splitlines()]
    commands = [line.strip() for line in documented if line.strip().startswith("pytest ")]
    assert commands
    for command in commands:
        options = [word for word in shlex.split(command) if word.startswith("--")]
        assert [option for option in options if option.partition("=")[0] not in RUN_OPTIONS] == []
