"""The recipes under ci/: their files, and the programs that their scripts start."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.paths import REPOSITORY

CI = REPOSITORY / "ci"
SCRIPTS = sorted(path for folder in ("servers", "slurm") for path in (CI / folder).glob("*.sh"))
MANIFEST = CI / "kubernetes" / "longctx.yaml"
DOCKERFILE = MANIFEST.with_name("Dockerfile")
# Programs that a launch line may start; fakes of them write their arguments to a file.
SERVER_PROGRAMS = ("vllm", "ray", "python")


def write_program(file: Path, text: str) -> None:
    """Write an executable file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def launched(words: list[str], folder: Path, **environment: str) -> list[list[str]]:
    """Return the arguments of every program that a command starts; server programs are in their own environment."""
    for file in (folder / "pytest", *(folder / "server/bin" / name for name in SERVER_PROGRAMS)):
        log = f'printf "%s\\n" {file.name} "$@" >> {folder}/seen; echo === >> {folder}/seen'
        write_program(file, f"#!/bin/sh\n{log}\n")
    paths = {"PATH": f"{folder}:/usr/bin:/bin", "SERVER_ENV": str(folder / "server"), "LONGCTX_PYTEST": "pytest"}
    subprocess.run(words, cwd=REPOSITORY, env=paths | environment, check=True, timeout=120)
    return [part.strip().split("\n") for part in (folder / "seen").read_text().split("===\n") if part.strip()]


def launched_server(server: str, folder: Path, port: str = "8000", **environment: str) -> list[list[str]]:
    """Return the arguments of every program that a server script starts."""
    return launched(["bash", str(CI / f"servers/{server}.sh"), "/ckpt/a b", port], folder, **environment)


def manifest(text: str | None = None) -> dict[str, Any]:
    """Return the items of the manifest, or of another text, by their kind."""
    items = yaml.safe_load(text or MANIFEST.read_text())["items"]
    return {item["kind"]: item for item in items}
