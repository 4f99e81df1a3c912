"""Recipes: short, edited in three places, and every option in them is one that pytest, or the shell, takes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures.engines.openai.probe import is_ready
from fixtures.engines.openai.server_process import ServeError, ServerProcess, free_port, split_command
from tests.helpers.paths import REPOSITORY
from tests.helpers.servers import ChatServer, in_json

CI = REPOSITORY / "ci"
SCRIPTS = sorted(path for folder in ("servers", "slurm") for path in (CI / folder).glob("*.sh"))
MANIFEST = CI / "kubernetes" / "longctx.yaml"
OPTIONS = (REPOSITORY / "plugins/options.py").read_text() + (REPOSITORY / "plugins/reports.py").read_text()
DOCKERFILE = MANIFEST.with_name("Dockerfile")
# Programs that a launch line names, each written to a file of arguments by a stand-in.
SERVER_PROGRAMS = ("vllm", "ray", "python")
# Listens where it is told to, whatever else it is told.
LISTENING = f"""#!{sys.executable}
import argparse, http.server
parser = argparse.ArgumentParser()
parser.add_argument("--host")
parser.add_argument("--port", type=int)
given = parser.parse_known_args()[0]
http.server.HTTPServer((given.host, given.port), http.server.BaseHTTPRequestHandler).serve_forever()
"""
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
# A plan with the gates of the clone; 9 where a module of the suite came from elsewhere than this folder.
PLAN = """
import pathlib, pytest, sys
code = pytest.main(["--model=calibration:full", "--lengths=4k", "--plan"])
own = [module for name, module in sys.modules.items() if name.partition(".")[0] in ("fixtures", "plugins")]
here = [pathlib.Path.cwd() in pathlib.Path(module.__file__).parents for module in own if module.__file__]
sys.exit(code if here and all(here) else 9)
"""


def known(option: str) -> bool:
    return f'"{option}"' in OPTIONS or option == "-n"


def program(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def launched(words: list[str], folder: Path, **environment: str) -> list[list[str]]:
    """What a command starts, program by program; those of a server are in an environment of their own."""
    for file in (folder / "pytest", *(folder / "server/bin" / name for name in SERVER_PROGRAMS)):
        told = f'printf "%s\\n" {file.name} "$@" >> {folder}/seen; echo === >> {folder}/seen'
        program(file, f"#!/bin/sh\n{told}\n")
    paths = {"PATH": f"{folder}:/usr/bin:/bin", "SERVER_ENV": str(folder / "server"), "LONGCTX_PYTEST": "pytest"}
    subprocess.run(words, cwd=REPOSITORY, env=paths | environment, check=True, timeout=30)
    return [part.strip().split("\n") for part in (folder / "seen").read_text().split("===\n") if part.strip()]


def served(server: str, folder: Path, port: str = "8000", **environment: str) -> list[list[str]]:
    return launched(["bash", str(CI / f"servers/{server}.sh"), "/ckpt/a b", port], folder, **environment)


def manifest(text: str | None = None) -> dict[str, Any]:
    items = yaml.safe_load(text or MANIFEST.read_text())["items"]
    return {item["kind"]: item for item in items}


@pytest.mark.parametrize("recipe", [*SCRIPTS, MANIFEST, DOCKERFILE], ids=lambda path: str(path.relative_to(CI)))
def test_a_recipe_is_short_and_edited_in_three_places_or_none(recipe: Path) -> None:
    lines = recipe.read_text().splitlines()
    assert len(lines) <= 100
    assert max(map(len, lines)) <= 120
    edited = [at for at, line in enumerate(lines) if "# EDIT: " in line]
    if recipe == MANIFEST:
        # One place: a block.
        assert edited == list(range(edited[0], edited[-1] + 1))
        assert [lines[at].split(":")[0].strip() for at in edited] == list(manifest()["ConfigMap"]["data"])
    else:
        assert len(edited) == (0 if recipe.name in ("array.sh", "gate.sh", "Dockerfile") else 3)


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
    (seen,) = served(server, tmp_path, "8123")
    assert seen[0] == ("vllm" if server == "vllm" else "python")
    assert "/ckpt/a b" in seen
    assert seen[seen.index("--port") + 1] == "8123"
    assert seen[seen.index("--host") + 1] == "127.0.0.1"
    assert seen[seen.index("--tensor-parallel-size" if server == "vllm" else "--tp") + 1] == "8"
    assert not {"ray", "--nnodes", "--distributed-executor-backend"} & set(seen)


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_server_listens_where_others_reach_it_if_it_is_told_to(server: str, tmp_path: Path) -> None:
    (seen,) = served(server, tmp_path, SERVER_HOST="10.0.0.7")
    assert seen[seen.index("--host") + 1] == "10.0.0.7"


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_run_finds_a_server_in_an_environment_of_its_own(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / ("vllm" if server == "vllm" else "python"), LISTENING)
    monkeypatch.setenv("SERVER_ENV", str(tmp_path))
    port = free_port()
    words = split_command(f"bash {CI}/servers/{server}.sh {{model}} {{port}}", model="/ckpt", port=port)
    started = ServerProcess(words, tmp_path / "log")
    try:
        started.wait(lambda: is_ready(f"http://127.0.0.1:{port}/v1"), seconds=30)
    finally:
        started.stop()


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_a_run_says_in_one_line_that_the_servers_environment_is_missing(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server beside pytest is not the one that was meant.
    program(tmp_path / "vllm", LISTENING)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SERVER_ENV", raising=False)
    started = ServerProcess(["bash", str(CI / f"servers/{server}.sh"), "/ckpt", "1"], tmp_path / "log")
    try:
        with pytest.raises(ServeError, match=rf"{server}\.sh: SERVER_ENV: no bin/\w+ in .*; install .* set SERVER_ENV"):
            started.wait(lambda: False, seconds=30)
    finally:
        started.stop()
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_vllm_on_two_nodes_is_a_ray_head_with_the_server_and_a_worker(tmp_path: Path) -> None:
    two = {"NODES": "2", "HEAD": "10.0.0.1"}
    ray, head = served("vllm", tmp_path / "head", RANK="0", **two)
    assert ray == ["ray", "start", "--head", "--port=6379"]
    assert head[head.index("--pipeline-parallel-size") + 1] == "2"
    assert head[head.index("--host") + 1] == "0.0.0.0"
    assert head[-2:] == ["--distributed-executor-backend", "ray"]
    assert served("vllm", tmp_path / "worker", RANK="1", **two) == [
        ["ray", "start", "--address=10.0.0.1:6379", "--block"]
    ]


def test_sglang_on_two_nodes_has_a_rank_on_each(tmp_path: Path) -> None:
    (seen,) = served("sglang", tmp_path, NODES="2", HEAD="10.0.0.1", RANK="1")
    assert seen[-6:] == ["--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:20000"]
    assert seen[seen.index("--tp") + 1] == "16"
    assert seen[seen.index("--host") + 1] == "0.0.0.0"


@pytest.mark.parametrize("script", ["array", "gate"])
def test_a_slurm_script_asks_for_options_that_there_are(script: str, tmp_path: Path) -> None:
    (seen,) = launched(["bash", str(CI / f"slurm/{script}.sh")], tmp_path)
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
    items = manifest()
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
        assert container["envFrom"] == [{"configMapRef": {"name": items["ConfigMap"]["metadata"]["name"]}}]
        keys = [each["name"] for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})]
        assert keys in (["VLLM_API_KEY"], ["LONGCTX_API_KEY"])


def test_the_server_of_the_manifest_is_launched_as_the_script_launches_it(tmp_path: Path) -> None:
    """Options that one of them has and the other has not would be two different instruments."""
    (script,) = served("vllm", tmp_path / "script")
    items = manifest()
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    server = launched_by_manifest(items, tmp_path / "manifest", MODEL="/ckpt/a b")
    # The image listens on all addresses, at its own port.
    for option in ("--host", "--port", "--pipeline-parallel-size"):
        at = script.index(option)
        del script[at : at + 2]
    assert server == script
    (batch,) = [each["value"] for each in container["env"] if each["name"] == "VLLM_BATCH_INVARIANT"]
    assert batch in (CI / "servers/vllm.sh").read_text().partition("VLLM_BATCH_INVARIANT:-")[2][:1]


def launched_by_manifest(items: dict[str, Any], folder: Path, **changes: str) -> list[str]:
    """The words of the server's command, its programs found as in the image."""
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    environment = {"PATH": f"{folder}/server/bin:/usr/bin:/bin"} | items["ConfigMap"]["data"] | changes
    (seen,) = launched([*container["command"], *container["args"]], folder, **environment)
    return seen


@pytest.mark.parametrize(("lengths", "longest"), [("4k,8k", 8192), ("1M, 128k", 1048576), ("5000,4k", 5000)])
def test_what_is_edited_in_the_manifest_is_edited_everywhere(lengths: str, longest: int, tmp_path: Path) -> None:
    text = MANIFEST.read_text()
    for name, value in {"LENGTHS": lengths, "GPUS": '"2"', "CLAIM": "mine", "IMAGE": "here/gates:7"}.items():
        text, count = re.subn(rf"^( +{name}: (?:&\w+ )?).*(?= # EDIT: )", rf"\g<1>{value}", text, flags=re.MULTILINE)
        assert count == 1
    items = manifest(text)
    server = launched_by_manifest(items, tmp_path)
    assert server[server.index("--max-model-len") + 1] == str(longest)
    assert server[server.index("--tensor-parallel-size") + 1] == "2"
    serving, job = (items[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job"))
    assert serving["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert serving["volumes"][0]["persistentVolumeClaim"] == {"claimName": "mine"}
    assert {each["image"] for each in (*job["initContainers"], *job["containers"])} == {"here/gates:7"}
    assert "--lengths=$(LENGTHS)" in job["containers"][0]["command"]


@pytest.mark.parametrize(("word", "code"), [("Complete", 0), ("Failed", 1)])
def test_the_told_command_ends_with_the_job_and_says_what_came_of_it(word: str, code: int, tmp_path: Path) -> None:
    """A stand-in for kubectl, whose job ends at the third look; a wait that is not answered at once lasts."""
    program(
        tmp_path / "kubectl",
        f"""#!/bin/bash
echo "$1" >> {tmp_path}/seen
case "$1 $*" in
get*) [ "$(grep -c get {tmp_path}/seen)" -lt 3 ] && echo FailureTarget || echo FailureTarget {word} ;;
wait*=condition={word.lower()}*) ;;
wait*--timeout=0s*) exit 1 ;;
wait*) exec /bin/sleep 60 ;;
esac
""",
    )
    program(tmp_path / "sleep", "#!/bin/sh\n")
    told = [line.removeprefix("#   ") for line in MANIFEST.read_text().splitlines() if line.startswith("#   ")]
    lines = told[next(at for at, line in enumerate(told) if line.startswith("kubectl apply")) :]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ended = subprocess.run(["bash", "-c", "\n".join(lines)], env=path, check=False, timeout=10)
    assert ended.returncode == code
    assert (tmp_path / "seen").read_text().split() == ["apply", "get", "get", "get", "logs", "wait"]


def test_the_manifest_says_how_the_image_is_built_that_it_names() -> None:
    (told,) = [line for line in MANIFEST.read_text().splitlines() if line.startswith("#   docker build ")]
    words = shlex.split(told.partition("(")[0].strip("# "))
    assert REPOSITORY / words[words.index("--file") + 1] == DOCKERFILE
    assert words[words.index("--tag") + 1] == manifest()["ConfigMap"]["data"]["IMAGE"]
    assert words[-1] == "."


def test_the_image_holds_all_that_the_suite_is_run_from(tmp_path: Path) -> None:
    text = DOCKERFILE.read_text().replace("\\\n", "")
    orders = [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#")]
    assert orders[0] == ["FROM", f"python:{PROJECT['requires-python'].removeprefix('>=')}-slim"]
    for *sources, target in (words[1:] for words in orders if words[0] == "COPY"):
        for source in sources:
            place, copied = REPOSITORY / source, tmp_path / target / (source if target == "./" else "")
            shutil.copytree(place, copied) if place.is_dir() else shutil.copy(place, copied)
    (install,) = [words[1:] for words in orders if words[0] == "RUN"]
    assert install[:2] == ["pip", "install"]
    assert (install[install.index("--constraint") + 1], install[-2:]) == ("constraints.txt", ["--editable", "."])
    ended = subprocess.run(
        [sys.executable, "-c", PLAN], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_the_job_waits_until_its_server_is_well(tmp_path: Path) -> None:
    """Both begin at once, and a run whose server is not there is wrong use, which ends the job for good."""
    items = manifest()
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
