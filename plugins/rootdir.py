"""Keep pytest's root directory in this repository when a path option points elsewhere.

pytest determines its root directory before it knows the options of this suite. In `pytest --model /ckpt` it therefore
takes an existing /ckpt for a directory of tests, and finds neither the suite nor its options. In `pytest --model=/ckpt`
it does not. pytest loads this module as an installed plugin (an entry point), early enough to start again with every
path option in the second form.

An installed package registers it too. There it must stay small, because pytest loads it in every project.
"""

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

SUITE = Path(__file__).resolve().parents[1]


def pytest_addoption() -> None:
    """Restart pytest if needed; this hook runs right after the plugin is loaded, before anything is collected."""
    program, *arguments = sys.argv
    is_pytest = Path(program).name in ("pytest", "py.test", "__main__.py") and "--rootdir" not in arguments
    if is_pytest and _moves_rootdir(arguments, Path.cwd()):
        from longctx.plugins.config.invocation import join_path_options

        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *join_path_options(arguments)])


def _moves_rootdir(arguments: Sequence[str], directory: Path) -> bool:
    """Return True if pytest, run in a directory of this repository, would take a path option for a test directory."""
    if not directory.is_relative_to(SUITE):
        return False
    from longctx.plugins.config.options import PATH_OPTIONS

    values = [value for option, value in pairwise(arguments) if option in PATH_OPTIONS]
    # A path that does not exist yet may do so when workers read the same command line.
    return any(SUITE not in Path(directory, value).resolve().parents for value in values)
