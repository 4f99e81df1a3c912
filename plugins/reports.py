"""Write the reports at the end of a run: JSON, HTML, Markdown, JUnit properties, the terminal, dashboards."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import structs

from longctx.fixtures.atomic_files import with_final_names, write_file
from longctx.fixtures.cli import output_problem
from longctx.fixtures.outside_files import absolute
from longctx.fixtures.records.report import JsonReport, ReportVerdict
from longctx.fixtures.shown_text import shown_columns, visible, visible_data, visible_line, without_commands
from longctx.plugins.collection import usage_error
from longctx.plugins.config.invocation import typed_command
from longctx.plugins.config.options import PATHS, REPORT_OPTIONS, RUN_OPTIONS, Option
from longctx.plugins.gate_tests import passed_reports
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.scalars import ScalarsError, check_extra, write_tensorboard, write_wandb
from longctx.plugins.report.sections.suites import means
from longctx.plugins.report.tables import plural
from longctx.plugins.report.terminal import inspection_lines, terminal_summary, verdict_lines
from longctx.plugins.report.texts import report_text, sample_lines
from longctx.plugins.stash import CONTROLLER, EVALUATION, INVARIANCE, RUN

START = pytest.StashKey[tuple[str, float]]()
"""The start of the run: ISO 8601 in UTC, and the monotonic clock in seconds."""

DOCUMENT = pytest.StashKey[JsonReport]()
"""The report, with the texts of models and files as they are."""

SHOWN = pytest.StashKey[JsonReport]()
"""The same report with all texts visible, for everything that people read."""

WRITE_ERRORS = pytest.StashKey[dict[str, str]]()
"""One line for every report that could not be written, by option."""

# pytest itself writes the report of its own option.
OPTIONS: Mapping[str, Option] = {one.attribute: one for one in REPORT_OPTIONS if one.declarer == "suite"}
"""The options that write a report, by attribute."""

PROBE_BYTES = 4096
WRITE_AGAIN = "free space or name another place; the same command writes what is missing from the journal"
JUNIT_MODEL_FACTS = ("name", "fingerprint", "architecture", "dtype", "attention", "engine", "claimed_length")


def pytest_configure(config: pytest.Config) -> None:
    """Check before the run that every requested report can be written."""
    config.stash[START] = (datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic())
    if RUN not in config.stash or config.option.plan or hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(_VisibleTexts(), "longctx-visible-texts")
    for flag in _requested(config):
        option = RUN_OPTIONS[flag]
        if option.writes == "scores":
            try:
                check_extra(option.attribute)
            except ScalarsError as error:
                raise usage_error(error) from error
    check_outputs(config)
    if config.option.xmlpath:
        config.pluginmanager.register(_JunitFile(), "longctx-junit-file")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write all reports, before pytest writes its JUnit file."""
    config = session.config
    if EVALUATION not in config.stash:
        return
    controller, (started, clock) = config.stash[CONTROLLER], config.stash[START]
    command = typed_command([str(word) for word in config.invocation_params.args])
    # A user name and a password in an address are left out.
    command = with_final_names(re.sub(r"(?<=://)[^/@\s]+@", "", command))
    run, evaluation, facts = config.stash[RUN], config.stash[EVALUATION], controller.facts
    executions = controller.executions or {}
    summary = RunSummary(
        run=run,
        evaluation=evaluation,
        facts=facts,
        execution=executions.get("model"),
        baseline_execution=executions.get("baseline"),
        computed_samples=controller.computed_samples,
        worker_seconds=controller.worker_seconds,
        invariance=config.stash.get(INVARIANCE, None),
        started=started,
        seconds=time.monotonic() - clock,
        command=command,
        files={option: Path(with_final_names(str(target))) for option, target in _targets(config).items()},
        exit_code=int(session.exitstatus),
    )
    config.stash[DOCUMENT] = document(summary)
    config.stash[SHOWN] = visible_data(config.stash[DOCUMENT])
    from _pytest.junitxml import xml_key

    if (xml := config.stash.get(xml_key, None)) is not None:
        describe_in_junit(xml, config.stash[SHOWN])
    errors = _write_reports(config, summary)
    config.stash[WRITE_ERRORS] = errors
    if errors and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    stash, option = config.stash, config.option
    lines = []
    columns = shown_columns(sys.stdout.isatty())
    if SHOWN in stash:
        lines += terminal_summary(stash[SHOWN], columns)
    elif CONTROLLER in stash and stash[RUN].options.preflight:
        reports = stash[CONTROLLER].reports.values()
        lines += inspection_lines([report.inspection for report in reports if report.inspection])
    if lines:
        terminalreporter.section("long context")
    if EVALUATION in stash:
        lines += [(f"journal    {line}", {"yellow": True}) for line in stash[EVALUATION].measured.journal_damage]
    errors = stash.get(WRITE_ERRORS, {})
    for name, target in _targets(config).items() if DOCUMENT in stash else ():
        if name != "tensorboard" and name not in errors:
            lines.append((with_final_names(f"report     {target}"), {}))
    lines += [(error, {"red": True}) for error in errors.values()]
    if SHOWN in stash and (verdict := stash[SHOWN].verdict) is not None:
        lines += verdict_lines(_with_write_errors(verdict, len(errors)), columns)
    for line, markup in lines:
        terminalreporter.write_line(_log_line(line), **markup)
    measures_nothing = RUN in stash and (option.plan or option.preflight)
    if measures_nothing and (requested := _requested(config)):
        terminalreporter.write_line(f"report     none: nothing was measured for {', '.join(requested)}")


def _with_write_errors(verdict: ReportVerdict, errors: int) -> ReportVerdict:
    """Return the verdict with the reports that could not be written, which are known when the others are written."""
    if not errors:
        return verdict
    if verdict.exit_code == 0:
        verdict = structs.replace(verdict, word="fail", exit_code=1, next_step=WRITE_AGAIN)
    problem = f"{plural(errors, 'report', 'reports')} could not be written"
    return structs.replace(verdict, reasons=(problem, *verdict.reasons))


class _JunitFile:
    """Let pytest write its JUnit file like the other reports: whole or not at all, and without losing the verdict."""

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        from _pytest.junitxml import xml_key

        config = session.config
        xml = config.stash.get(xml_key, None)
        if xml is None:
            yield
            return
        target = absolute(xml.logfile)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        xml.logfile = str(temporary)
        try:
            yield
            temporary.replace(target)
        except BrokenPipeError:
            raise
        except OSError as error:
            config.stash.setdefault(WRITE_ERRORS, {})["xmlpath"] = _write_error("--junitxml", target, error)
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            # Otherwise it would say that it has written the file.
            config.pluginmanager.unregister(xml)
            del config.stash[xml_key]
        finally:
            xml.logfile = str(target)
            with contextlib.suppress(OSError):
                temporary.unlink()


class _VisibleTexts:
    """Clean the texts of every test before the terminal, JUnit and the log show them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if isinstance(report.longrepr, tuple):
            path, line, reason = report.longrepr
            report.longrepr = (path, line, _log_line(reason))
        elif isinstance(report.longrepr, str):
            report.longrepr = _log_line(report.longrepr)
        elif (text := without_commands(visible(report.longreprtext))) != report.longreprtext:
            report.longrepr = text
        report.sections = [(name, without_commands(visible(text))) for name, text in report.sections]
        report.user_properties = [(name, visible_data(value)) for name, value in report.user_properties]


def _log_line(text: str) -> str:
    """Return a text on one line in a form that is a command neither to the terminal nor to CI."""
    return without_commands(visible_line(text))


def write(target: Path, text: str) -> None:
    """Write a file atomically, so that no reader sees a part of it. A lone surrogate becomes a question mark."""
    write_file(target, text.encode("utf-8", errors="replace"))


def _requested(config: pytest.Config) -> list[str]:
    return [option.flag for name, option in OPTIONS.items() if getattr(config.option, name)]


def _targets(config: pytest.Config) -> dict[str, Path]:
    targets = {}
    for option, one in OPTIONS.items():
        name = getattr(config.option, option)
        if name and one.kind in PATHS:
            targets[option] = Path(config.invocation_params.dir, name)
    return targets


def _write_reports(config: pytest.Config, summary: RunSummary) -> dict[str, str]:
    """Write every requested report, even if others fail, and return one line for every failure, by option."""
    targets: dict[str, Path | str] = {**_targets(config)}
    if config.option.wandb:
        targets["wandb"] = config.option.wandb
    errors = {}
    for option, target in targets.items():
        try:
            has_answers = OPTIONS[option].writes in ("report", "answers")
            _write_report(option, target, summary, config.stash[DOCUMENT if has_answers else SHOWN])
        except ScalarsError as error:
            errors[option] = str(error)
        except OSError as error:
            errors[option] = _write_error(OPTIONS[option].flag, target, error)
    return errors


def _write_error(flag: str, target: Path | str, error: OSError) -> str:
    return (
        f"{flag}: cannot write {target} ({error.strerror or error}); every answer is in the journal: "
        "free space or name another place, and the same command writes it without running the model again"
    )


def _write_report(option: str, target: Path | str, summary: RunSummary, document: JsonReport) -> None:
    match option:
        case "report_json" | "report_md" | "report_html":
            write(Path(target), report_text(OPTIONS[option].flag, summary, document))
        case "samples_jsonl":
            write(Path(target), "".join(sample_lines(summary)))
        case "tensorboard":
            write_tensorboard(Path(target), document)
        case "wandb":
            write_wandb(str(target), document)


def check_outputs(config: pytest.Config) -> None:
    """Raise pytest.UsageError if a file or folder cannot be written, or takes the place of another."""
    outputs = {OPTIONS[option].flag: target for option, target in _targets(config).items()}
    folders = {one.flag for one in OPTIONS.values() if one.kind == "folder"}
    if config.option.xmlpath:
        # As pytest reads it.
        outputs["--junitxml"] = Path(os.path.expanduser(os.path.expandvars(config.option.xmlpath)))
    places = {flag: absolute(target) for flag, target in outputs.items()}
    if problem := output_problem(places, _files_read(config), folders):
        raise usage_error(problem)
    for flag, target in outputs.items():
        _check_writable(flag, target, is_folder=flag in folders)


def _files_read(config: pytest.Config) -> dict[Path, str]:
    files = {}
    for option in RUN_OPTIONS.values():
        named = getattr(config.option, option.attribute, None) if option.kind in ("path", "perhaps path") else None
        for name in str(named or "").split(","):
            path = absolute(Path(config.invocation_params.dir, name))
            if path.is_file():
                files[path] = option.flag
    return files


def _check_writable(flag: str, target: Path, *, is_folder: bool) -> None:
    """Create the target's directory and a file in it; raises pytest.UsageError if that is impossible."""
    folder = target if is_folder else target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not is_folder and target.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        if not is_folder and target.exists() and not target.is_file():
            raise OSError(22, "it is a device, a pipe or a socket")
        probe = folder / f".{target.name}.{os.getpid()}"
        try:
            # On a full disk, only content shows that.
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        reason = "its directory is a file" if isinstance(error, FileExistsError) else error.strerror
        raise usage_error(
            f"{flag}: cannot write {target} ({reason}); "
            f"give a {'directory' if is_folder else 'file in a directory'} that can be written"
        ) from error


def _add_failed_run(xml: Any, verdict: ReportVerdict) -> None:
    """Add a failed test for a run that ended badly without one, such as by Ctrl-C: CI would show it as passed."""
    if not verdict.exit_code or xml.stats["failure"] + xml.stats["error"]:
        return
    call, teardown = passed_reports("run", "longctx")
    call.outcome, call.longrepr = "failed", next(iter(verdict.reasons), f"exit code {verdict.exit_code}")
    xml.pytest_runtest_logreport(call)
    xml.pytest_runtest_logreport(teardown)


def describe_in_junit(xml: Any, document: JsonReport) -> None:
    """Add what was measured of the run and of every case to pytest's LogXML; workers know neither."""
    from _pytest.junitxml import bin_xml_escape

    model, ruler = document.model, document.ruler
    for name in JUNIT_MODEL_FACTS:
        if (fact := getattr(model, name)) is not None:
            xml.add_global_property(f"model.{name}", str(fact))
    for name in ("effective_length_label", "wavg_inc", "wavg_dec"):
        if (fact := getattr(ruler, name)) is not None:
            xml.add_global_property(f"ruler.{name.removesuffix('_label')}", str(fact))
    for mean in means(document):
        for length, score in mean.scores.items():
            if score is not None:
                # For example helmet.recall.131072, helmet.average.131072 and ruler.retrieval.131072.
                name = f"{mean.suite}.{mean.name}.{length}".replace(" ", "_")
                xml.add_global_property(name, str(score))
    for twins in document.wordings or ():
        if twins.total is not None:
            name = f"{twins.suite}.{twins.first}_minus_{twins.second}.{twins.length}"
            xml.add_global_property(name, str(twins.total.difference))
    xml.add_global_property("run.partial", str(document.run.partial).lower())
    if (verdict := document.verdict) is not None:
        xml.add_global_property("run.verdict", verdict.word)
        xml.add_global_property("run.exit_code", str(verdict.exit_code))
        for reason in verdict.reasons:
            xml.add_global_property("run.reason", reason)
        _add_failed_run(xml, verdict)
    # A test that its worker died over has no name; the worker that finished the case reports it under its name.
    xml.node_reporters_ordered = [node for node in xml.node_reporters_ordered if node.to_xml().get("name")]
    entries = {entry.id: entry for entry in document.cases}
    for node in xml.node_reporters_ordered:
        test = node.to_xml()
        entry = entries.get(test.get("name", ""))
        if entry is None:
            continue
        values = structs.asdict(entry)
        del values["id"]
        flat = {name: value for name, value in values.items() if isinstance(value, str | int | float)}
        if entry.interval is not None:
            flat["interval"] = "{} {}".format(*entry.interval)
        flat |= {f"failures.{kind}": count for kind, count in entry.failures.items()}
        properties = ElementTree.Element("properties")
        for name, value in flat.items():
            ElementTree.SubElement(properties, "property", name=name, value=bin_xml_escape(value))
        # The schema wants the properties before everything else.
        test.insert(0, properties)
        if entry.seconds is not None:
            # Cases of a length are measured together, by the test of the first one.
            test.set("time", f"{entry.seconds:.3f}")
