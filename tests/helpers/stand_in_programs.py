"""Programs and servers that commands of the pages need: launchers, vLLM, mirrors, and places to install into."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
import sysconfig
import venv
from contextlib import closing
from importlib import metadata
from pathlib import Path

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.corpora import download as fetch
from longctx.fixtures.corpora.download import BENCHMARKS
from tests.helpers.archives import tar_of, zip_of
from tests.helpers.mirrors import serving
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.recipes import write_program
from tests.helpers.servers import ChatServer, Request, completion, served_needles
from tests.helpers.stand_ins import Workspace

# Start the command behind the scheduler's own options.
SRUN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'
# Start the job behind `--`; Ray gives a job the address of its cluster.
RAY = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexport RAY_ADDRESS=auto\nexec "$@"\n'
# Run tasks of Ray in threads of this process.
RAY_MODULE = """
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from concurrent.futures import wait as first_of
from types import SimpleNamespace

POOL = ThreadPoolExecutor(8)
exceptions = SimpleNamespace(RayError=ChildProcessError)


def init(**settings):
    pass


def shutdown():
    pass


def remote(**settings):
    return lambda function: SimpleNamespace(
        options=lambda **named: SimpleNamespace(remote=lambda *words, **more: POOL.submit(function, *words, **more))
    )


def wait(tasks, num_returns=1, timeout=None):
    ended = next(iter(first_of(tasks, timeout, FIRST_COMPLETED).done))
    return [ended], [task for task in tasks if task is not ended]


def get(task):
    return task.result()


def cancel(task):
    task.cancel()
"""
# `vllm serve MODEL --host HOST --port PORT ...`: a server that knows the answers of needle tasks.
VLLM = '#!/bin/sh\nexec {python} -m tests.helpers.serve_steps 1000000 "$2" "$6"\n'
JUDGEMENT = {"fluency": 1, "found": 1, "supported": 1, "sentences": 2}
PACKAGES = Path(sysconfig.get_paths()["purelib"])


def slurm(workspace: Workspace) -> None:
    """Put an `srun` into PATH that starts its command here."""
    write_program(workspace.programs / "srun", SRUN)


def ray(workspace: Workspace) -> None:
    """Put a `ray` into PATH and a package `ray` beside the suite that run everything here."""
    write_program(workspace.programs / "ray", RAY)
    (workspace.folder / "ray.py").write_text(RAY_MODULE)


def vllm(workspace: Workspace) -> None:
    """Write an environment with a `vllm`, and the checkpoint that it serves."""
    write_program(workspace.folder / "server/bin/vllm", VLLM.format(python=preloaded("python")))
    workspace.variables["SERVER_ENV"] = str(workspace.folder / "server")
    build(parse_spec("4k-step=1"), workspace.folder / "served/step-1")
    workspace.variables["SERVED"] = str(workspace.folder / "served/step-1")


def needle_server(workspace: Workspace) -> None:
    """Start a server of a checkpoint, and name its address in SERVER."""
    vllm(workspace)
    option = workspace.stack.enter_context(served_needles(4096, workspace.folder / "served/step-1"))
    workspace.variables["SERVER"] = option.partition("=")[2]


def judge(workspace: Workspace) -> None:
    """Start a server that judges, and name its address in JUDGE."""

    def judgement(request: Request) -> object:
        wanted = {name: value for name, value in JUDGEMENT.items() if f'"{name}"' in request.text}
        return completion(json.dumps(wanted))

    server = workspace.stack.enter_context(ChatServer().serving())
    server.answer = judgement  # type: ignore[assignment]  # completion returns a Response
    workspace.variables["JUDGE"] = server.url


def mirror(workspace: Workspace) -> None:
    """Start a mirror of all published data with small content, and name its address in MIRROR.

    The copy of the repository expects the checksums of this content.
    """
    files = workspace.stack.enter_context(serving())
    workspace.variables["MIRROR"] = files.url
    source = workspace.folder / "fixtures/corpora/download.py"
    for known in (fetch.SQUAD, fetch.HOTPOT):
        content = json.dumps({"data": known.path}).encode()
        files.files["/" + known.url.split("/", 3)[3]] = content
        source.write_text(source.read_text().replace(str(known.sha256), hashlib.sha256(content).hexdigest()))
    essays = {f"repository/{fetch.ESSAYS_FOLDER}/{name}.txt": b"An essay. " for name in "ab"}
    files.files["/" + fetch.ESSAYS.url.split("/", 3)[3]] = tar_of(essays)
    sets: dict[str, list[str]] = {}
    for each in (each for benchmark in BENCHMARKS.values() for each in benchmark.hub):
        # Two benchmarks read different files of one set.
        sets.setdefault(each.name, []).extend(pattern.replace("*", "part") for pattern in each.patterns)
    for name, paths in sets.items():
        archives = {".zip": zip_of({"data/part.jsonl": b"{}\n"}), ".gz": tar_of({"data/kilt/nq.jsonl": b"{}\n"})}
        files.put_set(name, {path: archives.get(Path(path).suffix, path.encode()) for path in paths})
    for page in (page for name, suite in BENCHMARKS.items() if name != "ruler" for page in suite.web):
        files.files["/" + page.url.split("/", 3)[3]] = b"{}"


def environment(workspace: Workspace) -> None:
    """Make `.venv`, as the tutorial does, and let pip work without an index and without dependencies."""
    venv.create(workspace.folder / ".venv", symlinks=True, with_pip=True)
    workspace.variables["PATH"] = f"{workspace.folder}/.venv/bin:{workspace.variables['PATH']}"
    offline(workspace)


def offline(workspace: Workspace) -> None:
    """Let pip and uv use the packages of this environment in place of an index."""
    requires = [line for line in metadata.requires("longctx-gates") or () if "extra ==" not in line]
    excluded = [re.split(r"[^\w.-]", line, maxsplit=1)[0] + "; python_version < '0'" for line in requires]
    (workspace.folder / "excluded.txt").write_text("\n".join(excluded))
    settings = {
        "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_FIND_LINKS": "dist",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": str(PACKAGES),
        "UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "UV_PYTHON": sys.executable, "UV_OVERRIDE": "excluded.txt",
        **{f"UV_{name}_DIR": str(workspace.folder / "uv" / name.lower()) for name in ("TOOL", "TOOL_BIN", "CACHE")},
    }  # fmt: skip
    workspace.variables.update(settings)


def wheel(workspace: Workspace) -> None:
    """Build the wheel of this copy into `dist`."""
    script = "import setuptools.build_meta as backend; backend.build_wheel('dist')"
    (workspace.folder / "dist").mkdir()
    subprocess.run([sys.executable, "-c", script], cwd=workspace.folder, capture_output=True, check=True)
    # This environment has the package already.
    workspace.variables["PYTHONPATH"] = ""


def finished_environment(workspace: Workspace) -> None:
    """Write a `.venv` with the programs of this environment, which `make` finds ready."""
    for name in ("python", "pytest", "ruff", "mypy"):
        write_program(workspace.folder / ".venv/bin" / name, f'#!/bin/sh\nexec {sys.executable} -m {name} "$@"\n')
    write_program(workspace.folder / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (workspace.folder / ".venv/.ready").touch()
    workspace.variables["MYPY_CACHE_DIR"] = str(workspace.folder / ".mypy_cache")
    for source in REPOSITORY.glob(".mypy_cache/*/*.db"):
        target = workspace.folder / source.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Unlike a copy of the file, this is consistent even while a mypy of this repository writes it.
        with closing(sqlite3.connect(source)) as cache, closing(sqlite3.connect(target)) as copy:
            cache.backup(copy)
