"""A real Ray of two nodes on this machine, in one folder.

Ray is not among the packages of this project: LONGCTX_RAY_PYTHON names a Python that has `ray[default]`, unless this
one has it. Each node has four GPUs, which are counted and do not exist.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.slurm_cluster import free_ports

PYTHON = "LONGCTX_RAY_PYTHON"
START_SECONDS = 300
RESOURCES = ("--num-cpus=4", "--num-gpus=4", "--object-store-memory=80000000", "--disable-usage-stats")
SETTINGS = {
    # Daemons start late on a busy machine.
    "RAY_raylet_start_wait_time_s": str(START_SECONDS),
    # Ray would write a token to the home directory.
    "RAY_AUTH_MODE": "disabled",
}
COUNT_GPUS = """
import os, ray
ray.init(os.environ["RAY_ADDRESS"], logging_level="error")
print(int(ray.cluster_resources()["GPU"]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """A running cluster."""

    environment: dict[str, str]
    """The variables that its commands need."""
    nodes: list[subprocess.Popen[bytes]]
    """The process of each node, the head first; all others of a node end with it."""


def ray_python() -> Path | None:
    """Return a Python that has Ray, None if there is none."""
    if os.environ.get(PYTHON):
        return Path(os.environ[PYTHON])
    return Path(sys.executable) if importlib.util.find_spec("ray") else None


def missing() -> str | None:
    """Return one line that says why there can be no cluster here, None if there can."""
    return None if ray_python() else f"ray is not installed, and {PYTHON} names no Python that has ray[default]"


@contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    """Run a cluster in a new folder, whose path must be short."""
    python = ray_python()
    assert python is not None
    folder.mkdir(parents=True)
    ports = free_ports(5)
    head = (
        "--head", f"--port={ports[0]}", f"--dashboard-port={ports[1]}", f"--temp-dir={folder}",
        f"--ray-client-server-port={ports[2]}", f"--dashboard-agent-listen-port={ports[3]}",
    )  # fmt: skip
    environment = {
        "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{ports[1]}", "RAY_TMPDIR": str(folder),
        "PATH": f"{python.parent}:{os.environ['PATH']}", **SETTINGS,
    }  # fmt: skip
    with ExitStack() as stack:
        nodes = [stack.enter_context(_node(python, folder / "node-1.out", head, environment))]
        address = _await_address(folder / "node-1.out", nodes[0])
        environment |= {"RAY_ADDRESS": address}
        other = (f"--address={address}", f"--dashboard-agent-listen-port={ports[4]}")
        nodes.append(stack.enter_context(_node(python, folder / "node-2.out", other, environment)))
        _await_gpus(python, 8, environment, nodes[1])
        yield RayCluster(environment=environment, nodes=nodes)


@contextmanager
def _node(
    python: Path, log: Path, options: tuple[str, ...], environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(python.with_name("ray")), "start", "--block", *options, *RESOURCES]
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    own = {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}
    with log.open("wb") as output:
        node = subprocess.Popen(
            command, env=inherited | own, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            yield node
        finally:
            node.terminate()
            try:
                node.wait(30)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


def _await_address(log: Path, head: subprocess.Popen[bytes]) -> str:
    """Return the cluster's address, which the head prints when it has started."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        text = log.read_text(errors="replace")
        address = re.search(r"ray start --address='([\d.:]+)'", text)
        if address:
            return address[1]
        if head.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Ray does not start\n{text[-2000:]}")
        time.sleep(0.2)


def _await_gpus(python: Path, count: int, environment: dict[str, str], node: subprocess.Popen[bytes]) -> None:
    """Wait until the nodes have so many GPUs."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        ended = subprocess.run(
            [python, "-c", COUNT_GPUS], env=os.environ | environment, capture_output=True, text=True, check=False
        )
        if ended.stdout.strip() == str(count):
            return
        if node.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Ray has not {count} GPUs: {ended.stdout} {ended.stderr[-1000:]}")
