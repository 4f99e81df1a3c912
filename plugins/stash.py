"""Data that the plugins of a run share: keys of pytest's stash, attributes of test reports, and parts for workers."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from longctx.fixtures.records import PropertyFinding
from longctx.plugins.config.run import Run
from longctx.plugins.runner.results import Controller
from longctx.plugins.verdicts.evaluation import Evaluation

RUN = pytest.StashKey[Run]()
PLANNED_WORKERS = pytest.StashKey[int]()
"""The number of workers that the run of a plan would have."""
CONTROLLER = pytest.StashKey[Controller]()
"""The cases and reports of the run; not set in a worker."""
INVARIANCE = pytest.StashKey[tuple[PropertyFinding, ...]]()
"""The findings of --invariance, once its test has ended."""
EVALUATION = pytest.StashKey[Evaluation]()
"""The one evaluation of the run, once its tests have ended."""

SELECTED_GATES = pytest.StashKey[frozenset[str]]()
"""The names of the gates to evaluate; not set if all of them are."""

GATE_WORD = "longctx_gate"
"""The attribute of a report with the word for a gate's verdict; `reported` if it cannot fail the run."""
PROPERTY_WORD = "longctx_property"
"""The attribute of a report with the word for a property of the engine: pass, fail or skipped."""
HELP = "longctx_help"
"""The key under which a worker returns the number of samples that it computed after its last test, and its time by
activity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedTests:
    """The tests to collect after the ids of gates on the command line have been replaced."""

    keyword: str
    """The text of -k, empty if it named gates."""
    paths: tuple[str, ...]
    """The directories, files and node ids on the command line that are about tests."""
    cases: tuple[str, ...]


COLLECTED_TESTS = pytest.StashKey[CollectedTests]()

# A worker reads the original command line, so it gets what the controller has made of that, under these names.
SENT_TO_WORKERS: dict[str, tuple[pytest.StashKey[Any], type]] = {
    "longctx_run": (RUN, Run), "longctx_tests": (COLLECTED_TESTS, CollectedTests),
}  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send a worker the run and its tests."""
    for name, (key, _) in SENT_TO_WORKERS.items():
        if key in node.config.stash:
            node.workerinput[name] = msgspec.to_builtins(node.config.stash[key])


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Receive the run and its tests in a worker, before any other plugin reads them."""
    sent = getattr(config, "workerinput", {})
    for name, (key, kind) in SENT_TO_WORKERS.items():
        if name in sent:
            config.stash[key] = msgspec.convert(sent[name], kind)
