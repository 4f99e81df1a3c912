"""The manifest for Kubernetes: a server, an address and a Job that fit together, and an image with the suite."""

import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from longctx.plugins.config.options import RUN_OPTIONS
from tests.helpers.paths import REPOSITORY
from tests.helpers.recipes import (
    CI,
    DOCKERFILE,
    MANIFEST,
    launched,
    launched_server,
    manifest,
    write_program,
)
from tests.helpers.servers import ChatServer, Response, in_json

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
# Print a plan with the clone's gates; exit with 9 if a module of the suite comes from another folder.
PLAN = """
import pathlib, pytest, sys
code = pytest.main(["--model=calibration:full", "--lengths=4k", "--plan"])
own = [module for name, module in sys.modules.items() if name.startswith(("longctx.fixtures.", "longctx.plugins."))]
here = [pathlib.Path.cwd() in pathlib.Path(module.__file__).parents for module in own if module.__file__]
sys.exit(code if here and all(here) else 9)
"""


def test_the_manifest_has_one_server_one_address_and_one_job_that_uses_it() -> None:
    items = manifest()
    assert list(items) == ["ConfigMap", "Deployment", "Service", "Job"]
    settings = items["ConfigMap"]["data"]
    server, job = (items[kind]["spec"]["template"]["spec"] for kind in ("Deployment", "Job"))
    assert server["volumes"] == job["volumes"]
    labels = items["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert items["Service"]["spec"]["selector"].items() <= labels.items()
    (base_url,) = [word for word in job["containers"][0]["command"] if word.startswith("--base-url=")]
    assert base_url == f"--base-url=http://{items['Service']['metadata']['name']}:8000/v1"
    options = [word.partition("=")[0] for word in job["containers"][0]["command"][1:] if word.startswith("-")]
    assert [option for option in options if option not in RUN_OPTIONS] == []
    for container in (server["containers"][0], job["containers"][0]):
        words: list[Any] = [*container.get("args", ()), *container.get("command", ())]
        assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= set(settings)
        assert container["envFrom"] == [{"configMapRef": {"name": items["ConfigMap"]["metadata"]["name"]}}]
        keys = [variable["name"] for variable in container["env"] if "secretKeyRef" in variable.get("valueFrom", {})]
        assert keys in (["VLLM_API_KEY"], ["LONGCTX_API_KEY"])


def test_the_server_of_the_manifest_has_the_options_of_the_script(tmp_path: Path) -> None:
    """Check that both launch lines agree, since other options could give other scores."""
    (script,) = launched_server("vllm", tmp_path / "script")
    items = manifest()
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    server = launched_by_manifest(items, tmp_path / "manifest", MODEL="/ckpt/a b")
    # The image listens on all addresses and on its own port.
    for option in ("--host", "--port", "--pipeline-parallel-size"):
        at = script.index(option)
        del script[at : at + 2]
    assert server == script
    (batch,) = [variable["value"] for variable in container["env"] if variable["name"] == "VLLM_BATCH_INVARIANT"]
    assert batch in (CI / "servers/vllm.sh").read_text().partition("VLLM_BATCH_INVARIANT:-")[2][:1]


def launched_by_manifest(items: dict[str, Any], folder: Path, **changes: str) -> list[str]:
    """Return the arguments of the manifest's server, with its programs on the path as in the image."""
    (container,) = items["Deployment"]["spec"]["template"]["spec"]["containers"]
    environment = {"PATH": f"{folder}/server/bin:/usr/bin:/bin"} | items["ConfigMap"]["data"] | changes
    (seen,) = launched([*container["command"], *container["args"]], folder, **environment)
    return seen


@pytest.mark.parametrize(("lengths", "longest"), [("4k,8k", 8192), ("1M, 128k", 1048576), ("5000,4k", 5000)])
def test_an_edit_of_the_manifest_takes_effect_everywhere(lengths: str, longest: int, tmp_path: Path) -> None:
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
    assert {container["image"] for container in (*job["initContainers"], *job["containers"])} == {"here/gates:7"}
    assert "--lengths=$(LENGTHS)" in job["containers"][0]["command"]


@pytest.mark.parametrize(("word", "code"), [("Complete", 0), ("Failed", 1)])
def test_the_documented_command_ends_with_the_job_and_has_its_result(word: str, code: int, tmp_path: Path) -> None:
    """Fake kubectl with a job that ends at the third query; a wait for another result would last a minute."""
    write_program(
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
    write_program(tmp_path / "sleep", "#!/bin/sh\n")
    documented = [line.removeprefix("#   ") for line in MANIFEST.read_text().splitlines() if line.startswith("#   ")]
    lines = documented[next(at for at, line in enumerate(documented) if line.startswith("kubectl apply")) :]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ended = subprocess.run(["bash", "-c", "\n".join(lines)], env=path, check=False, timeout=50)
    assert ended.returncode == code
    assert (tmp_path / "seen").read_text().split() == ["apply", "get", "get", "get", "logs", "wait"]


def test_the_manifest_documents_how_to_build_its_image() -> None:
    (documented,) = [line for line in MANIFEST.read_text().splitlines() if line.startswith("#   docker build ")]
    words = shlex.split(documented.partition("(")[0].strip("# "))
    assert REPOSITORY / words[words.index("--file") + 1] == DOCKERFILE
    assert words[words.index("--tag") + 1] == manifest()["ConfigMap"]["data"]["IMAGE"]
    assert words[-1] == "."


@pytest.mark.whole_loop
def test_the_image_contains_everything_that_the_suite_needs(tmp_path: Path) -> None:
    text = DOCKERFILE.read_text().replace("\\\n", "")
    instructions = [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#")]
    assert instructions[0] == ["FROM", f"python:{PROJECT['requires-python'].removeprefix('>=')}-slim"]
    for *sources, target in (words[1:] for words in instructions if words[0] == "COPY"):
        for source in sources:
            original, copied = REPOSITORY / source, tmp_path / target / (source if target == "./" else "")
            shutil.copytree(original, copied, symlinks=True) if original.is_dir() else shutil.copy(original, copied)
    (install,) = [words[1:] for words in instructions if words[0] == "RUN"]
    assert install[:2] == ["pip", "install"]
    assert (install[install.index("--constraint") + 1], install[-2:]) == ("constraints.txt", ["--editable", "."])
    ended = subprocess.run(
        [sys.executable, "-c", PLAN], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_the_job_waits_until_its_server_is_healthy(tmp_path: Path) -> None:
    """Check the wait of the init container: both pods start together, and a run without a server would end the Job."""
    items = manifest()
    (waiting,) = items["Job"]["spec"]["template"]["spec"]["initContainers"]
    address = f"http://{items['Service']['metadata']['name']}:8000/health"
    checks: list[Response] = []

    def unhealthy() -> Response:
        checks.append(in_json({}, status=503))
        return checks[-1]

    with ChatServer().serving() as server:
        server.list_models = unhealthy
        here = server.url.replace("/v1", "/health")
        for name, line in {"python": f'exec {sys.executable} "$@"', "sleep": "exec /bin/sleep 0.1"}.items():
            write_program(tmp_path / name, f"#!/bin/sh\n{line}\n")
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NO_PROXY": "127.0.0.1"}
        command = [word.replace(address, here) for word in waiting["command"]]
        assert here in command
        job = subprocess.Popen(command, env=environment)
        try:
            while len(checks) < 3 and job.poll() is None:
                time.sleep(0.02)
            assert job.poll() is None
            server.list_models = lambda: in_json({})
            assert job.wait(300) == 0
        finally:
            job.kill()
