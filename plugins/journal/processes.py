"""The identity of machines and processes, as Linux shows it in /proc."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def host_id() -> str:
    """Return the machine, boot and process namespace, which two processes share only if they can see one another."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = namespace = ""
    return f"{platform.node()} {boot} {namespace}".strip()


def process_state(pid: int) -> tuple[str | None, int | None]:
    """Return state and start time of a process (proc(5), stat, fields 3 and 22); None if /proc does not show it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        # The command's name is in parentheses and may contain spaces and parentheses itself.
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None, None
