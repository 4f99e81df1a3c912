"""Workers come and go: GPU slots that a replacement takes over, and a case that a dead worker leaves to another."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.engines import ENGINES, Engine, EngineError
from fixtures.tokenization.load import load_tokenizer
from plugins.config.run import Run
from plugins.gates.panels import ModelRole
from plugins.options import RUN

SMALL_MODEL_PARAMETERS = 100_000_000

# As often as one element may lose its worker before it counts as the cause, and once more to say so.
MOST_CRASHES = 4


class Slots:
    """Slot numbers, the lowest free one first."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, worker: str) -> int:
        """The worker's slot from now on."""
        taken = set(self._taken.values())
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        self._taken[worker] = slot
        return slot

    def free(self, worker: str) -> None:
        """Give back the slot of a worker that is gone; harmless for one that had none."""
        self._taken.pop(worker, None)


SLOTS = pytest.StashKey[Slots]()
LOADED = pytest.StashKey[dict[ModelRole, Engine | EngineError]]()
CRASHES = pytest.StashKey[Counter[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    slots = node.config.stash.setdefault(SLOTS, Slots())
    node.workerinput["longctx_slot"] = slots.take(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(SLOTS, Slots()).free(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """What the dead worker had finished is in the journal; the case goes to whoever is there next."""
    config = getattr(sched, "config", None)
    if config is None or RUN not in config.stash:
        return
    crashes = config.stash.setdefault(CRASHES, Counter())
    crashes[crashitem] += 1
    # Some ways of distributing tests cannot give one out again.
    with suppress(NotImplementedError, AttributeError):
        if crashes[crashitem] < MOST_CRASHES:
            sched.mark_test_pending(crashitem)
            report.outcome = "retried"


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """A retried case is neither passed nor failed yet."""
    return ("retried", "R", "RETRIED") if report.outcome == "retried" else None


def gpu_of(slot: int, gpus_per_worker: int, present: int) -> int:
    """The first GPU of a worker's slot. Single GPUs are shared when there are too few; raises EngineError for sets."""
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
    """How many workers this run has on this machine."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def load_engine(config: pytest.Config, who: ModelRole = "model") -> Engine:
    """The engine of one side, loaded once in each process; raises EngineError, each time the same."""
    loaded = config.stash.setdefault(LOADED, {})
    if who not in loaded:
        try:
            loaded[who] = _load(config, who)
        except EngineError as error:
            loaded[who] = error
    engine = loaded[who]
    if isinstance(engine, EngineError):
        raise engine
    return engine


def _load(config: pytest.Config, who: ModelRole) -> Engine:
    run = config.stash[RUN]
    baseline = run.baseline and run.baseline.checkpoint
    checkpoint = baseline if baseline and who == "baseline" else run.checkpoint
    settings = run.engine_settings(who)
    name = settings.pop("engine")
    if name == "hf":
        settings["device"] = _place(run, checkpoint, getattr(config, "workerinput", {}).get("longctx_slot", 0))
    return ENGINES[name](
        checkpoint,
        tokenizer=load_tokenizer(checkpoint.path, trust_remote_code=run.options.trust_remote_code),
        trust_remote_code=run.options.trust_remote_code,
        **settings,
    )


def _place(run: Run, checkpoint: Checkpoint, slot: int) -> str:
    """The worker's own GPU where there are several; on a CPU its share of the cores."""
    import torch

    workers = worker_count()
    # Threads of a small model spend their time waiting for each other.
    small = checkpoint.parameters < SMALL_MODEL_PARAMETERS
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(1 if small else max(1, cores // workers))
    device = run.options.device
    present = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    if not present or (present == 1 and run.options.gpus_per_worker == 1):
        return device
    return f"cuda:{gpu_of(slot, run.options.gpus_per_worker, present)}"
