"""Writes the reports when a run has ended: JSON (--report-json), JUnit properties, the terminal summary."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugins.evidence import COLLECTED
from plugins.gates.plugin import VERDICTS, measured
from plugins.options import RUN
from plugins.report.document import Finished, document
from plugins.report.terminal import inspection_lines, summary_lines

CLOCK = pytest.StashKey[tuple[str, float]]()
DOCUMENT = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("longctx").addoption("--report-json", metavar="FILE", help="write the report as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CLOCK] = (datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic())
    target = _target(config)
    if RUN in config.stash and target and not hasattr(config, "workerinput"):
        _check_writable(target)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Before pytest writes its JUnit file."""
    config = session.config
    if VERDICTS not in config.stash:
        return
    run, collected, (started, clock) = config.stash[RUN], config.stash[COLLECTED], config.stash[CLOCK]
    facts = next((found.facts for found in collected.evidence.values() if found.facts), None)
    written = document(
        Finished(
            run=run,
            measured=measured(run, collected),
            verdicts=config.stash[VERDICTS],
            facts=facts,
            started=started,
            seconds=time.monotonic() - clock,
        )
    )
    config.stash[DOCUMENT] = written
    _describe_in_junit(config, written)
    if target := _target(config):
        write_json(target, written)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines: list[tuple[str, dict[str, bool]]] = []
    if DOCUMENT in config.stash:
        lines = summary_lines(config.stash[DOCUMENT])
    elif COLLECTED in config.stash and config.stash[RUN].options.preflight:
        lines = inspection_lines(
            [found.inspection for found in config.stash[COLLECTED].evidence.values() if found.inspection]
        )
    if lines:
        terminalreporter.section("long context")
    for line, markup in lines:
        terminalreporter.write_line(line, **markup)
    if DOCUMENT in config.stash and (target := _target(config)):
        terminalreporter.write_line(f"report     {target}")


def write_json(target: Path, written: dict[str, Any]) -> None:
    """Whole or not at all: a reader never sees half a report."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(written, indent=1, allow_nan=False) + "\n", encoding="ascii")
    partial.replace(target)


def _target(config: pytest.Config) -> Path | None:
    given = config.option.report_json
    return Path(config.invocation_params.dir, given) if given else None


def _check_writable(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        probe = target.with_name(f".{target.name}.{os.getpid()}")
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise pytest.UsageError(
            f"--report-json: cannot write {target} ({error.strerror}); give a file in a directory that can be written"
        ) from error


def _describe_in_junit(config: pytest.Config, written: dict[str, Any]) -> None:
    """Run facts as properties of the suite; set here because workers cannot reach the file."""
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        model, ruler = written["model"], written["ruler"]
        for name in ("name", "fingerprint", "architecture", "dtype", "attention", "engine", "claimed_length"):
            xml.add_global_property(f"model.{name}", str(model[name]))
        xml.add_global_property("ruler.effective_length", str(ruler["effective_length_label"]))
        xml.add_global_property("run.partial", str(written["run"]["partial"]).lower())
