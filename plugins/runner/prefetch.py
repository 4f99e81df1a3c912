"""Prompts sent ahead to an engine that computes elsewhere, so that it never waits for this worker."""

from __future__ import annotations

from fixtures.engines import Engine, Prefetching
from plugins.runner.batches import Batch
from plugins.runner.build_samples import Built, Job


def prefetch_batch(batch: Batch) -> None:
    """Send the batch to an engine that can prefetch, so that it never waits for this worker."""
    if isinstance(batch.engine, Prefetching):
        known = batch.model.journal.entries_by_prompt
        jobs = [job for job in batch.built.result() if isinstance(job, Job) and job.prompt not in known]
        batch.engine.prefetch([job.sample.prompt for job in jobs])


def prefetched_jobs(batch: Batch, built: Built) -> list[Job]:
    """Return the jobs that a prefetching engine has answered or is answering, and release all other claims."""
    jobs = [job for job in built if isinstance(job, Job) and is_prefetched(batch.engine, job)]
    for key in batch.samples.keys() - {job.key for job in jobs}:
        batch.model.journal.release(key)
    return jobs


def is_prefetched(engine: Engine, job: Job) -> bool:
    """Return True if the engine has answered the job ahead, or is answering it."""
    return isinstance(engine, Prefetching) and engine.is_prefetched(job.sample.prompt)
