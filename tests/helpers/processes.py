"""The state of processes by their ids."""

import time
from collections.abc import Iterable
from pathlib import Path

END_SECONDS = 60


def is_running(pid: int) -> bool:
    """Return False for a process that has ended, even if nothing has read its exit code yet."""
    try:
        # A container may have no init process that reaps zombies, which then keep their process id.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_gone(process_ids: Iterable[int]) -> bool:
    """Wait until the processes have ended, and return True if they have."""
    left, deadline = list(process_ids), time.monotonic() + END_SECONDS
    while (left := [pid for pid in left if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left
