"""Programs named `python`, `pytest` and `longctx` that start fast, for tests that start many processes."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HELPERS = Path(__file__).parent
PYTEST = Path(sys.executable).with_name("pytest")
# Workers of this session inherit the variable; runs of the suite do not, because no variable of pytest's is passed on.
VARIABLE = "PYTEST_PRELOADED_PROGRAMS"


def start_server() -> None:
    """Start the server that forks these programs; it ends with this process."""
    # Models of tests are so small that several threads mostly wait for each other. The programs have these settings.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if sys.platform != "linux":
        return
    directory = Path(tempfile.mkdtemp(prefix="preloaded-"))
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.Popen(
        [sys.executable, str(HELPERS / "preloaded_server.py"), str(directory), str(os.getpid())],
        env=inherited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    client = [sys.executable, "-I", "-S", str(HELPERS / "preloaded_client.py"), str(directory), sys.executable]
    for name, first in (("python", []), ("pytest", ["-P", "-m", "pytest"]), ("longctx", ["-m", "longctx"])):
        (directory / name).write_text(f'#!/bin/sh\nexec {shlex.join([*client, *first])} "$@"\n')
        (directory / name).chmod(0o755)
    os.environ[VARIABLE] = str(directory)


def preloaded(name: str) -> Path:
    """Return a program of the server if there is one, else that of this environment."""
    directory = os.environ.get(VARIABLE)
    return Path(directory, name) if directory else Path(sys.executable).with_name(name)
