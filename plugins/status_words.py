"""Show cases and gates in words of their own: cases are measured; gates pass, fail, are undecided or only reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from plugins.controller import CONTROLLER
from plugins.gate_tests import GATE_WORD
from plugins.interrupted import INTERRUPTION
from plugins.invariance import PROPERTY_WORD
from plugins.options import RUN
from plugins.select_gates import LISTED_GATES, gate_count

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]
"""The key under which the terminal counts a report, its letter, and its word under -v."""

Part = tuple[str, dict[str, bool]]
"""A part of the terminal's last line and its markup."""

CASE_COLOURS = {
    "measured": "green", "checked": "green", "without a score": "red", "with problems": "red",
    "not measured": "yellow", "retried": "yellow",
}  # fmt: skip
GROUPS = {"gates": GATE_WORD, "properties": PROPERTY_WORD}
"""The attribute of the reports of each group that holds their word."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put the counts of cases and gates into the terminal's last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RUN in config.stash and reporter is not None and not hasattr(config, "workerinput"):
        pytests_line = reporter.build_summary_stats_line
        # pytest shows keys that it does not know in yellow, as if they were warnings.
        reporter.build_summary_stats_line = lambda: last_line(reporter, *pytests_line())


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any, config: pytest.Config) -> Status | None:
    """Return the status of a case, a gate or a property; None for every other report."""
    if RUN not in config.stash:
        return None
    for group, attribute in GROUPS.items():
        word = getattr(report, attribute, None)
        if word is not None:
            return _grouped(report, group, word, config) if report.when == "call" else ("", "", "")
    if hasattr(report, "longctx_invariance"):
        return "", ".", "CHECKED"
    return _case(report, preflight=config.stash[RUN].options.preflight) if hasattr(report, "longctx") else None


def _grouped(report: Any, group: str, word: str, config: pytest.Config) -> Status:
    """Return the status of a gate or a property. It has no letter: its line is in the summary that follows."""
    colour = "red" if report.failed else "green" if report.passed else "yellow"
    shown = word.upper() if config.get_verbosity() > 0 else ""
    return f"{group}: {word.partition(' (')[0]}", "", (shown, {colour: True}) if shown else ""


def _case(report: Any, *, preflight: bool) -> Status | None:
    """Return the status of a case; None for an unexpected exception, whose traceback pytest shows."""
    if report.passed:
        return ("checked", ".", "CHECKED") if preflight else ("measured", ".", "MEASURED")
    if report.skipped:
        return "not measured", "-", "NOT MEASURED"
    if getattr(report, "longctx_unexpected", False):
        return None
    return ("with problems", "P", "PROBLEMS") if preflight else ("without a score", "E", "ERROR")


def last_line(reporter: Any, pytests_parts: list[Part], pytests_colour: str) -> tuple[list[Part], str]:
    """Return the parts of the terminal's last line and its colour, from those that pytest would show."""
    config = reporter.config
    if config.option.collectonly:
        return _listed(config, pytests_parts), pytests_colour
    if config.option.plan:
        return [("nothing was measured: --plan", {"yellow": True})], "yellow"
    counts = {key: len(reports) for key, reports in reporter.stats.items() if _is_own(key)}
    own = {f"{count} {key}" for key, count in counts.items()}
    others = [part for part in pytests_parts if part[0] not in own and not part[0].startswith("no tests")]
    cases = [_part(f"{counts[key]} {key}", colour) for key, colour in CASE_COLOURS.items() if key in counts]
    groups = [_part(text, colour) for group in GROUPS for text, colour in _group_parts(reporter.stats, group)]
    parts = [*_interruption(config), *cases, *others, *groups]
    if not parts:
        return [("nothing was measured", {"yellow": True})], "yellow"
    colours = [colour for _, markup in parts for colour in ("red", "green", "yellow") if markup.get(colour)]
    colour = "red" if "red" in colours else "green" if "green" in colours and not _is_open(counts) else "yellow"
    return [(text, markup | {"bold": colour in markup}) for text, markup in parts], colour


def _is_own(key: str) -> bool:
    return key in CASE_COLOURS or key.partition(": ")[0] in GROUPS


def _is_open(counts: Mapping[str, int]) -> bool:
    return "gates: undecided" in counts or "gates: underpowered" in counts


def _part(text: str, colour: str) -> Part:
    return text, {colour: True}


def _group_parts(stats: Mapping[str, list[Any]], group: str) -> list[tuple[str, str]]:
    """Return the counts of a group with their colours; the first one begins with the group's name."""
    parts = []
    for key, reports in stats.items():
        name, _, word = key.partition(": ")
        if name == group and word:
            any_failed = any(report.failed for report in reports)
            colour = "red" if any_failed else "green" if word == "pass" else "yellow"
            parts.append((f"{len(reports)} {word}", colour))
    return [(f"{group}: {text}" if not place else text, colour) for place, (text, colour) in enumerate(parts)]


def _listed(config: pytest.Config, pytests_parts: list[Part]) -> list[Part]:
    """Return the parts for --collect-only: the number of cases and gates, then what pytest says besides."""
    cases, gates = len(config.stash[CONTROLLER].selected), config.stash.get(LISTED_GATES, 0)
    return [(f"{cases} cases and {gates} gates", pytests_parts[0][1]), *pytests_parts[1:]]


def _interruption(config: pytest.Config) -> list[Part]:
    text = config.stash.get(INTERRUPTION, "")
    return [(text, {"yellow": True})] if text else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Explain a run that selected nothing."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and RUN in config.stash:
        terminalreporter.write_line(nothing_selected(config), yellow=True)


def nothing_selected(config: pytest.Config) -> str:
    """Return why no case was selected, and how to list the ids of cases and gates."""
    given = [
        f"{flag} {getattr(config.option, name)!r}"
        for flag, name in (("-k", "keyword"), ("-m", "markexpr"))
        if getattr(config.option, name)
    ]
    cases, gates = len(config.stash[RUN].available), gate_count(config)
    return (
        f"nothing selected: {' and '.join(given) or 'the command line'} matches none of the {cases} cases and "
        f"{gates} gates; add --collect-only -q to list their ids"
    )
