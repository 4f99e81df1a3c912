"""CI recipes are valid files, and their commands run in a copy of this repository."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from longctx.ci.run_file import read_run_file, run_options
from longctx.fixtures.calibration import build, parse_spec
from longctx.fixtures.tasks import FAMILIES
from longctx.plugins.thresholds.records import load_thresholds
from tests.helpers.clones import copy_repository
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import UNRELATED_PLUGINS

RECIPES = REPOSITORY / "ci" / "recipes"
SCRIPTS = (*sorted((REPOSITORY / "ci").glob("*/*.sh")), REPOSITORY / ".ci" / "run")
GITHUB = RECIPES / "github-gates.yml"
GITLAB = RECIPES / "gitlab-ci.yml"
OWN = tuple(REPOSITORY / ".github" / "workflows" / name for name in ("test.yml", "nightly.yml"))
RUN_FILE = RECIPES / "longctx.toml"
# The settings that a test edits as a user would; all others stay unchanged.
EDITED = {
    "MODEL": "calibration:full", "LENGTHS": "512", "WORKERS": "0", "THRESHOLDS": "ci/recipes/needle.toml",
    "JOURNAL": "out/journal",
}  # fmt: skip
EDITED_RUN_FILE = {"lengths": "512", "workers": 0, "thresholds": "needle.toml", "journal": "../../out/journal"}
BLIND = "calibration:full-blind=0.9"
# Select a few samples of one task, through pytest's variable for additional options.
SELECTED = "-k niah_single_2 --samples 8"
FEW = {"PYTEST_ADDOPTS": shlex.join(UNRELATED_PLUGINS) + f" {SELECTED}"}
GATE = "needle at 512"


def parsed(path: Path) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of the repository after `make .venv/.ready`."""

    folder: Path

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        # The tests may run under `make --jobs`, whose job server is not open to a recipe's own make.
        of_these_tests = ("PYTEST_", "MAKE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(of_these_tests)}
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script, "recipe", *arguments],
            cwd=self.folder, capture_output=True, text=True, check=False, timeout=900,
            env=inherited | {"PYTHONPATH": str(self.folder), "CUDA_VISIBLE_DEVICES": ""} | environment,
        )  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    folder = copy_repository(tmp_path_factory.mktemp("clone") / "repository")
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "pytest", "longctx"):
        (programs / name).symlink_to(preloaded(name))
    (folder / ".venv" / ".ready").touch()
    assert EDITED_RUN_FILE.keys() == tomllib.loads(RUN_FILE.read_text(encoding="utf-8")).keys()
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in EDITED_RUN_FILE.items()]
    (folder / RUN_FILE.relative_to(REPOSITORY)).write_text("".join(lines))
    return Clone(folder)


def verdicts(report: Path) -> dict[str, str]:
    return {gate["name"]: gate["verdict"] for gate in json.loads(report.read_text(encoding="utf-8"))["gates"]}


def junit(file: Path) -> dict[str, list[str]]:
    """Return the outcome of every test by name: no element if it passed, else a failure or an error."""
    return {case.attrib["name"]: [child.tag for child in case if child.tag != "properties"]
            for case in ElementTree.parse(file).findall(".//testcase")}  # fmt: skip


@pytest.mark.parametrize("name", ["github-results.yml", "gitlab-results.yml", "Jenkinsfile-results"])
def test_recipes_for_results_call_the_gate(name: str) -> None:
    """Every option of the command is one that `longctx gate` knows."""
    text = (RECIPES / name).read_text(encoding="utf-8")
    if name.endswith(".yml"):
        assert isinstance(yaml.safe_load(text), dict)
    command = re.sub(r"\\\n|\$\{POLICY:\+|\}", " ", text.partition("longctx gate")[2]).split("'")[0]
    options = set(re.findall(r"(--[a-z-]+)", command.partition("artifacts")[0].partition("- if:")[0]))
    help_text = subprocess.run([sys.executable, "-m", "longctx", "gate", "--help"], capture_output=True, text=True)
    assert {"--policy", "--report-html", "--junitxml"} <= options <= set(re.findall(r"--[a-z-]+", help_text.stdout))


@pytest.mark.whole_loop
def test_the_github_recipe_gates_a_checkpoint(clone: Clone) -> None:
    job = parsed(GITHUB)["jobs"]["gates"]
    settings = {name: str(value) for name, value in job["env"].items()} | EDITED | {"BASELINE": "", "OUT": "out/github"}
    lines = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    ended = clone.run(lines, **settings, **FEW, GITHUB_STEP_SUMMARY="summary.md")
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    out = clone.folder / "out" / "github"
    assert verdicts(out / "report.json") == {GATE: "pass"}
    assert junit(out / "junit.xml") == {"test_ruler[niah_single_2-512]": [], f"gate[{GATE}]": []}
    assert "calibration:full" in (clone.folder / "summary.md").read_text(encoding="utf-8")


@pytest.mark.whole_loop
def test_the_gitlab_recipe_fails_a_checkpoint_that_is_worse(clone: Clone) -> None:
    """Compare with a checkpoint as the baseline, whose answers may be in the journal already."""
    recipe = parsed(GITLAB)
    settings = {name: str(value) for name, value in recipe["variables"].items()} | EDITED
    changed = {"MODEL": BLIND, "BASELINE": EDITED["MODEL"]}
    job = recipe["long-context gates"]
    ended = clone.run("\n".join([*job["before_script"], *job["script"]]), **settings | changed, **FEW)
    assert (ended.returncode, ended.stderr) == (1, ""), ended.stdout
    out = clone.folder / "out"
    assert verdicts(out / "report.json") == {GATE: "fail", "regression at 512": "fail"}
    assert junit(clone.folder / job["artifacts"]["reports"]["junit"])[f"gate[{GATE}]"] == ["failure"]
    assert GATE in (out / "report.md").read_text(encoding="utf-8")


@pytest.mark.whole_loop
def test_the_smoke_recipe_passes_a_sound_checkpoint(clone: Clone) -> None:
    few = {"PYTEST_ADDOPTS": shlex.join(UNRELATED_PLUGINS) + " -k niah_single"} | {"SAMPLES": "4", "OUT": "out/smoke"}
    settings = EDITED | {"THRESHOLDS": "ci/recipes/smoke.toml"}
    ended = clone.run('ci/recipes/smoke.sh "$MODEL"', **settings, **few)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert verdicts(clone.folder / "out" / "smoke" / "smoke.json") == {"retrieval at 512": "pass"}
    assert junit(clone.folder / "out" / "smoke" / "smoke.xml")["gate[retrieval at 512]"] == []


@pytest.mark.whole_loop
def test_the_slurm_epilogue_measures_new_checkpoints_once(clone: Clone, tmp_path: Path) -> None:
    build(parse_spec("full-blind=0.9-step=7"), tmp_path / "step-7")
    few = [*shlex.split(SELECTED), "--every", "0.5s"]
    settings = EDITED | {"SLURM_SUBMIT_DIR": str(clone.folder), "ON_FAILURE": 'echo "notified of step $LONGCTX_STEP"'}
    ended = clone.run('ci/recipes/slurm-epilogue.sh "$@"', str(tmp_path), *few, **settings)
    assert (ended.returncode, ended.stderr) == (1, ""), ended.stdout
    assert "notified of step 7\n" in ended.stdout
    (report,) = (tmp_path / ".longctx" / "watch").glob("step-7-*.json")
    assert verdicts(report) == {GATE: "fail"}
    again = clone.run('ci/recipes/slurm-epilogue.sh "$@"', str(tmp_path), *few, **settings)
    assert (again.returncode, "measuring" in again.stdout, "notified of" in again.stdout) == (1, False, False)


def test_recipes_keep_their_reports_when_a_gate_fails() -> None:
    steps = parsed(GITHUB)["jobs"]["gates"]["steps"]
    (upload,) = [step for step in steps if "upload-artifact" in step.get("uses", "")]
    assert (upload["if"], upload["with"]["path"]) == ("always()", "out")
    artifacts = parsed(GITLAB)["long-context gates"]["artifacts"]
    assert (artifacts["when"], artifacts["reports"]["junit"]) == ("always", "out/junit.xml")


def test_the_workflow_of_this_repository_runs_all_tests() -> None:
    jobs = [job for path in OWN for job in parsed(path)["jobs"].values()]
    runs = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
    assert runs == [".ci/run", "make nightly PYTHON=python"]


def test_the_run_file_of_the_recipes_is_valid() -> None:
    options = run_options(read_run_file(RUN_FILE))
    assert options[:2] == ["--lengths=4k,8k,16k,32k,64k,128k", "-n8"]
    assert "--suite=helmet" in run_options(read_run_file(RECIPES / "rag.toml"))
    (thresholds,) = (option.partition("=")[2] for option in options if option.startswith("--thresholds="))
    assert Path(thresholds).resolve() == REPOSITORY / "thresholds.toml"


@pytest.mark.parametrize("name", sorted({path.name for path in RECIPES.glob("*.toml")} - {RUN_FILE.name, "rag.toml"}))
def test_gates_of_recipes_are_valid_thresholds_files(name: str) -> None:
    assert load_thresholds(RECIPES / name, known_tasks=FAMILIES).gates


def program(name: str) -> str:
    """Return the path of a tool of the development environment, whose folder may be missing from PATH."""
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert path is not None, f"{name} is not installed; see the dev extra in pyproject.toml"
    return path


def test_shellcheck_accepts_all_scripts_and_steps(tmp_path: Path) -> None:
    shells = list(SCRIPTS)
    steps = [step["run"] for path in (GITHUB, *OWN) for job in parsed(path)["jobs"].values() for step in job["steps"]
             if "run" in step]  # fmt: skip
    job = parsed(GITLAB)["long-context gates"]
    for number, lines in enumerate([*steps, "\n".join(job["script"])]):
        shells.append(tmp_path / f"{number}.sh")
        shells[-1].write_text(f"#!/usr/bin/env bash\n{lines}\n")
    ended = subprocess.run(
        [program("shellcheck"), "--external-sources", *shells],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "")


@pytest.mark.parametrize(
    ("path", "schema"),
    [(GITHUB, "github-workflows"), *((path, "github-workflows") for path in OWN), (GITLAB, "gitlab-ci")],
)
def test_workflows_are_valid(path: Path, schema: str) -> None:
    command = [program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_smoke_profile_passes_inconclusive_gates() -> None:
    profile = tomllib.loads((RECIPES / "smoke.toml").read_text(encoding="utf-8"))
    assert {profile[table]["undecided"] for table in ("verdict", "regression")} == {"pass"}
