"""The `longctx` options, the run that they describe, and the test cases of that run."""

import os
import re
import sys
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest

from longctx.fixtures import interrupts
from longctx.fixtures.cli import ERROR_CHARACTERS, print_line
from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.fixtures.records import Case
from longctx.fixtures.shown_text import known_names, one_line, shown_columns, visible_line, wrapped
from longctx.fixtures.tasks import SUITES, TASKS, split_names
from longctx.plugins.config.invocation import SHORT_ID, ConfigError, Invocation
from longctx.plugins.config.options import OUTPUT_FILES, REMOVED, SUITE_OPTIONS, declare, removed_option, unknown_option
from longctx.plugins.config.resolve import CONFIG_ERRORS, check_values, resolve
from longctx.plugins.config.run import Run
from longctx.plugins.stash import PLANNED_WORKERS, RUN
from longctx.plugins.thresholds.records import doubtful_units

# The words of -m that are no markers.
OPERATORS = ("and", "or", "not", "True", "False", "None")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options of the suite, those of all its plugins, and those of earlier versions."""
    # pytest would print its own usage, which names neither this suite nor the option that is meant.
    parser.optparser.error = _refuse  # type: ignore[method-assign]  # pytest has no hook
    group = parser.getgroup("longctx", "long-context evaluation")
    declare(group.addoption, SUITE_OPTIONS)
    for flag in REMOVED:
        group.addoption(flag, dest=flag, nargs="?", const="", help=SUPPRESS)


def _refuse(message: str) -> NoReturn:
    raise usage_error(unknown_option(message))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read the run from the command line; a worker receives it from the controller."""
    for flag in REMOVED:
        if getattr(config.option, flag, None) is not None:
            raise usage_error(removed_option(flag))
    sent = getattr(config, "workerinput", None)
    is_run = _collects_cases(config) if sent is None else "longctx_run" in sent
    if is_run:
        interrupts.end_as_ctrl_c()
    if sent is not None or not is_run:
        return
    option = config.option
    directory = Path(config.invocation_params.dir)
    suites = {TASKS[name].suite if name in TASKS else name for name in split_names(option.tasks)}
    if len(suites) == 1 and suites.issubset(SUITES) and option.suite is None and option.tasks_file is None:
        (option.suite,) = suites
    if option.output:
        for name, file in OUTPUT_FILES.items():
            if not getattr(option, name):
                setattr(option, name, str(Path(option.output, file)))
    selection = f"{option.keyword} {' '.join(word for word in config.args if '::' in word)}"
    try:
        check_values(option)
        local_workers = _local_worker_count(config)
        config.stash[RUN] = resolve(
            Invocation(
                arguments=option,
                root=config.rootpath,
                directory=directory,
                local_workers=local_workers,
                is_narrowed=bool(selection.strip() or option.markexpr or option.tasks),
                selection=selection,
                add_cleanup=config.add_cleanup,
                announce=partial(announce, config),
            )
        )
        _check_selection(config, config.stash[RUN])
    except CONFIG_ERRORS as error:
        raise usage_error(error) from error
    config.stash[PLANNED_WORKERS] = local_workers or 1
    if config.option.plan:
        # A plan needs no workers. pytest-xdist reads these options after this hook.
        config.option.dist, config.option.tx, config.option.numprocesses = "no", [], None
    elif getattr(config.option, "maxschedchunk", 0) is None:
        # Cases are few and long, so workers get them one at a time.
        config.option.maxschedchunk = 1


def announce(config: pytest.Config, line: str, stream: Literal["stdout", "stderr"] = "stdout") -> None:
    """Print a line, also while pytest captures the output of a test, unless the run is quiet."""
    if config.get_verbosity() < 0:
        return
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print_line(line, getattr(sys, stream))


def write_lines(config: pytest.Config, lines: Iterable[str], **markup: bool) -> None:
    """Write lines to the terminal, broken at its width; none with pytest's `-p no:terminal`."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for line in lines if reporter is not None else ():
        for part in wrapped(visible_line(line), shown_columns(reporter.isatty)):
            reporter.write_line(part, **markup)


def _check_selection(config: pytest.Config, run: Run) -> None:
    """Raise ConfigError for an id of a case that the run does not have, and for an unknown marker in -m."""
    ids = [case.id for case in run.cases]
    for word in config.args:
        file, _, name = word.partition("::")
        is_case = CASES_DIRECTORY in Path(file).parts and SHORT_ID.fullmatch(name)
        if is_case and name not in ids:
            raise ConfigError(f"{name}: no case of this run; {known_names(name, ids)}; --collect-only -q lists the ids")
    expression = config.option.markexpr or ""
    markers = {re.split(r"\W", line)[0] for line in config.getini("markers")}
    for case in run.cases:
        markers |= {case.suite, case.category}
    for word in re.findall(r"\w+", expression):
        if word not in markers and word not in OPERATORS and "=" not in expression:
            raise ConfigError(f"-m: unknown {word!r}; {known_names(word, sorted(markers))}")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Warn of what looks wrong: a checkpoint, a closed thought, a yardstick, thresholds that everything exceeds."""
    if RUN not in config.stash:
        return None
    run = config.stash[RUN]
    checked = {run.checkpoint.path: run.checkpoint.warning, "--yardstick": run.yardstick_warning}
    checked["--chat"] = run.thought_warning
    warnings = [f"{name}: {warning}" for name, warning in checked.items() if warning]
    warnings += run.checkpoint_warnings
    warnings += [f"--thresholds: {line}" for line in (*run.thresholds.notes, *doubtful_units(run.thresholds))]
    test_timeout = config.getoption("timeout", None) or os.environ.get("PYTEST_TIMEOUT")
    if test_timeout and config.pluginmanager.hasplugin("timeout"):
        warnings.append("timeout: pytest-timeout counts all cases of a length as one test; limit a run with --budget")
    return "\n".join(f"warning: {warning}" for warning in warnings) or None


def pytest_sessionstart(session: pytest.Session) -> None:
    """Declare the suites and categories of tasks files as markers, because pytest refuses unknown ones."""
    config = session.config
    for case in config.stash[RUN].cases if RUN in config.stash else ():
        if case.suite not in SUITES:
            for kind, name in (("suite", case.suite), ("category", case.category)):
                line = f"{name}: the tasks of --tasks-file that belong to this {kind}"
                config.addinivalue_line("markers", line)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the test files of families without cases in this run, which pytest would report as skipped."""
    if RUN not in config.stash or collection_path.parent != config.rootpath / CASES_DIRECTORY:
        return None
    tests = {case.id.partition("[")[0] for case in config.stash[RUN].cases}
    return True if collection_path.stem not in tests else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames or RUN not in metafunc.config.stash:
        return
    run, test = metafunc.config.stash[RUN], metafunc.function.__name__
    parameters = []
    for case in run.cases:
        name, _, parameter = case.id.rstrip("]").partition("[")
        if name != test:
            continue
        words = [case.category] if case.suite in SUITES else dict.fromkeys((case.category, case.suite))
        marks = [getattr(pytest.mark, word) for word in words]
        if reason := run.unavailable.get(case.id):
            marks.append(pytest.mark.skip(reason=reason))
        parameters.append(pytest.param(case, id=parameter, marks=marks))
    metafunc.parametrize("case", parameters)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select what --tasks names, and sort by length: the workers share a length, so the longest need not start first.

    Gates see the other cases as deselected, as with -k.
    """

    def is_selected(item: pytest.Item) -> bool:
        case = case_of(item)
        return case is None or config.stash[RUN].is_named(case)

    def length(item: pytest.Item) -> int:
        case = case_of(item)
        return case.length if case is not None else 0

    if RUN in config.stash and config.stash[RUN].task_names:
        config.hook.pytest_deselected(items=[item for item in items if not is_selected(item)])
        items[:] = filter(is_selected, items)
    items.sort(key=length)


def usage_error(problem: object) -> pytest.UsageError:
    """Return the error that pytest prints as one line before it exits with 4."""
    return pytest.UsageError(one_line(str(problem), ERROR_CHARACTERS))


def is_thresholds_file(config: pytest.Config, argument: str) -> bool:
    """Return True for an argument that names a gate by its id, such as "thresholds.toml::gate[mean at 4k]"."""
    return Path(argument.partition("::")[0]).name == Path(config.option.thresholds or "thresholds.toml").name


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that a test measures; None for any other test."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Case) else None


def cases_of(run: Run, node_ids: Sequence[str]) -> tuple[Case, ...]:
    """Return the available cases of a run that are among the collected tests.

    Raises pytest.UsageError for a test of a case whose id another plugin has changed.
    """
    names = {node_id.rpartition("::")[2] for node_id in node_ids}
    ids = {case.id for case in run.cases}
    for name in sorted(names - ids):
        if any(name.startswith(f"{case_id[:-1]}-") for case_id in ids):
            raise usage_error(
                f"{name}: another plugin has changed the id of this case; leave out its option (--count of "
                "pytest-repeat), or the plugin with -p no:NAME: more samples come from --samples and --seed"
            )
    return tuple(case for case in run.available if case.id in names)


def _local_worker_count(config: pytest.Config) -> int | None:
    """Return how many workers run on this machine; None if some of them run on other machines."""
    if getattr(config.option, "dist", "no") == "no":
        return 1
    # pytest-xdist has turned -n and --maxprocesses into --tx values such as "3*popen" by now.
    specs = [spec.rpartition("*")[::2] for spec in config.option.tx]
    is_local = all(kind.startswith("popen") for _, kind in specs)
    return sum(int(number or 1) for number, _ in specs) if is_local else None


def _collects_cases(config: pytest.Config) -> bool:
    """Return True if pytest was given the suite's test files, and not only an option such as --help."""
    option = config.option
    if option.help or option.version or option.markers or option.showfixtures or option.show_fixtures_per_test:
        return False
    suite = (config.rootpath / CASES_DIRECTORY).resolve()
    for argument in config.args:
        path = Path(config.invocation_params.dir, argument.partition("::")[0]).resolve()
        if path.is_relative_to(suite) or suite.is_relative_to(path) or is_thresholds_file(config, argument):
            return True
    return False
