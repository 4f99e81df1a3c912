"""Build the wheel: every folder of the suite below one import name, so that nothing collides in site-packages.

The clone has `fixtures/`, `plugins/`, `ci/` and `tests_longctx/` at its top, as import names of their own. The wheel
has them as `longctx.fixtures` and so on, with the imports between them renamed. Everything else about the package is in
pyproject.toml.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PACKAGE = "longctx"
FOLDERS = ("fixtures", "plugins", "ci", "tests_longctx")
FILES = ("conftest.py", "thresholds.toml")
SUFFIXES = (".py", ".toml", ".json", ".j2", ".css", ".js")
OURS = "|".join((*FOLDERS, "conftest"))
IMPORT = re.compile(rf"^( *(?:from|import) )(?=(?:{OURS})\b)", re.MULTILINE)
# The name of a module as a string, such as "plugins.options".
MODULE_NAME = re.compile(rf'"(?=((?:{OURS})(?:\.\w+)+)")')
PYTEST_TABLE = re.compile(r"^\[tool\.pytest\]\n(?:(?!\[).*\n)*", re.MULTILINE)


class BuildBelowOneName(build_py):
    """Copy the suite into the package `longctx`; an editable installation uses the clone as it is."""

    def run(self) -> None:
        if not self.editable_mode:
            # The folder may hold files of an earlier build.
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            self._copy_suite()

    def _copy_suite(self) -> None:
        target = Path(self.build_lib, PACKAGE)
        sources = [path for folder in FOLDERS for path in Path(folder).rglob("*") if path.suffix in SUFFIXES]
        for path in (*map(Path, FILES), *sources):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(renamed(path), encoding="utf-8")
        for path in Path(PACKAGE).rglob("*.py"):
            (target.parent / path).write_text(renamed(path), encoding="utf-8")
        (target / "pyproject.toml").write_text(pytest_settings(), encoding="utf-8")


def renamed(path: Path) -> str:
    """Return a file's text; in Python files, our modules have their names in the wheel."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    text = IMPORT.sub(rf"\g<1>{PACKAGE}.", text)
    return MODULE_NAME.sub(lambda match: f'"{PACKAGE}.' if is_module(match[1]) else match[0], text)


def is_module(name: str) -> bool:
    """Return True for the name of a module or package of the suite."""
    path = Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def pytest_settings() -> str:
    """Return pytest's settings of this repository, without the import path of the clone."""
    found = PYTEST_TABLE.search(Path("pyproject.toml").read_text(encoding="utf-8"))
    assert found is not None, "pyproject.toml has no [tool.pytest]"
    return "".join(line for line in found[0].splitlines(keepends=True) if not line.startswith("pythonpath"))


if __name__ == "__main__":
    is_clone = "editable_wheel" in sys.argv
    setup(
        cmdclass={"build_py": BuildBelowOneName},
        packages=[PACKAGE, "fixtures", "plugins", "ci"] if is_clone else [PACKAGE],
        entry_points={
            "console_scripts": ["longctx = longctx.cli:main"],
            # In a clone, pytest loads this plugin to find its root directory. The wheel has no use for it.
            **({"pytest11": ["longctx_home = plugins.rootdir"]} if is_clone else {}),
        },
    )
