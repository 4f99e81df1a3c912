"""Recipes work as they stand: they are valid, and their lines run in a copy of this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import PYTEST, REPOSITORY

from fixtures.tasks import FAMILIES
from plugins.gates.thresholds import load_thresholds

RECIPES = REPOSITORY / "ci" / "recipes"
SCRIPTS = (*sorted(RECIPES.glob("*.sh")), REPOSITORY / ".ci" / "run")
GITHUB = RECIPES / "github-gates.yml"
GITLAB = RECIPES / "gitlab-ci.yml"
OWN = REPOSITORY / ".github" / "workflows" / "test.yml"
NOT_COPIED = (".git", ".longctx", ".venv", "out", "runs", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis")
# What a run takes of the recipe's user; the rest is as it stands.
EDITED = {"MODEL": "calibration:512", "LENGTHS": "512", "WORKERS": "1", "JOURNAL": "out/journal"}
# Options that reports bring with them; a recipe may name one before its plugin is there.
OFFERS = """
def pytest_addoption(parser):
    parser.addoption("--report-md")
"""


def parsed(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of the repository whose set-up is done."""

    folder: Path

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script, "recipe", *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=300,
            env=inherited | {"PYTHONPATH": str(self.folder), "CUDA_VISIBLE_DEVICES": ""} | environment,
        )  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    folder = tmp_path_factory.mktemp("clone") / "repository"
    shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "pytest").symlink_to(PYTEST)
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (programs / "python").chmod(0o755)
    (folder / ".venv" / ".ready").touch()
    (folder / "recipe_options.py").write_text(OFFERS)
    return Clone(folder)


def listing() -> str:
    """What turns a run into a list of its cases, by options as a user might set them."""
    sources = (path.read_text(encoding="utf-8") for path in (REPOSITORY / "plugins").rglob("*.py"))
    return "--collect-only -q" + ("" if any('"--report-md"' in text for text in sources) else " -p recipe_options")


def test_the_github_recipe_lists_every_case(clone: Clone) -> None:
    job = parsed(GITHUB)["jobs"]["gates"]
    settings = {name: str(value) for name, value in job["env"].items()} | EDITED | {"BASELINE": ""}
    lines = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    ended = clone.run(lines, **settings, GITHUB_STEP_SUMMARY="out/summary.md", PYTEST_ADDOPTS=listing())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "test_ruler[niah_single_1-512]" in ended.stdout


def test_the_gitlab_recipe_lists_every_case(clone: Clone) -> None:
    recipe = parsed(GITLAB)
    settings = {name: str(value) for name, value in recipe["variables"].items()} | EDITED
    job = recipe["long-context gates"]
    lines = "\n".join([*job["before_script"], *job["script"]])
    ended = clone.run(lines, **settings, PYTEST_ADDOPTS=listing())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "test_ruler[niah_single_1-512]" in ended.stdout


def test_the_smoke_recipe_lists_every_case(clone: Clone) -> None:
    ended = clone.run('ci/recipes/smoke.sh "$MODEL"', **EDITED, PYTEST_ADDOPTS="--collect-only -q")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "test_ruler[niah_single_1-512]" in ended.stdout


def test_the_slurm_recipe_ends_where_nothing_was_written(clone: Clone, tmp_path: Path) -> None:
    ended = clone.run('ci/recipes/slurm-epilogue.sh "$1"', str(tmp_path), **EDITED, SLURM_SUBMIT_DIR=str(clone.folder))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"watching {tmp_path}" in ended.stdout
    assert (tmp_path / ".longctx" / "watch").is_dir()


def test_the_recipes_keep_what_they_found_whatever_it_is() -> None:
    steps = parsed(GITHUB)["jobs"]["gates"]["steps"]
    (kept,) = [step for step in steps if "upload-artifact" in step.get("uses", "")]
    assert (kept["if"], kept["with"]["path"]) == ("always()", "out")
    artifacts = parsed(GITLAB)["long-context gates"]["artifacts"]
    assert (artifacts["when"], artifacts["reports"]["junit"]) == ("always", "out/junit.xml")


def test_this_repository_is_tested_by_its_own_command() -> None:
    job = parsed(OWN)["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test PYTHON=python"]


def settings_of(path: Path) -> Iterator[str]:
    """Lines that set a value which belongs to a user's own machines."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.match(r"\s*[A-Z_]+(=\$\{[A-Z]+:-|: [^$])|\s*(runs-on|tags|timeout|timeout-minutes|above): ?\S", line):
            yield line


@pytest.mark.parametrize("path", [GITHUB, GITLAB, *RECIPES.glob("*.sh")], ids=lambda path: path.name)
def test_each_line_to_edit_says_so(path: Path) -> None:
    lines = [line for line in settings_of(path) if not line.strip().startswith("OUT: ")]
    assert len(lines) >= 5
    assert [line for line in lines if "# EDIT: " not in line] == []


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.name)
def test_gates_of_recipes_are_thresholds_files(path: Path) -> None:
    assert load_thresholds(path, known_tasks=FAMILIES).gates


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_no_complaint(tmp_path: Path) -> None:
    shells = list(SCRIPTS)
    steps = [step["run"] for path in (GITHUB, OWN) for job in parsed(path)["jobs"].values() for step in job["steps"]
             if "run" in step]  # fmt: skip
    job = parsed(GITLAB)["long-context gates"]
    for number, lines in enumerate([*steps, "\n".join(job["script"])]):
        shells.append(tmp_path / f"{number}.sh")
        shells[-1].write_text(f"#!/usr/bin/env bash\n{lines}\n")
    ended = subprocess.run(["shellcheck", *shells], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize(
    ("path", "schema"), [(GITHUB, "github-workflows"), (OWN, "github-workflows"), (GITLAB, "gitlab-ci")]
)
def test_workflows_are_valid(path: Path, schema: str) -> None:
    checker = shutil.which("check-jsonschema")
    if checker is None:
        pytest.skip("check-jsonschema is not installed")
    ended = subprocess.run(
        [checker, "--builtin-schema", f"vendor.{schema}", str(path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_has_no_complaint(tmp_path: Path) -> None:
    (tmp_path / "actionlint.yaml").write_text("self-hosted-runner:\n  labels: [gpu]\n")
    ended = subprocess.run(
        ["actionlint", "-config-file", str(tmp_path / "actionlint.yaml"), str(GITHUB), str(OWN)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, "")


def test_slurm_reads_its_settings_before_the_first_command() -> None:
    lines = (RECIPES / "slurm-epilogue.sh").read_text(encoding="utf-8").splitlines()
    first_command = next(at for at, line in enumerate(lines) if line and not line.startswith("#"))
    settings: Mapping[int, str] = {at: line for at, line in enumerate(lines) if line.startswith("#SBATCH ")}
    assert len(settings) >= 5
    assert max(settings) < first_command


def test_the_smoke_profile_lets_open_questions_pass() -> None:
    found = tomllib.loads((RECIPES / "smoke.toml").read_text(encoding="utf-8"))
    assert {found[table]["inconclusive"] for table in ("verdict", "regression")} == {"pass"}
