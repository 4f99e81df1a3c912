"""The words of the terminal: cases are measured; gates pass, fail, are undecided or only reported.

An interrupted run ends with the number of samples that the journal has, and without a traceback.
"""

import re
from collections.abc import Generator, Mapping
from difflib import get_close_matches
from typing import Any

import pytest

from longctx.fixtures import interrupts
from longctx.fixtures.lengths import format_length
from longctx.fixtures.shown_text import known_names
from longctx.plugins.stash import CONTROLLER, GATE_WORD, PROPERTY_WORD, RUN

Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]
"""The key under which the terminal counts a report, its letter, and its word under -v."""

Part = tuple[str, dict[str, bool]]
"""A part of the terminal's last line and its markup."""

CASE_COLOURS = {
    "measured": "green", "checked": "green", "without a score": "red", "with problems": "red",
    "not measured": "yellow", "retried": "yellow",
}  # fmt: skip
INTERRUPTION = pytest.StashKey[str]()
"""The statement about an interrupted run; not set for any other run."""

GROUPS = {"gates": GATE_WORD, "properties": PROPERTY_WORD}
"""The attribute of the reports of each group that holds their word."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put the counts of cases and gates into the terminal's last line."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RUN in config.stash and reporter is not None and not hasattr(config, "workerinput"):
        pytests_line = reporter.build_summary_stats_line
        # pytest shows keys that it does not know in yellow, as if they were warnings.
        reporter.build_summary_stats_line = lambda: _last_line(reporter, *pytests_line())


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any, config: pytest.Config) -> Status | None:
    """Return the status of a case, a gate or a property; None for every other report."""
    if RUN not in config.stash:
        return None
    for group, attribute in GROUPS.items():
        word = getattr(report, attribute, None)
        if word is not None:
            if report.when != "call":
                return "", "", ""
            # It has no letter: its line is in the summary that follows.
            colour = "red" if report.failed else "green" if report.passed else "yellow"
            shown = word.upper() if config.get_verbosity() > 0 else ""
            return f"{group}: {word.partition(' (')[0]}", "", (shown, {colour: True}) if shown else ""
    if hasattr(report, "longctx_invariance"):
        return "", ".", "CHECKED"
    # pytest shows the traceback of an unexpected exception.
    if not hasattr(report, "longctx") or (report.failed and getattr(report, "longctx_unexpected", False)):
        return None
    if report.skipped:
        return "not measured", "-", "NOT MEASURED"
    if config.stash[RUN].options.preflight:
        return ("checked", ".", "CHECKED") if report.passed else ("with problems", "P", "PROBLEMS")
    return ("measured", ".", "MEASURED") if report.passed else ("without a score", "E", "ERROR")


def _last_line(reporter: Any, pytests_parts: list[Part], pytests_colour: str) -> tuple[list[Part], str]:
    """Return the parts of the terminal's last line and its colour, from those that pytest would show."""
    config = reporter.config
    if config.option.collectonly:
        listed = f"{len(config.stash[CONTROLLER].selected)} cases"
        return [(listed, pytests_parts[0][1]), *pytests_parts[1:]], pytests_colour
    if config.option.plan:
        return [_part("nothing was measured: --plan", "yellow")], "yellow"
    stats = reporter.stats
    parts: list[Part] = []
    if INTERRUPTION in config.stash:
        parts.append(_part(config.stash[INTERRUPTION], "yellow"))
    # The counts of cases and groups of this suite.
    own = []
    for key, reports in stats.items():
        if key in CASE_COLOURS or key.partition(": ")[0] in GROUPS:
            own.append(f"{len(reports)} {key}")
    for key, colour in CASE_COLOURS.items():
        if key in stats:
            parts.append(_part(f"{len(stats[key])} {key}", colour))
    for text, markup in pytests_parts:
        if text not in own and not text.startswith("no tests"):
            parts.append((text, markup))
    for group in GROUPS:
        parts += _group_parts(stats, f"{group}: ")
    if not parts:
        return [_part("nothing was measured", "yellow")], "yellow"
    colours: set[str] = set()
    for _, markup in parts:
        colours |= {name for name, is_set in markup.items() if is_set}
    main_colour = "yellow"
    if "red" in colours:
        main_colour = "red"
    elif "green" in colours and "gates: undecided" not in stats:
        main_colour = "green"
    return [(text, markup | {"bold": main_colour in markup}) for text, markup in parts], main_colour


def _group_parts(stats: Mapping[str, Any], prefix: str) -> list[Part]:
    """Return the counts of a group by word; the first one begins with the group's name."""
    parts: list[Part] = []
    for key, reports in stats.items():
        word = key.removeprefix(prefix)
        if word in (key, ""):
            continue
        colour = "green" if word == "pass" else "yellow"
        if any(report.failed for report in reports):
            colour = "red"
        start = "" if parts else prefix
        parts.append(_part(f"{start}{len(reports)} {word}", colour))
    return parts


def _part(text: str, colour: str) -> Part:
    return text, {colour: True}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Explain a run that selected nothing."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and RUN in config.stash:
        terminalreporter.write_line(_nothing_selected(config), yellow=True)


def _nothing_selected(config: pytest.Config) -> str:
    run, keyword, markers = config.stash[RUN], config.option.keyword, config.option.markexpr
    options = []
    if keyword:
        options.append(f"-k {keyword!r}")
    if markers:
        options.append(f"-m {markers!r}")
    given, cases = " and ".join(options) or "the command line", run.available
    names: set[str] = set()
    for case in cases:
        names |= {case.task, case.category, format_length(case.length)}
    near = ""
    for word in re.findall(r"\w+", f"{keyword} {markers}"):
        if not near and word not in names and get_close_matches(word, names):
            near = f"{known_names(word, names)} "
    return (
        f"nothing selected: {given} matches none of the {len(cases)} cases and {len(run.named_gates)} gates; "
        f"{near}add --collect-only -q to list the ids of cases"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """End the run without the place in the code at which a signal reached it, unless --full-trace asks for it."""
    config = session.config
    try:
        return (yield)
    except KeyboardInterrupt as interrupt:
        # With another message, pytest-xdist stops after -x or --maxfail.
        is_own = type(interrupt) is KeyboardInterrupt
        if CONTROLLER not in config.stash or not (is_own or "keyboard-interrupt" in str(interrupt)):
            raise
        config.stash[CONTROLLER].is_interrupted = True
        if config.option.fulltrace:
            raise
        # Only Python's own, for Ctrl-C, has no text.
        cause = str(interrupt) if is_own and interrupt.args else "Ctrl-C"
    finally:
        # What follows, the evaluation and the reports, ends by itself.
        interrupts.ignore_stops()
    pytest.exit(cause, returncode=int(pytest.ExitCode.INTERRUPTED))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """State how many samples the journal has, after the run has been evaluated."""
    yield
    controller = session.config.stash.get(CONTROLLER, None)
    if controller is not None and controller.is_interrupted:
        stored, planned = controller.stored_samples()
        progress = f"{stored:,} of {planned:,} samples kept" if planned else "before the first sample"
        session.config.stash[INTERRUPTION] = f"interrupted: {progress}; the same command continues"
