"""Stand-ins for what commands of the pages name: checkpoints, reports, launchers, and a server of a checkpoint.

Each function puts one thing into the workspace in which a command runs.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from longctx.fixtures.calibration import build, parse_spec
from longctx.plugins.report.document import document
from tests.helpers.preloaded import preloaded
from tests.helpers.recipes import write_program
from tests.helpers.report_records import report_data
from tests.helpers.reports import run_summary
from tests.helpers.servers import served_needles

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
VLLM = '#!/bin/sh\nexec {python} -m tests.helpers.serve_checkpoint "$2" "$6"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The copy of the repository in which one command runs."""

    folder: Path
    programs: Path
    """A directory in front of all others in PATH."""
    variables: dict[str, str]
    """Variables of the command; a value that replaces one of the reader's may name them."""
    stack: ExitStack
    """Ends servers after the command."""


StandIn = Callable[[Workspace], object]


def checkpoint(*names: str, spec: str = "4k") -> StandIn:
    """Return a function that writes a calibration checkpoint to each of these paths."""
    return lambda workspace: [build(parse_spec(spec), workspace.folder / name) for name in names]


def training_run(workspace: Workspace) -> None:
    """Write three checkpoints; the last two find a tenth of all keys."""
    for spec, step in (("full", 2000), ("full-blind=0.9", 9000), ("full-blind=0.9", 16000)):
        build(parse_spec(f"{spec}-step={step}"), workspace.folder / f"runs/a/step-{step}")


def reports(*names: str) -> StandIn:
    """Return a function that writes these reports of RULER and HELMET, of steps 4000, 5000 and so on."""

    def write(workspace: Workspace) -> None:
        for number, name in enumerate(names, start=4):
            run = run_summary(lengths=(4096, 8192), samples=6, model_path=f"/models/run/step_{number}000")
            report = report_data(document(run))
            report["model"]["fingerprint"] = f"{number:032}"
            (workspace.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace.folder / name).write_text(json.dumps(report))

    return write


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
