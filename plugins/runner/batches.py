"""Choose how many samples one worker claims at a time: enough for its engine, and none that others would wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from longctx.fixtures.engines import Engine, Prefetching
from longctx.fixtures.engines.base import Batching
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.journal import Journal
from longctx.plugins.runner.samples import Built, Job, give_up
from longctx.plugins.verdicts.panels import Panel, PanelStatus

# A sample over which this many workers died is not tried again: it would kill all of them.
MOST_LOSSES = 3
# As many prompts may share a text, also where the engine decodes fewer of them together.
FEW_PROMPTS = 8
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
    engine: Callable[[], Engine] | None
    """Loads the engine that computes new results; None if the journal is all there will be."""
    is_ready: Callable[[], bool] = lambda: True
    """Returns False if loading the engine would release that of the other model."""
    rest: Callable[[], None] = lambda: None
    """Lets other workers replace the model that is loaded for all of them."""


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
        for key in self.samples:
            self.model.journal.release(key)

    def prefetch(self) -> None:
        """Send the prompts to an engine that computes elsewhere, so that it never waits for this worker."""
        if isinstance(self.engine, Prefetching):
            known = self.model.journal.entries_by_prompt
            jobs = [job for job in self.built.result() if isinstance(job, Job) and job.prompt not in known]
            self.engine.prefetch([job.sample.prompt for job in jobs])

    def is_prefetched(self, job: Job) -> bool:
        """Return True if the engine has answered the job ahead, or is answering it."""
        return isinstance(self.engine, Prefetching) and self.engine.is_prefetched(job.sample.prompt)

    def keep_prefetched(self) -> list[Job]:
        """Return the jobs that the engine has answered ahead or is answering, and release all other claims."""
        jobs = [job for job in self.built.result() if isinstance(job, Job) and self.is_prefetched(job)]
        for key in self.samples.keys() - {job.key for job in jobs}:
            self.model.journal.release(key)
        return jobs


def batch_size(engine: Engine, panel: Panel) -> int:
    """Return the number of the panel's samples that a worker claims at a time for this engine."""
    most = engine.facts.batch_size or max(1, BATCH_PROMPT_TOKENS // panel.length)
    # Long prompts are decoded in smaller batches, and each is work enough to look at the evidence first.
    return max(engine.rows(panel.length), min(most, FEW_PROMPTS)) if isinstance(engine, Batching) else most


def claim_samples(
    journal: Journal,
    engine: Engine,
    panel: Panel,
    wanted: Mapping[str, SampleRef],
    *,
    workers: int,
    previous: Iterable[SampleRef] = (),
) -> dict[str, SampleRef]:
    """Claim the first free samples, and all that share a context with them, and return those to be computed.

    A context that is split between workers would be read by each of them. Samples on one haystack come together, first
    those on a haystack of the `previous` batch, because the engine still has the text that they share.

    A sample that a worker died over is claimed alone: if it kills this worker too, no other sample comes under
    suspicion. One over which too many workers died fails its case; it is not even built again, because the workers may
    have died of that.
    """
    lost = journal.lost_claims
    claimed = journal.claim([key for key in wanted if lost[key]], 1) if lost else []
    if not claimed:
        # Few samples are wanted near a verdict, and all workers share them.
        share = -(-len(wanted) // workers)
        unsuspected = [key for key in _by_haystack(panel, wanted, previous) if not lost[key]]
        claimed = journal.claim(unsuspected, min(batch_size(engine, panel), share))
        clusters = {panel.cluster(wanted[key]) for key in claimed}
        rest = [key for key in unsuspected if panel.cluster(wanted[key]) in clusters and key not in claimed]
        if rest:
            claimed += journal.claim(rest, len(rest))
    samples = {key: wanted[key] for key in claimed}
    for key in claimed:
        if journal.lost_claims[key] < MOST_LOSSES:
            continue
        sample = samples.pop(key)
        reason = (
            f"{sample.case_id} sample {sample.sample_index}: {MOST_LOSSES} workers died over it, killed by the system "
            "(out of memory?); use fewer workers, shorter --lengths or --dtype bfloat16"
        )
        give_up(journal, sample.case_id, key, reason)
    return samples


def _by_haystack(panel: Panel, wanted: Mapping[str, SampleRef], previous: Iterable[SampleRef]) -> list[str]:
    """Return the keys in their order, but with those of one haystack together."""
    places = {panel.haystack(ref): -1 for ref in previous}
    for place, ref in enumerate(wanted.values()):
        places.setdefault(panel.haystack(ref), place)
    return sorted(wanted, key=lambda key: places[panel.haystack(wanted[key])])
