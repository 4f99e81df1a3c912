"""Writes the reports when a run has ended: JSON, HTML, Markdown, JUnit properties, the terminal, dashboards."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fixtures.atomic_files import write_file
from plugins.controller import CONTROLLER, EVALUATION
from plugins.options import RUN
from plugins.report.details import details
from plugins.report.document import RunSummary, document
from plugins.report.markdown import markdown
from plugins.report.scalars import ScalarsError, check_extra, write_tensorboard, write_wandb
from plugins.report.terminal import inspection_lines, summary_lines

CLOCK = pytest.StashKey[tuple[str, float]]()
DOCUMENT = pytest.StashKey[dict[str, Any]]()
TROUBLES = pytest.StashKey[dict[str, str]]()
FILES = ("report_json", "report_html", "report_md")
DASHBOARDS = ("tensorboard", "wandb")
REPORTS = (*FILES, *DASHBOARDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    add = parser.getgroup("longctx").addoption
    add("--report-json", metavar="FILE", help="write the report as JSON")
    add("--report-html", metavar="FILE", help="write the report as one page to look at, offline")
    add("--report-md", metavar="FILE", help="write a short report in Markdown, as for a pull request")
    add("--tensorboard", metavar="DIR", help="write the scores as TensorBoard scalars, by training step")
    add("--wandb", metavar="PROJECT", help="log the scores to a project of Weights & Biases, by training step")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CLOCK] = (datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic())
    if RUN not in config.stash or config.option.plan or hasattr(config, "workerinput"):
        return
    asked = [_flag(option) for option in REPORTS if getattr(config.option, option)]
    if asked and config.option.preflight:
        raise pytest.UsageError(
            f"{', '.join(asked)}: --preflight measures nothing to report; "
            f"leave {'it' if len(asked) == 1 else 'them'} out, or leave --preflight out"
        )
    for option in DASHBOARDS:
        if getattr(config.option, option):
            try:
                check_extra(option)
            except ScalarsError as error:
                raise pytest.UsageError(str(error)) from error
    for option, target in _targets(config).items():
        _check_writable(option, target)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Before pytest writes its JUnit file."""
    config = session.config
    if EVALUATION not in config.stash:
        return
    controller, (started, clock) = config.stash[CONTROLLER], config.stash[CLOCK]
    summary = RunSummary(
        run=config.stash[RUN],
        evaluation=config.stash[EVALUATION],
        facts=controller.facts,
        execution=controller.execution,
        computed_samples=controller.computed_samples,
        started=started,
        seconds=time.monotonic() - clock,
    )
    written = document(summary)
    config.stash[DOCUMENT] = written
    _describe_in_junit(config, written)
    troubles = _write_reports(config, summary, written, holds=session.exitstatus == pytest.ExitCode.OK)
    config.stash[TROUBLES] = troubles
    if troubles and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines: list[tuple[str, dict[str, bool]]] = []
    if DOCUMENT in config.stash:
        lines = summary_lines(config.stash[DOCUMENT])
    elif CONTROLLER in config.stash and config.stash[RUN].options.preflight:
        lines = inspection_lines(
            [report.inspection for report in config.stash[CONTROLLER].reports.values() if report.inspection]
        )
    if lines:
        terminalreporter.section("long context")
    for line, markup in lines:
        terminalreporter.write_line(line, **markup)
    troubles = config.stash.get(TROUBLES, {})
    for option, target in _targets(config).items() if DOCUMENT in config.stash else ():
        if option in FILES and option not in troubles:
            terminalreporter.write_line(f"report     {target}")
    for trouble in troubles.values():
        terminalreporter.write_line(trouble, red=True)
    if RUN in config.stash and (config.option.plan or config.option.preflight) and (unwritten := _asked_for(config)):
        terminalreporter.write_line(f"report     none: nothing was measured for {', '.join(unwritten)}")


def case_properties(entry: dict[str, Any]) -> list[tuple[str, object]]:
    """A case's entry of the report as flat properties; what was not measured is left out."""
    flat = {name: value for name, value in entry.items() if isinstance(value, str | int | float) and name != "id"}
    if entry["interval"] is not None:
        flat["interval"] = "{} {}".format(*entry["interval"])
    return [*flat.items(), *((f"failures.{kind}", count) for kind, count in entry["failures"].items())]


def write_json(target: Path, written: dict[str, Any]) -> None:
    """The document, as ASCII; raises ValueError for a number that JSON cannot say."""
    write(target, json.dumps(written, indent=1, allow_nan=False) + "\n")


def write(target: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half a report. A lone surrogate is written as a question mark."""
    write_file(target, text.encode("utf-8", errors="replace"))


def _asked_for(config: pytest.Config) -> list[str]:
    """The options of reports that were given."""
    return [f"--{option.replace('_', '-')}" for option in (*FILES, *DASHBOARDS) if getattr(config.option, option)]


def _targets(config: pytest.Config) -> dict[str, Path]:
    """The files that were asked for, and TensorBoard's directory, by option."""
    given = {option: getattr(config.option, option) for option in (*FILES, "tensorboard")}
    return {option: Path(config.invocation_params.dir, name) for option, name in given.items() if name}


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _write_reports(
    config: pytest.Config, summary: RunSummary, written: dict[str, Any], *, holds: bool
) -> dict[str, str]:
    """Each by itself, for none may be lost to another; by option, why one is not there."""
    targets: dict[str, Path | str] = {**_targets(config)}
    if config.option.wandb:
        targets["wandb"] = config.option.wandb
    troubles = {}
    for option, target in targets.items():
        try:
            _write_report(option, target, summary, written, holds=holds)
        except ScalarsError as error:
            troubles[option] = str(error)
        except OSError as error:
            troubles[option] = (
                f"{_flag(option)}: cannot write {target} ({error.strerror or error}); every answer is in the journal: "
                "make room or name another place, and the same command writes it without asking the model again"
            )
    return troubles


def _write_report(
    option: str, target: Path | str, summary: RunSummary, written: dict[str, Any], *, holds: bool
) -> None:
    match option:
        case "report_json":
            write_json(Path(target), written)
        case "report_md":
            write(Path(target), markdown(written, holds=holds))
        case "report_html":
            # Its templates take a while to import.
            from plugins.report.html.page import page

            write(Path(target), page(written, details(summary)))
        case "tensorboard":
            write_tensorboard(Path(target), written)
        case "wandb":
            write_wandb(str(target), written)


def _check_writable(option: str, target: Path) -> None:
    is_folder = option == "tensorboard"
    folder = target if is_folder else target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not is_folder and target.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        probe = folder / f".{target.name}.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise pytest.UsageError(
            f"{_flag(option)}: cannot write {target} ({error.strerror}); "
            f"give a {'directory' if is_folder else 'file in a directory'} that can be written"
        ) from error


def _describe_in_junit(config: pytest.Config, written: dict[str, Any]) -> None:
    """Add the facts of the run and of every case to the JUnit report; workers know neither."""
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    model, ruler = written["model"], written["ruler"]
    for name in ("name", "fingerprint", "architecture", "dtype", "attention", "engine", "claimed_length"):
        if model[name] is not None:
            xml.add_global_property(f"model.{name}", str(model[name]))
    if ruler["effective_length_label"] is not None:
        xml.add_global_property("ruler.effective_length", ruler["effective_length_label"])
    xml.add_global_property("run.partial", str(written["run"]["partial"]).lower())
    # A test that its worker died over has no name; the worker that finished the case reports it under its name.
    xml.node_reporters_ordered = [node for node in xml.node_reporters_ordered if node.to_xml().get("name")]
    entries = {entry["id"]: entry for entry in written["cases"]}
    for test in (node.to_xml() for node in xml.node_reporters_ordered):
        if test.get("name") in entries:
            _add_properties(test, case_properties(entries[test.get("name")]))


def _add_properties(test: ElementTree.Element, properties: list[tuple[str, object]]) -> None:
    """Add properties to a finished JUnit test case; the schema wants them before everything else."""
    from _pytest.junitxml import bin_xml_escape

    parent = ElementTree.Element("properties")
    for name, value in properties:
        ElementTree.SubElement(parent, "property", name=name, value=bin_xml_escape(value))
    test.insert(0, parent)
