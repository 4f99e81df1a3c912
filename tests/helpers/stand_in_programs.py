"""Programs and servers that commands of the pages need: launchers, vLLM, mirrors, and places to install into."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.corpora import download as fetch
from longctx.fixtures.corpora.download import BENCHMARKS
from tests.helpers.archives import tar_of, zip_of
from tests.helpers.mirrors import serving
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
