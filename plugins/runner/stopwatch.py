"""The seconds that a worker spends on each activity."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from longctx.fixtures.engines.base import Engine, Timed


class Stopwatch:
    """Adds up seconds by activity. Time in an activity inside another one counts for the inner one alone."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Count the time of the `with` block for an activity."""
        self._count()
        self._running.append(activity)
        try:
            yield
        finally:
            self._count()
            self._running.pop()

    @contextmanager
    def measure_engine(self, engine: Engine) -> Iterator[None]:
        """Count the time of the `with` block for `prefill` and `decode`, or for `server` if the engine has no times."""
        if not isinstance(engine, Timed):
            with self.measure("server"):
                yield
            return
        before = engine.prefill_seconds
        try:
            with self.measure("decode"):
                yield
        finally:
            read = engine.prefill_seconds - before
            self._seconds["prefill"] += read
            self._seconds["decode"] -= read

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call by activity, none of which is running."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds

    def _count(self) -> None:
        now = time.perf_counter()
        if self._running:
            self._seconds[self._running[-1]] += now - self._since
        self._since = now
