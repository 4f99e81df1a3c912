"""Select and deselect gates by the ids that are printed, and list them under --collect-only."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fixtures.installation import CASES_DIRECTORY
from plugins.gates.selection import (
    NamedGate,
    SelectionError,
    choose,
    named_gates,
    read_keyword,
    required_cases,
    restrict,
)
from plugins.options import RUN, is_thresholds_file, parameter_id, usage_error

SELECTED_GATES = pytest.StashKey[frozenset[str]]()
"""The names of the gates to evaluate; not set if all of them are."""

LISTED_GATES = pytest.StashKey[int]()
"""The number of gates that --collect-only lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The tests to collect after the ids of gates have been replaced; workers get it from the controller."""

    keyword: str
    """The text of -k, empty if it named gates."""

    paths: tuple[str, ...]
    """The directories, files and node ids on the command line that are about tests."""

    cases: tuple[str, ...]
    """The ids of the cases to collect besides."""


ARGUMENTS = pytest.StashKey[Arguments]()


def pytest_configure(config: pytest.Config) -> None:
    if RUN not in config.stash:
        return
    if not hasattr(config, "workerinput"):
        try:
            config.stash[ARGUMENTS] = _select(config)
        except SelectionError as error:
            raise usage_error(error) from error
    elif "longctx_arguments" in config.workerinput:
        config.stash[ARGUMENTS] = msgspec.convert(config.workerinput["longctx_arguments"], Arguments)
    arguments = config.stash[ARGUMENTS]
    config.option.keyword = arguments.keyword
    config.args[:] = [*arguments.paths, *(_node_id(config, case) for case in arguments.cases)]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the arguments to a worker, which reads the original command line."""
    if ARGUMENTS in node.config.stash:
        node.workerinput["longctx_arguments"] = msgspec.to_builtins(node.config.stash[ARGUMENTS])


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Add the gates to the list of --collect-only. In a run they are logged when all cases have been measured."""
    yield
    if config.option.collectonly and RUN in config.stash:
        gates = list(_gate_items(session))
        items.extend(gates)
        config.stash[LISTED_GATES] = len(gates)


class GateFile(pytest.File):
    """The thresholds file as --collect-only lists it."""

    def collect(self) -> Iterator[GateItem]:
        """Yield one item for every gate of the run."""
        for name in _named(self.config):
            yield GateItem.from_parent(self, name=f"gate[{name}]")


class GateItem(pytest.Item):
    """A gate as --collect-only lists it."""

    def runtest(self) -> None:
        raise NotImplementedError("gates are evaluated when all cases have been measured")


def _gate_items(session: pytest.Session) -> Iterator[GateItem]:
    path = Path(session.config.stash[RUN].options.thresholds)
    # The id of a gate begins with the file's name, wherever the file is. pytest gives these characters a meaning there.
    file: GateFile = GateFile.from_parent(session, path=path, nodeid=re.sub(r"[\[\]:]", "_", path.name))
    return file.collect()


def gate_count(config: pytest.Config) -> int:
    """Return the number of gates of the run."""
    return len(_named(config))


def _named(config: pytest.Config) -> Mapping[str, NamedGate]:
    run = config.stash[RUN]
    return named_gates(run.thresholds, run.scope(run.available))


def _select(config: pytest.Config) -> Arguments:
    """Drop the gates that are not selected, and return the arguments that select the tests the others need."""
    named = _named(config)
    keyword = read_keyword(config.option.keyword, named)
    ids = [argument for argument in config.args if is_thresholds_file(config, argument)]
    selected, cases = _read_ids(config, named, ids)
    paths = [argument for argument in config.args if argument not in ids]
    if keyword is not None and not keyword.is_negated:
        selected += keyword.gates
        # The directory of all cases is collected by default; -k narrows it.
        paths = [path for path in paths if "::" in path]
    deselected = keyword.gates if keyword is not None and keyword.is_negated else ()
    chosen = [
        gate for gate in selected or named.values() if gate not in deselected and not _is_deselected(config, gate)
    ]
    if len(chosen) < len(named):
        run = config.stash[RUN]
        config.stash[RUN] = replace(run, thresholds=restrict(run.thresholds, chosen))
        config.stash[SELECTED_GATES] = frozenset(gate.name for gate in chosen)
    return Arguments(
        keyword=config.option.keyword if keyword is None else "",
        paths=tuple(paths),
        cases=(*required_cases(selected), *cases),
    )


def _read_ids(
    config: pytest.Config, named: Mapping[str, NamedGate], ids: Sequence[str]
) -> tuple[list[NamedGate], list[str]]:
    """Return the gates and the cases that ids such as "thresholds.toml::gate[mean at 4k]" name."""
    gates: list[NamedGate] = []
    cases: list[str] = []
    for name in (printed.partition("::")[2] for printed in ids):
        if not name:
            gates += named.values()
        elif match := re.fullmatch(r"case\[(.*)\]", name):
            cases += [case.id for case in config.stash[RUN].available if parameter_id(case) == match[1]]
        else:
            gates += choose(named, [name])
    return gates, cases


def _is_deselected(config: pytest.Config, gate: NamedGate) -> bool:
    """Return True if --deselect names the gate; like pytest, it takes the beginning of an id too."""
    place = Path(config.stash[RUN].options.thresholds).name
    return any(f"{place}::gate[{gate.name}]".startswith(prefix) for prefix in config.option.deselect or ())


def _node_id(config: pytest.Config, case: str) -> str:
    """Return the argument that selects a case from any working directory."""
    return f"{config.rootpath / CASES_DIRECTORY / case.partition('[')[0]}.py::{case}"
