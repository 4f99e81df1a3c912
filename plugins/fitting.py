"""Whether the models of a run have room on this machine, told before any of them is loaded."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fixtures.cache_size import decoder_config
from fixtures.checkpoint import Checkpoint, MemoryEstimate, peak_memory_bytes
from fixtures.memory import reads_in_parts
from fixtures.records import Case, Options
from fixtures.room import Room, room_of

GIB = 2**30
# Estimates may be a tenth off, and what may fit is tried.
DOUBT = 0.1
SHORT_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
# Tokens: what the engine goes down to when memory is short.
LEAST_PART = 256


def estimated(options: Options, checkpoint: Checkpoint, length: int, *, prefill: str | None = None) -> MemoryEstimate:
    """What one prompt of a length takes, with a thought where there is a budget for one; read as in --prefill-chunk."""
    return peak_memory_bytes(
        checkpoint,
        length + options.thinking_budget,
        options.dtype,
        attention=options.attention,
        prefill=prefill or options.prefill_chunk,
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
    needs = [_least(options, checkpoint, length, room) for checkpoint in checkpoints]
    once = sum(need.weights for need, each in zip(needs, checkpoints, strict=True) if _is_shared(options, each, room))
    own = sum(need.weights for need in needs) - once
    reading = max(needs, key=lambda need: need.cache + need.activations)
    beside = reading.cache + reading.activations
    weights = once // room.sharing + own
    total = weights + beside
    if total * (1 - DOUBT) <= room.share:
        return None
    parts = ", ".join(
        f"{size / GIB:.1f} {name}"
        for name, size in (("weights", weights), ("cache", reading.cache), ("activations", reading.activations))
    )
    return (
        f"--lengths: {length} tokens take {total / GIB:.1f} GiB ({parts}) in each worker, which has "
        f"{room.share / GIB:.1f} GiB ({_place(room)}); use {_remedy(options, room, once + own + beside)}"
    )


def _least(options: Options, checkpoint: Checkpoint, length: int, room: Room) -> MemoryEstimate:
    """What a length surely takes: what a GPU has no room for is read again in smaller parts, where it can be."""
    asked = estimated(options, checkpoint, length)
    can_retry = room.gpus or options.device.startswith("mps") or sys.platform == "darwin"
    if not can_retry or not reads_in_parts(decoder_config(checkpoint.config)):
        return asked
    return min(asked, estimated(options, checkpoint, length, prefill=str(LEAST_PART)), key=lambda need: need.total)


def _is_shared(options: Options, checkpoint: Checkpoint, room: Room) -> bool:
    """Whether weights are pages of their file, which all processes have together: on a CPU, in the stored format."""
    asked = SHORT_NAMES.get(options.dtype, options.dtype)
    is_converted = checkpoint.dtype == "float16" if asked == "auto" else asked != checkpoint.dtype
    return not room.gpus and options.device in ("auto", "cpu") and not is_converted


def _place(room: Room) -> str:
    place = f"{room.gpus} GPU{'s' * (room.gpus > 1)}" if room.gpus else "this machine's memory"
    return f"{place} among {room.sharing} workers" if room.sharing > 1 else place


def _remedy(options: Options, room: Room, alone: int) -> str:
    others = "shorter --lengths, or a server (--base-url)"
    if room.sharing > 1 and alone * (1 - DOUBT) <= room.size:
        return f"fewer workers (-n), {others}"
    if room.gpus:
        enough = -(-alone * options.gpus_per_worker * 11 // (room.size * 10))
        return f"--gpus-per-worker {enough} where there are so many, {others}"
    return f"a machine with more, {others}"
