"""The engine and GPU of each worker, and the retry of a case whose worker died."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.engines import ENGINES, Engine, EngineError
from fixtures.engines.verified import load_verified
from fixtures.tokenization.load import load_tokenizer
from plugins.config.run import Run
from plugins.gates.panels import ModelRole
from plugins.options import RUN

SMALL_MODEL_PARAMETERS = 100_000_000

# A sample is blamed after three deaths; the fourth attempt reports the error.
MOST_CRASHES = 4


class Slots:
    """The slot numbers of running workers; a replacement gets the slot of the worker that died."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}

    def assign(self, worker: str) -> int:
        """Give the worker the lowest free slot and return it."""
        used = set(self._slots.values())
        slot = next(number for number in range(len(used) + 1) if number not in used)
        self._slots[worker] = slot
        return slot

    def free(self, worker: str) -> None:
        """Free the slot of a worker that has ended, if it had one."""
        self._slots.pop(worker, None)


SLOTS = pytest.StashKey[Slots]()
LOADED = pytest.StashKey[dict[ModelRole, Engine | EngineError]]()
CRASHES = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    slots = node.config.stash.setdefault(SLOTS, Slots())
    node.workerinput["longctx_slot"] = slots.assign(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(SLOTS, Slots()).free(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """Give the case to another worker; the results of the dead one are in the journal."""
    config = getattr(sched, "config", None)
    if config is None or RUN not in config.stash:
        return
    crashes = config.stash.setdefault(CRASHES, Counter())
    crashes[crashitem] += 1
    # Some schedulers of xdist cannot hand out a test again.
    with suppress(NotImplementedError, AttributeError):
        if crashes[crashitem] < MOST_CRASHES:
            sched.mark_test_pending(crashitem)
            report.outcome = "retried"


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Show a retried case as neither passed nor failed."""
    return ("retried", "R", "RETRIED") if report.outcome == "retried" else None


def gpu_of(slot: int, gpus_per_worker: int, present: int) -> int:
    """Return the first GPU of a worker's slot.

    Workers share single GPUs if there are too few. Raises EngineError if each worker needs several.
    """
    first = slot * gpus_per_worker
    if gpus_per_worker == 1:
        return first % present
    if first + gpus_per_worker > present:
        raise EngineError(
            f"--gpus-per-worker: {gpus_per_worker} for each of at least {slot + 1} workers, but this machine shows "
            f"{present}; use -n {max(1, present // gpus_per_worker)} or fewer GPUs for each"
        )
    return first


def worker_count() -> int:
    """Return the number of this run's workers on this machine."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def load_engine(config: pytest.Config, role: ModelRole = "model") -> Engine:
    """Return the engine of a model, loaded once per process; raise EngineError, the same one at every call."""
    loaded = config.stash.setdefault(LOADED, {})
    if role not in loaded:
        try:
            loaded[role] = _load(config, role)
        except EngineError as error:
            loaded[role] = error
    engine = loaded[role]
    if isinstance(engine, EngineError):
        raise engine
    return engine


def _load(config: pytest.Config, role: ModelRole) -> Engine:
    run = config.stash[RUN]
    baseline = run.baseline and run.baseline.checkpoint
    checkpoint = baseline if baseline and role == "baseline" else run.checkpoint
    settings = run.engine_settings(role)
    if settings["engine"] == "hf":
        settings["device"] = _place(run, checkpoint, getattr(config, "workerinput", {}).get("longctx_slot", 0))
    return open_engine(run, checkpoint, settings, option="--baseline" if role == "baseline" else "--model")


def open_engine(run: Run, checkpoint: Checkpoint, settings: Mapping[str, Any], *, option: str = "--model") -> Engine:
    """Return the engine of a checkpoint with the settings of `Run.engine_settings`; raise EngineError."""
    trusted, name = run.options.trust_remote_code, settings["engine"]
    settings = {key: value for key, value in settings.items() if key != "engine"}

    def load() -> Engine:
        tokenizer = load_tokenizer(checkpoint.path, trust_remote_code=trusted)
        return ENGINES[name](checkpoint, tokenizer=tokenizer, trust_remote_code=trusted, **settings)

    if name != "hf":
        # A server has loaded its model already; the files here say nothing about it.
        return load()
    return load_verified(checkpoint, load, option=option, trust_remote_code=trusted)


def cpu_threads(parameters: int, workers: int) -> int:
    """Return a worker's threads on a CPU: its share of the cores, and no more than OMP_NUM_THREADS if that is set.

    On a machine that is busy with other programs, more threads than free cores mostly wait for each other.
    """
    if parameters < SMALL_MODEL_PARAMETERS:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # The variable may list a number for every level of nested parallelism.
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    share = max(1, cores // workers)
    return min(share, int(limit)) if limit.isdecimal() and int(limit) else share


def _place(run: Run, checkpoint: Checkpoint, slot: int) -> str:
    """Return the worker's device: its own GPU if there are several; on a CPU, also limit its threads."""
    import torch

    torch.set_num_threads(cpu_threads(checkpoint.parameters, worker_count()))
    device = run.options.device
    present = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    if not present or (present == 1 and run.options.gpus_per_worker == 1):
        return device
    return f"cuda:{gpu_of(slot, run.options.gpus_per_worker, present)}"
