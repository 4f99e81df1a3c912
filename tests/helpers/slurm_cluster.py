"""A real Slurm of two nodes on this machine: `slurmctld`, two `slurmd` and a `munged`, all in one folder.

It needs root, and Debian's packages slurm-wlm and munge (or those of the same programs elsewhere).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

NODES = ("n1", "n2")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
START_SECONDS = 300
CONFIGURATION = """\
ClusterName=longctx
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
GresTypes=gpu
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
CompleteWait=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=32 RealMemory=64000 Gres=gpu:8
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=32 RealMemory=64000 Gres=gpu:8
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Return one line that says why there can be no cluster here, None if there can."""
    if os.geteuid() != 0:
        return "a Slurm on one machine needs root"
    programs = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"{programs[0]} is not installed (apt-get install slurm-wlm munge)" if programs else None


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Run a cluster in a new folder, whose path must be short; yield the variables that its commands need."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    environment = _configure(folder)
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder, "munged", _munge_arguments(folder)))
        _await(lambda: (folder / "munge/socket").exists(), "munged", folder)
        stack.enter_context(_daemon(folder, "slurmctld", ["-D", "-c"], environment))
        for node in NODES:
            stack.enter_context(_daemon(folder, "slurmd", ["-D", "-N", node], environment))
        _await(lambda: states(environment) == {"idle"}, "slurmd", folder)
        yield environment


def states(environment: dict[str, str]) -> set[str]:
    """Return the states of all nodes, such as idle, alloc or drained."""
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    return set(ended.stdout.split())


def _configure(folder: Path) -> dict[str, str]:
    for name in ("munge", "state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    # Devices that are counted and do not exist, so that scripts for nodes with GPUs run as they are.
    for number in range(8):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, host=socket.gethostname(), ports=free_ports(3)))
    return {"SLURM_CONF": str(configuration)}


def _munge_arguments(folder: Path) -> list[str]:
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
    options = [f"--{option}={folder}/munge/{name}" for option, name in files.items()]
    return ["--foreground", "--force", *options]


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _daemon(
    folder: Path, program: str, arguments: Sequence[str], environment: dict[str, str] | None = None
) -> Iterator[None]:
    name = "-".join([program, *(word for word in arguments if word in NODES)])
    with (folder / f"{name}.out").open("wb") as output:
        process = subprocess.Popen(
            [program, *arguments], env=os.environ | (environment or {}), stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(is_ready: Callable[[], bool], program: str, folder: Path) -> None:
    """Wait for a daemon; raise RuntimeError with the end of its log if it does not become ready."""
    deadline = time.monotonic() + START_SECONDS
    while not is_ready():
        if time.monotonic() > deadline:
            logs = sorted(folder.glob(f"{program}*.out")) + sorted(folder.glob(f"{program}*.log"))
            ends = [f"{log.name}: {log.read_text(errors='replace')[-2000:]}" for log in logs]
            raise RuntimeError("\n".join([f"{program} is not ready after {START_SECONDS} s", *ends]))
        time.sleep(0.2)
