"""Runs of the suite as a user starts them: pytest in a process of its own, shared by all tests that look at it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from fixtures.calibration import cached, parse_spec
from fixtures.records import CaseResult
from fixtures.seeding import stable_hash
from plugins import options
from plugins.runner.case_report import CaseReport
from tests.helpers.paths import REPOSITORY

PYTEST = Path(sys.executable).with_name("pytest")
SCHEMA = json.loads((REPOSITORY / "plugins/report/schema.json").read_text())
TIMEOUT_SECONDS = 300
# Other people's plugins that happen to be installed beside the tests, and take their time to be imported.
UNRELATED_PLUGINS = ("-p", "no:hypothesispytest", "-p", "no:anyio")
NEEDLES = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
)  # fmt: skip
ONLY_NEEDLES = ("-k", "single or multikey")

# Writes the case reports that reach the controller, and the case results that it evaluates, with all their samples.
SPY = """
import json
from pathlib import Path

import msgspec
import pytest

from plugins.controller import EVALUATION

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Spy(), "spy")

class Spy:
    def pytest_runtest_logreport(self, report):
        if hasattr(report, "longctx"):
            with Path(__file__).with_name("reports.jsonl").open("a") as file:
                file.write(json.dumps([report.nodeid.rpartition("::")[2], report.longctx]) + "\\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session):
        if EVALUATION in session.config.stash:
            with Path(__file__).with_name("results.jsonl").open("w") as file:
                for result in session.config.stash[EVALUATION].measured.results.values():
                    file.write(json.dumps(msgspec.to_builtins(result)) + "\\n")
"""


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A run that has ended; `folder` holds what it printed and wrote."""

    folder: Path

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
        """What --report-json wrote."""
        written: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return written

    @property
    def cases(self) -> dict[str, dict[str, Any]]:
        """The report's cases by what stands in the brackets of their ids."""
        return {case["id"].partition("[")[2].rstrip("]"): case for case in self.report["cases"]}

    @property
    def gates(self) -> dict[str, dict[str, Any]]:
        return {gate["name"]: gate for gate in self.report["gates"]}

    @property
    def junit(self) -> dict[str, ElementTree.Element]:
        """The JUnit file's test cases by name; a name that occurs twice raises ValueError."""
        found = ElementTree.parse(self.folder / "junit.xml").findall(".//testcase")
        by_name = {case.attrib["name"]: case for case in found}
        if len(by_name) != len(found):
            raise ValueError("two test cases have the same name")
        return by_name

    def junit_outcomes(self, name: str) -> list[str]:
        """What a JUnit test case is: nothing (passed), failure, error or skipped."""
        return [child.tag for child in self.junit[name] if child.tag != "properties"]

    def junit_properties(self, name: str) -> dict[str, str]:
        """The properties of a JUnit test case."""
        return {each.attrib["name"]: each.attrib["value"] for each in self.junit[name].iter("property")}

    @property
    def results(self) -> dict[str, CaseResult]:
        """The evaluated results by case id, with all their samples."""
        lines = (self.folder / "results.jsonl").read_text().splitlines()
        results = [msgspec.convert(json.loads(line), CaseResult) for line in lines]
        return {result.case.id: result for result in results}

    @property
    def reports(self) -> list[tuple[str, CaseReport]]:
        """The case ids and reports that reached the controller, in the order of their arrival."""
        lines = (self.folder / "reports.jsonl").read_text().splitlines()
        return [(case, msgspec.convert(json.loads(text), CaseReport)) for case, text in map(json.loads, lines)]

    @property
    def counts(self) -> dict[str, int]:
        """What the terminal's last line counts: passed, failed, skipped, xfailed, deselected, ..."""
        last = self.output.strip().splitlines()[-1]
        return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last.partition(" in ")[0])}


def completed_run(
    factory: pytest.TempPathFactory,
    *arguments: str,
    thresholds: str | None = None,
    plugin: str = "",
    own_journal: bool = False,
) -> CompletedRun:
    """The run with these arguments, with all its reports; only the first who asks has to wait for it.

    `thresholds` is the text of a thresholds file, `plugin` the source of a plugin for the run and its workers.
    Runs share one journal, unless they ask for their own or have a plugin, which may change what they find.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"run-{stable_hash(thresholds, plugin, own_journal, *arguments):016x}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "code").is_file():
            (folder / "run_spy.py").write_text(SPY)
            (folder / "run_plugin.py").write_text(plugin)
            gates = []
            if thresholds is not None:
                (folder / "gates.toml").write_text(thresholds)
                gates = ["--thresholds", f"{folder}/gates.toml"]
            names = {"--report-json": "report.json", "--report-html": "report.html", "--report-md": "report.md"}
            reports = [f"{option}={folder}/{name}" for option, name in names.items()]
            reports.append(f"--junitxml={folder}/junit.xml")
            journal = folder / "journal" if own_journal or plugin else shared / "journal"
            run_pytest(folder, "-p", "run_spy", "-p", "run_plugin", *reports, *gates, *arguments, journal=journal)
    return CompletedRun(folder)


def run_pytest(folder: Path, *arguments: str, journal: Path | None = None, gpus: str = "") -> CompletedRun:
    """Runs pytest in the clone with these arguments and nothing else from the pytest around it.

    The suite is RULER's where the arguments name no other: its tasks fit lengths that are quickly answered.
    Results are kept in `journal`, by default one of the folder's own, and never in the clone's. No GPU is used
    but those that are named.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [str(PYTEST), *UNRELATED_PLUGINS, f"--journal={journal or folder / 'journal'}", "--suite=ruler", *arguments],
        cwd=REPOSITORY,
        env=inherited | {"PYTHONPATH": str(folder), "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": gpus},
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
    """What pytest ends with, and exit code 4, where it is given these options; read in this process.

    One that takes them raises pytest's Failed.
    """
    home = (f"--rootdir={REPOSITORY}", str(REPOSITORY / options.CASES_DIRECTORY))
    config = pytest.Config.fromdictargs({}, ["--capture=no", *home, "--suite=ruler", *arguments])
    with pytest.raises(pytest.UsageError) as refusal:
        options.pytest_configure(config)
    return str(refusal.value)


def calibration_checkpoint(spec: str) -> Path:
    """The directory of a calibration checkpoint, where a run with --model calibration:SPEC keeps it."""
    return cached(parse_spec(spec), REPOSITORY / ".longctx" / "calibration")


def sparse_weights(path: Path, gibibytes: int) -> None:
    """A safetensors file that is whole by its header, and takes no room; nothing can be loaded from it."""
    size = gibibytes * 2**30
    header: Mapping[str, Any] = {"weights": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + size)
