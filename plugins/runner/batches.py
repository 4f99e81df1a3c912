"""Choose how many samples one worker claims at a time: enough for its engine, and none that others would wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from fixtures.engines import Engine
from plugins.gates.clusters import SampleRef
from plugins.gates.panels import Panel, PanelStatus
from plugins.journal import Journal
from plugins.runner.build_samples import Built
from plugins.runner.score_answers import give_up

# A sample over which this many workers died is not tried again: it would kill all of them.
MOST_LOSSES = 3
# The waiting time of a worker while others have claimed all that is left: the first, and the longest.
WAIT_SECONDS = 0.02
LONGEST_WAIT_SECONDS = 1.0
# Enough prompts at a time for an engine to batch.
BATCH_PROMPT_TOKENS = 32_768
# Near the end of a panel a batch claimed ahead may keep another worker waiting. Runs on other machines may have workers
# that this one does not know of, so it then assumes that there are this many times its own number.
FEW_SAMPLES_LEFT = 64
UNKNOWN_WORKERS_FACTOR = 4
# More than one, because answers take different times and those on a shared context take two rounds.
MOST_BATCHES_AHEAD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnderTest:
    """One of the compared models: the checkpoint under test or the baseline."""

    journal: Journal
    """The model's results."""

    engine: Callable[[], Engine] | None
    """Loads the engine that computes new results; None if the journal is all there will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Samples that this worker has claimed for one model."""

    panel: Panel
    model: ModelUnderTest
    engine: Engine

    samples: Mapping[str, SampleRef]
    """The claimed samples by journal key."""

    built: Future[Built]
    """The samples with their prompts, built in the background."""

    def is_wanted(self, panel: Panel, status: PanelStatus) -> bool:
        """Return True if the panel still needs all of the samples."""
        wanted = {sample for _, sample in status.next_samples}
        return self.panel is panel and wanted.issuperset(self.samples.values())

    def release(self) -> None:
        """Release the claims of all samples without a result."""
        for key in self.samples:
            self.model.journal.release(key)


def batch_size(engine: Engine, panel: Panel) -> int:
    """Return the number of the panel's samples that make a batch for this engine."""
    return engine.facts.batch_size or max(1, BATCH_PROMPT_TOKENS // panel.length)


def most_batches_ahead(wanted: int, batch_size: int, workers: int) -> int:
    """Return how many batches a worker may claim in advance.

    `wanted` is the number of samples that the panel still needs, `workers` that of the known workers.
    """
    if wanted > FEW_SAMPLES_LEFT:
        return MOST_BATCHES_AHEAD
    batches_per_worker = wanted / (workers * batch_size) / UNKNOWN_WORKERS_FACTOR
    return min(MOST_BATCHES_AHEAD, math.ceil(batches_per_worker) - 1)


def claim_batch(journal: Journal, panel: Panel, wanted: Mapping[str, SampleRef], batch_size: int) -> list[str]:
    """Claim the first free samples, and all that share a context with them, and return their journal keys.

    A context that is split between workers would be read by each of them. A sample that a worker died over is claimed
    alone: if it kills this worker too, no other sample comes under suspicion.
    """
    lost = journal.lost_claims
    if lost and (alone := journal.claim([key for key in wanted if lost[key]], 1)):
        return alone
    unsuspected = [key for key in wanted if not lost[key]]
    first = journal.claim(unsuspected, batch_size)
    clusters = {panel.cluster(wanted[key]) for key in first}
    rest = [key for key in unsuspected if panel.cluster(wanted[key]) in clusters and key not in first]
    return [*first, *journal.claim(rest, len(rest))] if rest else first


def give_up_lost(journal: Journal, samples: dict[str, SampleRef]) -> None:
    """Remove the samples over which too many workers died, and fail their cases.

    They are not even built again: the workers may have died of that.
    """
    for key in [key for key in samples if journal.lost_claims[key] >= MOST_LOSSES]:
        sample = samples.pop(key)
        reason = (
            f"{sample.case_id} sample {sample.sample_index}: {MOST_LOSSES} workers died over it, killed by the system "
            "(out of memory?); use fewer workers, shorter --lengths or --dtype bfloat16"
        )
        give_up(journal, sample.case_id, key, reason)
