"""What of a queue one worker takes at a time: enough for its engine, and never what others would wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from fixtures.engines import Engine
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel
from plugins.journal import Journal
from plugins.runner.build_samples import Built

# Enough prompts at a time for an engine to batch.
BATCH_PROMPT_TOKENS = 32_768
# With fewer elements left, one that is claimed ahead may keep another worker waiting, of whom this one may not know:
# it then takes no more than its part of what is left, as if there were so many.
LEFT_TO_CLAIM_AHEAD = 64
WORKERS_UNKNOWN = 4
# Behind the one that is read: answers differ in how long they take, and those on a shared text take two rounds.
BATCHES_BEGUN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnderTest:
    """One model's results: what the journal holds, and the engine that adds to it; without one that is all."""

    journal: Journal
    engine: Callable[[], Engine] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Elements that this worker has claimed for one side, by their names in the journal, and the samples to be."""

    panel: Panel
    side: ModelUnderTest
    engine: Engine
    taken: Mapping[str, SampleRef]
    built: Future[Built]


def at_once(engine: Engine, panel: Panel) -> int:
    """How many samples of a panel make a batch for this engine."""
    return engine.facts.batch_size or max(1, BATCH_PROMPT_TOKENS // panel.length)


def most_ahead(wanted: int, at_once: int, workers: int) -> int:
    """How many batches may be claimed beside the one that is answered."""
    if wanted > LEFT_TO_CLAIM_AHEAD:
        return BATCHES_BEGUN
    return min(BATCHES_BEGUN, math.ceil(wanted / (workers * at_once) / WORKERS_UNKNOWN) - 1)


def take(journal: Journal, panel: Panel, wanted: Mapping[str, SampleRef], at_once: int) -> list[str]:
    """The first that are free, and with each all that share its context: apart, every worker would read that.

    What a worker died over is taken alone, or it would cast suspicion on others.
    """
    lost = journal.lost
    if lost and (alone := journal.take([key for key in wanted if lost[key]], 1)):
        return alone
    unsuspected = [key for key in wanted if not lost[key]]
    taken = journal.take(unsuspected, at_once)
    clusters = {panel.cluster(wanted[key]) for key in taken}
    company = [key for key in unsuspected if panel.cluster(wanted[key]) in clusters and key not in taken]
    return [*taken, *journal.take(company, len(company))] if company else taken
