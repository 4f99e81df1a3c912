"""A file of weights that is truncated while it is in use ends the process with a line that says so."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers.paths import REPOSITORY

READS_A_TRUNCATED_FILE = """
import mmap, os, sys
from pathlib import Path
from longctx.fixtures.engines.verified import explain_bus_errors
path = Path(sys.argv[1])
with path.open("r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
    explain_bus_errors(path.parent)
    os.truncate(path, 0)
    print(mapped[100_000])
"""


def test_a_truncated_file_ends_the_process_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(200_000))
    ended = subprocess.run(
        [sys.executable, "-c", READS_A_TRUNCATED_FILE, tmp_path / "model.safetensors"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGBUS
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"ERROR: {tmp_path}: a file was truncated while the model was reading it")
