"""Whether the models of a run have room on this machine, told before any of them is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.checkpoint import Checkpoint, MemoryEstimate, peak_memory_bytes
from fixtures.records import Case, Options
from fixtures.room import Room, room_of

GIB = 2**30
# Estimates may be a tenth off, and what may fit is tried.
DOUBT = 0.1


def estimated(options: Options, checkpoint: Checkpoint, length: int) -> MemoryEstimate:
    """What one prompt of a length takes, with a thought where there is a budget for one."""
    return peak_memory_bytes(
        checkpoint,
        length + options.thinking_budget,
        options.dtype,
        attention=options.attention,
        prefill=options.prefill_chunk,
        device=options.device,
    )


def too_large(
    options: Options, checkpoints: Sequence[Checkpoint], cases: Sequence[Case], *, workers: int
) -> dict[str, str]:
    """For every case of a length that this machine surely has no room for: its id, and one line with the numbers.

    All checkpoints are loaded at once, in each of the workers; one of them reads at a time.
    """
    room = room_of(options.device, options.gpus_per_worker, workers) if checkpoints else None
    if room is None:
        return {}
    problems = {
        length: problem
        for length in {case.length for case in cases}
        if (problem := _problem(options, checkpoints, length, room)) is not None
    }
    return {case.id: problems[case.length] for case in cases if case.length in problems}


def _problem(options: Options, checkpoints: Sequence[Checkpoint], length: int, room: Room) -> str | None:
    needs = [estimated(options, checkpoint, length) for checkpoint in checkpoints]
    weights = sum(need.weights for need in needs)
    reading = max(needs, key=lambda need: need.cache + need.activations)
    total = weights + reading.cache + reading.activations
    if total * (1 - DOUBT) <= room.share:
        return None
    parts = ", ".join(
        f"{size / GIB:.1f} {name}"
        for name, size in (("weights", weights), ("cache", reading.cache), ("activations", reading.activations))
    )
    return (
        f"--lengths: {length} tokens take {total / GIB:.1f} GiB ({parts}) in each worker, which has "
        f"{room.share / GIB:.1f} GiB ({_place(room)}); use {_remedy(options, room, total)}"
    )


def _place(room: Room) -> str:
    place = f"{room.gpus} GPU{'s' * (room.gpus > 1)}" if room.gpus else "this machine's memory"
    return f"{place} among {room.sharing} workers" if room.sharing > 1 else place


def _remedy(options: Options, room: Room, total: int) -> str:
    others = "shorter --lengths, or a server (--base-url)"
    if room.sharing > 1 and total * (1 - DOUBT) <= room.size:
        return f"fewer workers (-n), {others}"
    if room.gpus:
        enough = -(-total * options.gpus_per_worker * 11 // (room.size * 10))
        return f"--gpus-per-worker {enough} where there are so many, {others}"
    return f"a machine with more, {others}"
