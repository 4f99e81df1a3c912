"""The wheel, in an environment without the clone: one import name, and runs from any directory."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.helpers.clones import copy_repository
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.servers import served_needles

BUILD = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"
PACKAGES = Path(sysconfig.get_paths()["purelib"])
LINKED = ("fixtures", "plugins", "ci", "tests_longctx")
NOT_LINKED = ("__editable__", "longctx", "aaa_longctx", "__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the files that git tracks."""
    folder = tmp_path_factory.mktemp("wheel")
    source = copy_repository(folder / "source")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=source, capture_output=True, check=True, timeout=600)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path) -> Path:
    """The command `longctx` of a fresh environment: the wheel, and the packages of this one except the clone."""
    environment = wheel.parent / "environment"
    venv.create(environment, symlinks=True)
    packages = environment / PACKAGES.relative_to(sys.prefix)
    for path in PACKAGES.iterdir():
        if not path.name.startswith(NOT_LINKED):
            (packages / path.name).symlink_to(path)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([environment / "bin" / "python", *install], capture_output=True, check=True, timeout=600)
    return environment / "bin" / "longctx"


@pytest.mark.whole_loop
def test_uv_installs_the_command_as_a_tool(wheel: Path, tmp_path: Path) -> None:
    """Its dependencies are excluded: this environment has them, and the index may not answer."""
    requires = [line for line in metadata.requires("longctx-gates") or () if "extra ==" not in line]
    excluded = tmp_path / "excluded.txt"
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requires]
    excluded.write_text("\n".join(f"{name}; python_version < '0'" for name in names))
    places = {name: str(tmp_path / name) for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_CACHE_DIR")}
    uv = Path(sys.executable).with_name("uv")
    options = ["--offline", "--no-config", "--python", sys.executable, "--overrides", str(excluded)]
    subprocess.run(
        [uv, "tool", "install", wheel, *options], env=os.environ | places, capture_output=True, check=True, timeout=600
    )
    (packages,) = (tmp_path / "UV_TOOL_DIR").glob("longctx-gates/lib/*/site-packages")
    (packages / "dependencies.pth").write_text(f"{PACKAGES}\n")
    ended = run(tmp_path / "UV_TOOL_BIN_DIR" / "longctx", tmp_path, "tasks")
    assert "niah_single_1" in ended.stdout, ended.stderr


def run(command: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, with data of the user below it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    places = {"XDG_DATA_HOME": str(folder / "data"), "PYTEST_ADDOPTS": "-p no:hypothesispytest -p no:anyio"}
    return subprocess.run(
        [command, *arguments], cwd=folder, env=inherited | places, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip


def test_the_wheel_has_one_import_name_and_the_files_of_the_clone(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = {name for name in archive.namelist() if not name.startswith("longctx_gates-0.1.0.dist-info/")}
    assert {name.partition("/")[0] for name in names} == {"longctx"}
    different = [name for name in names if archive.read(name) != (REPOSITORY / name).read_bytes()]
    assert (different, len(names) > 350) == ([], True)
    suffixes = (".py", ".toml", ".json", ".j2", ".css", ".js")
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    tracked = [Path(name) for name in listed.splitlines()]
    expected = {f"longctx/{path}" for path in tracked if path.parts[0] in LINKED and path.suffix in suffixes}
    assert expected - names == set()


@pytest.mark.whole_loop
def test_runs_of_others_load_nothing_of_the_suite(command: Path, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_other(): assert not [name for name in sys.modules if name.startswith('longctx.fixtures')]\n"
    )
    ended = subprocess.run(
        [command.with_name("python"), "-m", "pytest", "-q", "test_other.py"], cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (ended.returncode, "1 passed" in ended.stdout) == (0, True), ended.stdout + ended.stderr


@pytest.mark.whole_loop
def test_the_installed_command_measures_from_any_directory(command: Path, tmp_path: Path) -> None:
    """Modules in the working directory that are named as those of the suite change nothing."""
    for name in ("fixtures", "plugins", "ci"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong module')\n")
    checkpoint = calibration_checkpoint("512")
    (tmp_path / "longctx.toml").write_text(
        f'model = "{checkpoint}"\nsuite = "ruler"\nlengths = 512\nsamples = 9\n'
        '[reports]\njson = "out/report.json"\nsamples = "out/samples.jsonl"\n'
    )
    planned = run(command, tmp_path, "plan", "--lengths", "1k")
    assert (planned.returncode, planned.stderr, "collected 13 items" in planned.stdout) == (0, "", True)
    (tmp_path / "own.toml").write_text(
        '[[gate]]\nname = "needle"\nkind = "level"\ntasks = ["niah_single_2"]\nabove = 85\n'
    )
    with served_needles(512, checkpoint) as server:
        ended = run(
            command, tmp_path, "run", server, "--samples", "2",
            "tests_longctx/test_ruler.py::test_ruler[niah_single_2-512]",
        )  # fmt: skip
        gate = "own.toml::gate[needle at 512]"
        gated = run(command, tmp_path, "run", server, "--samples", "2", "--thresholds", "own.toml", gate)
    assert (gated.stderr, "1 measured, " in gated.stdout, "needle at 512" in gated.stdout) == ("", True, True)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert "niah_single_2            100.0" in ended.stdout
    assert ended.stdout.index(f"waiting for {checkpoint}: first answers") < ended.stdout.index("test_ruler.py ")
    assert "Warning" not in ended.stdout
    assert (tmp_path / "out" / "report.json").is_file()
    assert len((tmp_path / "out" / "samples.jsonl").read_text().splitlines()) == 2
    listed = run(command, tmp_path, "journal", str(tmp_path / "data" / "longctx" / "journal"))
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "subjects: 1, samples: 2," in listed.stdout
