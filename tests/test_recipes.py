"""Recipes: short, edited in three places, and every option in them is one that pytest, or the shell, takes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers import ChatServer, in_json

REPOSITORY = Path(__file__).parents[1]
CI = REPOSITORY / "ci"
SCRIPTS = sorted(path for folder in ("servers", "slurm") for path in (CI / folder).glob("*.sh"))
MANIFEST = CI / "kubernetes" / "longctx.yaml"
OPTIONS = (REPOSITORY / "plugins/options.py").read_text() + (REPOSITORY / "plugins/report/plugin.py").read_text()
# Programs that a launch line names, each written to a file of arguments by a stand-in.
PROGRAMS = ("vllm", "ray", "python", "pytest")


def known(option: str) -> bool:
    return f'"{option}"' in OPTIONS or option == "-n"


def launched(script: Path, folder: Path, *arguments: str, **environment: str) -> list[list[str]]:
    """What a launch script starts, program by program."""
    for name in PROGRAMS:
        stand_in = folder / name
        stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@" >> {folder}/seen; echo === >> {folder}/seen\n')
        stand_in.chmod(0o755)
    subprocess.run(
        ["bash", str(script), *arguments],
        cwd=REPOSITORY,
        env={"PATH": f"{folder}:/usr/bin:/bin", "LONGCTX_PYTEST": "pytest", **environment},
        check=True,
        timeout=30,
    )
    return [part.strip().split("\n") for part in (folder / "seen").read_text().split("===\n") if part.strip()]


@pytest.mark.parametrize("recipe", [*SCRIPTS, MANIFEST], ids=lambda path: str(path.relative_to(CI)))
def test_a_recipe_is_short_and_edited_in_three_places_or_none(recipe: Path) -> None:
    lines = recipe.read_text().splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 120
    assert sum("# EDIT: " in line for line in lines) in ((0,) if recipe.name in ("array.sh", "gate.sh") else (3,))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(CI)))
def test_a_script_is_valid_bash_and_stops_at_its_first_error(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)
    assert script.name == "settings.sh" or "set -euo pipefail" in script.read_text()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_no_complaint() -> None:
    ended = subprocess.run(
        ["shellcheck", "-x", *SCRIPTS], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_server_is_launched_on_one_node_with_the_model_and_port_of_a_run(server: str, tmp_path: Path) -> None:
    (seen,) = launched(CI / f"servers/{server}.sh", tmp_path, "/ckpt/a b", "8123")
    assert seen[0] == ("vllm" if server == "vllm" else "python")
    assert "/ckpt/a b" in seen
    assert seen[seen.index("--port") + 1] == "8123"
    assert seen[seen.index("--tensor-parallel-size" if server == "vllm" else "--tp") + 1] == "8"
    assert not {"ray", "--nnodes", "--distributed-executor-backend"} & set(seen)


def test_vllm_on_two_nodes_is_a_ray_head_with_the_server_and_a_worker(tmp_path: Path) -> None:
    two = {"NODES": "2", "HEAD": "10.0.0.1"}
    (tmp_path / "head").mkdir()
    (tmp_path / "worker").mkdir()
    ray, served = launched(CI / "servers/vllm.sh", tmp_path / "head", RANK="0", **two)
    assert ray == ["ray", "start", "--head", "--port=6379"]
    assert served[served.index("--pipeline-parallel-size") + 1] == "2"
    assert served[-2:] == ["--distributed-executor-backend", "ray"]
    assert launched(CI / "servers/vllm.sh", tmp_path / "worker", RANK="1", **two) == [
        ["ray", "start", "--address=10.0.0.1:6379", "--block"]
    ]


def test_sglang_on_two_nodes_has_a_rank_on_each(tmp_path: Path) -> None:
    (seen,) = launched(CI / "servers/sglang.sh", tmp_path, NODES="2", HEAD="10.0.0.1", RANK="1")
    assert seen[-6:] == ["--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:20000"]
    assert seen[seen.index("--tp") + 1] == "16"


@pytest.mark.parametrize("script", ["array", "gate"])
def test_a_slurm_script_asks_for_options_that_there_are(script: str, tmp_path: Path) -> None:
    (seen,) = launched(CI / f"slurm/{script}.sh", tmp_path)
    options = [word.partition("=")[0] for word in seen[1:] if word.startswith("-")]
    assert {"--model", "--journal", "--lengths"} <= set(options)
    assert [option for option in options if not known(option)] == []
    assert ("--budget" in options) == (script == "gate")


@pytest.mark.parametrize(("code", "told"), [(0, 0), (1, 0), (2, 2), (4, 4)])
def test_an_array_task_fails_for_wrong_use_and_not_for_a_gate(code: int, told: int, tmp_path: Path) -> None:
    stand_in = tmp_path / "pytest"
    stand_in.write_text(f"#!/bin/sh\nexit {code}\n")
    stand_in.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "LONGCTX_PYTEST": str(stand_in)}
    ended = subprocess.run(["bash", str(CI / "slurm/array.sh")], cwd=REPOSITORY, env=environment, timeout=30)
    assert ended.returncode == told


def test_the_manifest_is_one_server_one_address_and_one_job_that_asks_it() -> None:
    items = {item["kind"]: item for item in yaml.safe_load(MANIFEST.read_text())["items"]}
    assert list(items) == ["ConfigMap", "Deployment", "Service", "Job"]
    settings = items["ConfigMap"]["data"]
    server, job = (items[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job"))
    assert server["volumes"] == job["volumes"]
    labels = items["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert items["Service"]["spec"]["selector"].items() <= labels.items()
    (asked,) = [word for word in job["containers"][0]["command"] if word.startswith("--base-url=")]
    assert asked == f"--base-url=http://{items['Service']['metadata']['name']}:8000/v1"
    options = [word.partition("=")[0] for word in job["containers"][0]["command"][1:] if word.startswith("-")]
    assert [option for option in options if not known(option)] == []
    for container in (server["containers"][0], job["containers"][0]):
        words: list[Any] = [*container.get("args", ()), *container.get("command", ())]
        assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= set(settings)
        keys = [each["name"] for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})]
        assert keys in (["VLLM_API_KEY"], ["LONGCTX_API_KEY"])


def test_the_server_of_the_manifest_is_launched_as_the_script_launches_it(tmp_path: Path) -> None:
    """Options that one of them has and the other has not would be two different instruments."""
    (seen,) = launched(CI / "servers/vllm.sh", tmp_path, "$(MODEL)", "8000")
    items = {item["kind"]: item for item in yaml.safe_load(MANIFEST.read_text())["items"]}
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:3] == seen[:3] == ["vllm", "serve", "$(MODEL)"]
    options = {word.partition("=")[0] for word in container["command"][3:]}
    own = {word for word in seen if word.startswith("--")} - options
    # The image listens on all addresses, at its own port.
    assert own == {"--host", "--port", "--pipeline-parallel-size"}
    (batch,) = [each["value"] for each in container["env"] if each["name"] == "VLLM_BATCH_INVARIANT"]
    assert batch in (CI / "servers/vllm.sh").read_text().partition("VLLM_BATCH_INVARIANT:-")[2][:1]


def test_the_job_waits_until_its_server_is_well(tmp_path: Path) -> None:
    """Both begin at once, and a run whose server is not there is wrong use, which ends the job for good."""
    items = {item["kind"]: item for item in yaml.safe_load(MANIFEST.read_text())["items"]}
    (waiting,) = items["Job"]["spec"]["template"]["spec"]["initContainers"]
    address = f"http://{items['Service']['metadata']['name']}:8000/health"
    with ChatServer().serving() as server:
        server.models = in_json({}, status=503)
        here = server.url.replace("/v1", "/health")
        for name, line in {"python": f'exec {sys.executable} "$@"', "sleep": "exec /bin/sleep 0.1"}.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
            (tmp_path / name).chmod(0o755)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NO_PROXY": "127.0.0.1"}
        command = [word.replace(address, here) for word in waiting["command"]]
        assert here in command
        job = subprocess.Popen(command, env=environment)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                job.wait(2)
            server.models = in_json({})
            assert job.wait(30) == 0
        finally:
            job.kill()


def test_the_manifest_follows_the_schemas_of_kubernetes() -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for item in yaml.safe_load(MANIFEST.read_text())["items"]:
        schemas.validate(item, schemas.latest_version(), strict=True)


def test_every_command_that_a_recipe_tells_is_one_that_a_shell_can_read() -> None:
    told = [line.strip("# ").partition(":")[2] for path in SCRIPTS for line in path.read_text().splitlines()]
    commands = [line.strip() for line in told if line.strip().startswith("pytest ")]
    assert commands
    for command in commands:
        options = [word for word in shlex.split(command) if word.startswith("--")]
        assert [option for option in options if not known(option.partition("=")[0])] == []
