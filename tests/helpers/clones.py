"""Copy this repository, so that tests can run its recipes and documented commands."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.helpers.paths import REPOSITORY


def copy_repository(folder: Path) -> Path:
    """Copy the files that git tracks, in their current state, to `folder`, and return it.

    So a test notices a file that was never added.
    """
    # In a git hook these variables name another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, env=inherited, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.split("\0")[:-1]:
        # A file that was deleted but not committed is still tracked.
        if (REPOSITORY / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # A link within longctx/ stays one.
            shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
    return folder
