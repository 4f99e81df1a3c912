"""Have pytest read the options of a run, without measuring anything."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from fixtures.installation import CASES_DIRECTORY, pytest_command

CHECK_SECONDS = 120
# A line of pytest about wrong use, or of its option parser.
ERROR_LINE = re.compile(r"(?:ERROR|.*: error): (?!usage: )(.*)")
NO_CASE_SELECTED = 5
LISTED_CASE = re.compile(rf"^{CASES_DIRECTORY}/.*", re.MULTILINE)
LISTED_TREE = re.compile(r"<Function .*")


def list_cases(options: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the cases that a run with these options has; raise ValueError with pytest's reason."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    try:
        ended = subprocess.run(
            pytest_command(["--collect-only", "-q", *options]), env=inherited, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=CHECK_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"pytest has not listed the cases of these options in {CHECK_SECONDS:g} s; try them with --collect-only"
        ) from None
    cases = LISTED_CASE.findall(ended.stdout) or LISTED_TREE.findall(ended.stdout)
    # Gates are listed too, even if no case is left for them.
    if ended.returncode == NO_CASE_SELECTED or (ended.returncode == 0 and not cases):
        raise ValueError("the options select no case; see --lengths, --suite, -k and -m")
    if ended.returncode != 0:
        lines = [line.strip() for line in (ended.stderr + ended.stdout).splitlines() if line.strip()]
        errors = [match[1] for line in lines if (match := ERROR_LINE.match(line))]
        raise ValueError((errors or lines or [f"pytest ended with code {ended.returncode}"])[-1])
    return tuple(cases)
