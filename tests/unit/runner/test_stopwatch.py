"""The time of a worker by activity."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from longctx.fixtures.records import EngineFacts, Generation, Prompt
from longctx.plugins.runner.stopwatch import Stopwatch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows its last value."""
    values = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: values[-1])
    return values


@dataclass
class TimedEngine:
    """An engine that says how long it has read prompts."""

    prefill_seconds: float

    @property
    def facts(self) -> EngineFacts:
        raise AssertionError

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[Generation]:
        raise AssertionError


def test_time_inside_another_activity_counts_there_alone(clock: list[float]) -> None:
    watch = Stopwatch()
    with watch.measure("journal"):
        clock.append(1.0)
        with watch.measure("build"):
            clock.append(5.0)
        clock.append(7.0)
    clock.append(100.0)
    assert watch.take() == {"journal": 3.0, "build": 4.0}
    assert watch.take() == {}


def test_the_time_of_an_engine_is_split_by_its_own_count(clock: list[float]) -> None:
    watch, engine = Stopwatch(), TimedEngine(prefill_seconds=2.0)
    with watch.measure_engine(engine):
        clock.append(10.0)
        engine.prefill_seconds = 8.0
        with watch.measure("score"):
            clock.append(11.0)
    assert watch.take() == {"decode": 4.0, "prefill": 6.0, "score": 1.0}


def test_an_activity_that_fails_is_counted(clock: list[float]) -> None:
    watch, engine = Stopwatch(), TimedEngine(prefill_seconds=0.0)

    def fail() -> None:
        with watch.measure("journal"), watch.measure_engine(engine):
            clock.append(3.0)
            engine.prefill_seconds = 1.0
            raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        fail()
    assert watch.take() == {"journal": 0.0, "decode": 2.0, "prefill": 1.0}
