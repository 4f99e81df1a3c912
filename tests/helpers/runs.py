"""Runs of the suite in a pytest process of their own. Tests that need the same run share its results."""

import fcntl
import json
import os
import re
import shlex
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from longctx.fixtures.calibration import cached, parse_spec
from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.seeding import stable_hash
from longctx.plugins import collection
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import PYTEST, preloaded

SCHEMA = json.loads((REPOSITORY / "plugins/report/schema.json").read_text())
# For a run of seconds on a busy machine.
TIMEOUT_SECONDS = 900
# Third-party plugins of the test environment. A run does not need them, and their import takes time.
UNRELATED_PLUGINS = ("-p", "no:hypothesispytest", "-p", "no:anyio")
NEEDLES = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
)  # fmt: skip
ONLY_NEEDLES = ("-k", "single or multikey")


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run that has ended."""

    folder: Path
    """The directory with everything that the run printed and wrote."""

    @property
    def exit_code(self) -> int:
        return int((self.folder / "code").read_text())

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def report(self) -> dict[str, Any]:
        """The contents of the JSON report."""
        report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return report

    @property
    def cases(self) -> dict[str, dict[str, Any]]:
        """The cases of the JSON report, keyed by the part of the id in brackets, such as `vt-4k`."""
        return {case["id"].partition("[")[2].rstrip("]"): case for case in self.report["cases"]}

    @property
    def gates(self) -> dict[str, dict[str, Any]]:
        return {gate["name"]: gate for gate in self.report["gates"]}

    @property
    def junit(self) -> dict[str, ElementTree.Element]:
        """The test cases of the JUnit file by name. Two cases of the same name raise ValueError."""
        cases = ElementTree.parse(self.folder / "junit.xml").findall(".//testcase")
        by_name = {case.attrib["name"]: case for case in cases}
        if len(by_name) != len(cases):
            raise ValueError("two test cases have the same name")
        return by_name

    def junit_outcomes(self, name: str) -> list[str]:
        """Return the outcomes of a JUnit test case: `failure`, `error` or `skipped`; none if it passed."""
        return [child.tag for child in self.junit[name] if child.tag != "properties"]

    def junit_properties(self, name: str) -> dict[str, str]:
        """Return the properties of a JUnit test case."""
        return {child.attrib["name"]: child.attrib["value"] for child in self.junit[name].iter("property")}

    @property
    def junit_facts(self) -> dict[str, str]:
        """The properties of the whole run in its JUnit file."""
        found = ElementTree.parse(self.folder / "junit.xml").findall("./testsuite/properties/property")
        return {one.attrib["name"]: one.attrib["value"] for one in found}

    @property
    def counts(self) -> dict[str, int]:
        """The counts in the last line of the terminal: measured, deselected, gate pass, gate reported, ..."""
        last = self.output.strip().splitlines()[-1].partition(" in ")[0]
        cases, _, gates = last.partition("gates: ")
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+(?: \w+)*)", cases)}
        return counts | {f"gate {word}": int(number) for number, word in re.findall(r"(\d+) (\w+(?: \w+)*)", gates)}


def completed_run(
    factory: pytest.TempPathFactory,
    *arguments: str,
    thresholds: str | None = None,
    plugin: str = "",
    own_journal: bool = False,
) -> CompletedRun:
    """Run pytest with these arguments and every report, or return the run if another test has already made it.

    `thresholds` is the text of a thresholds file, `plugin` the source of a plugin for the run and its workers.
    Runs share one journal. A run with `own_journal` or with a plugin has its own, because a plugin may change the
    stored results.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"run-{stable_hash(thresholds, plugin, own_journal, *arguments):016x}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "code").is_file():
            (folder / "run_plugin.py").write_text(plugin)
            gates = []
            if thresholds is not None:
                (folder / "gates.toml").write_text(thresholds)
                gates = ["--thresholds", f"{folder}/gates.toml"]
            names = {"--report-json": "report.json", "--report-html": "report.html", "--report-md": "report.md"}
            reports = [f"{option}={folder}/{name}" for option, name in names.items()]
            reports.append(f"--junitxml={folder}/junit.xml")
            journal = folder / "journal" if own_journal or plugin else shared / "journal"
            run_pytest(folder, "-p", "run_plugin", *reports, *gates, *arguments, journal=journal)
    return CompletedRun(folder)


def run_pytest(
    folder: Path, *arguments: str, journal: Path | None = None, gpus: str = "", fresh: bool = False
) -> CompletedRun:
    """Run pytest in the clone with these arguments, isolated from the environment of the calling pytest.

    The suite is RULER unless the arguments name another, because its tasks fit short lengths. Results are stored in
    `journal`, which defaults to a directory in `folder`. `gpus` lists the visible GPUs, none by default.
    Most runs are forked from a process that has imported the packages of other projects; a `fresh` run is not.
    """
    program = PYTEST if fresh else preloaded("pytest")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # This clone's code runs, also where the environment has another clone's.
    path = os.pathsep.join((str(folder), str(REPOSITORY)))
    ended = subprocess.run(
        [str(program), *UNRELATED_PLUGINS, f"--journal={journal or folder / 'journal'}", "--suite=ruler", *arguments],
        cwd=REPOSITORY,
        env=inherited | {"PYTHONPATH": path, "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": gpus},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    (folder / "stdout").write_text(ended.stdout)
    (folder / "stderr").write_text(ended.stderr)
    (folder / "code").write_text(str(ended.returncode))
    return CompletedRun(folder)


def usage_error(*arguments: str) -> str:
    """Return the message of the usage error that these options cause, without starting another process.

    The calling test fails if the options are valid.
    """
    location = (f"--rootdir={REPOSITORY}", str(REPOSITORY / CASES_DIRECTORY))
    try:
        config = pytest.Config.fromdictargs({}, ["--capture=no", *location, "--suite=ruler", *arguments])
        collection.pytest_configure(config)
    except pytest.UsageError as error:
        return str(error)
    pytest.fail(f"{shlex.join(arguments)} is accepted")


def calibration_checkpoint(spec: str) -> Path:
    """Return the directory in which a run with `--model calibration:SPEC` stores its checkpoint."""
    return cached(parse_spec(spec), REPOSITORY / ".longctx" / "calibration")


def text_of_files(*folders: Path) -> str:
    """Return the text of all files under these folders."""
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)


def sparse_weights(path: Path, gibibytes: int) -> None:
    """Write a sparse safetensors file with a valid header. It takes almost no disk space and cannot be loaded."""
    size = gibibytes * 2**30
    header: Mapping[str, Any] = {"weights": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)
