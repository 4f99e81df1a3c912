"""Run the command of a job file on the machine that a scheduler chose, only while the file is there.

`python launched_job.py JOB_FILE ID`. `ci/launch.py` writes the job file and deletes it: if it is gone or has another
id, the job was cancelled or replaced, and the command is stopped as by Ctrl-C. So a job that waited in a queue when its
watch ended does nothing when its turn comes. The end of the command is written beside the job file. A command that was
stopped, or killed by a signal, has no such end; its job is launched again. The module imports nothing of the suite, so
it starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any

POLL_SECONDS = 2.0
# A network file system may show a new file some seconds late, and hide a file while it is replaced.
APPEAR_SECONDS = 5.0
MISSES = 3
STOP_SECONDS = 60.0
CANCELLED = 75
PR_SET_PDEATHSIG = 1
SCHEDULER_IDS = ("SLURM_JOB_ID", "RAY_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def main(job_file: str, job_id: str) -> int:
    """Run the job until its command ends, a signal comes or its file is gone; return its exit code."""
    stopping = threading.Event()
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, receive)
    job = _await(job_file, job_id)
    if job is None:
        sys.stderr.write(f"{job_file}: the job was cancelled, or this machine does not see that directory\n")
        return CANCELLED
    _write_state(job_file, job_id, state="running")
    # The kernel ends the command if this process is killed, where it can.
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    end_with_parent = None if libc is None else lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with open(job["log"], "ab") as output:
        child = subprocess.Popen(
            job["command"], cwd=job["directory"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        threading.Thread(target=_watch, args=(job_file, job_id, stopping), daemon=True).start()
        while child.poll() is None and not stopping.wait(0.1):
            pass
        # Interrupt the command's process group, and kill it if it does not end.
        for number in (signal.SIGINT, signal.SIGKILL):
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(child.pid, number)
                    child.wait(STOP_SECONDS)
    if stopping.is_set() or child.returncode < 0:
        if received or child.returncode < 0:
            _write_state(job_file, job_id, state="stopped")
        return 128 + received[0] if received else CANCELLED
    _write_state(job_file, job_id, state="ended", exit_code=child.returncode)
    return child.returncode


def _read(job_file: str) -> dict[str, Any] | None:
    """Return the content of the job file, None if there is none; raises OSError if that cannot be known."""
    try:
        with open(job_file, encoding="utf-8") as file:
            job: dict[str, Any] = json.load(file)
            return job
    except (FileNotFoundError, ValueError):
        return None


def _await(job_file: str, job_id: str) -> dict[str, Any] | None:
    """Return the job, or None if its file does not appear or is that of another job."""
    deadline = time.monotonic() + APPEAR_SECONDS
    while True:
        with contextlib.suppress(OSError):
            job = _read(job_file)
            if job is not None:
                return job if job["id"] == job_id else None
        if time.monotonic() > deadline:
            return None
        time.sleep(0.5)


def _watch(job_file: str, job_id: str, stopping: threading.Event) -> None:
    """Set the event when the job's file is gone, or is that of another job."""
    misses = 0
    while misses < MISSES:
        time.sleep(POLL_SECONDS)
        with contextlib.suppress(OSError):
            job = _read(job_file)
            misses = 0 if job is not None and job["id"] == job_id else misses + 1
    stopping.set()


def _write_state(job_file: str, job_id: str, **state: Any) -> None:
    """Write the state of the job for the process that launched it."""
    number = next((os.environ[name] for name in SCHEDULER_IDS if name in os.environ), "")
    machine = os.environ.get("SLURMD_NODENAME") or platform.node()
    path = f"{job_file}.{job_id}"
    temporary = f"{path}.{machine}.{os.getpid()}"
    with contextlib.suppress(OSError):
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump({"id": job_id, "machine": machine, "scheduler_id": number} | state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
