"""The most memory that a process had at once."""

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_mebibytes() -> float:
    """Of this process alone. Linux's getrusage begins with that of whoever started it."""
    if STATUS.exists():
        told = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text("ascii"))
        assert told
        return int(told[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
