"""One GPU slot per worker: a replacement takes over the slot of the worker it replaces."""

from __future__ import annotations

from typing import Any

import pytest


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


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    slots = node.config.stash.setdefault(SLOTS, Slots())
    node.workerinput["longctx_slot"] = slots.take(node.gateway.id)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(SLOTS, Slots()).free(node.gateway.id)
