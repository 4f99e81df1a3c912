"""A model that has no room is refused with the numbers, before it is loaded; what may fit is tried."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benches import options_of
from runs import calibrated, sparse_weights, start

from fixtures.cases import plan
from fixtures.checkpoint import Checkpoint, inspect
from fixtures.corpora import Corpora
from fixtures.room import gpu_bytes, machine_bytes, room_of
from fixtures.tasks import TASKS
from plugins.fitting import estimated, too_large

MIB, GIB = 2**20, 2**30
Cards = Callable[..., None]


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    """GPUs of so many MiB each, as far as NVIDIA's own program tells."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = tmp_path / "driver"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def show(*sizes: int | str, code: int = 0) -> None:
        program = folder / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + "".join(f"echo '{size}'\n" for size in sizes) + f"exit {code}\n")
        program.chmod(0o755)

    return show


@pytest.fixture
def model() -> Checkpoint:
    return inspect(str(calibrated("full")))


def problems(model: Checkpoint, *others: Checkpoint, workers: int = 1, **settings: object) -> dict[int, str]:
    """By length."""
    options = options_of(model.path, **{"lengths": (4096, 131072), "device": "auto", **settings})
    cases = plan(options, TASKS, Corpora())
    found = too_large(options, (model, *others), cases, workers=workers)
    assert all({case.id for case in cases if case.length == at} <= found.keys() or not any(
        case.id in found for case in cases if case.length == at
    ) for at in options.lengths)  # fmt: skip
    return {case.length: found[case.id] for case in cases if case.id in found}


def test_gpus_are_told_by_the_driver(cards: Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_bytes() == ()
    cards(81559, 40960)
    assert gpu_bytes() == (81559 * MIB, 40960 * MIB)
    assert room_of("auto", 2, 1) == replace(room_of("cuda:1", 2, 4), sharing=1)  # type: ignore[type-var]  # not None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_bytes() == ()


@pytest.mark.parametrize("said", [("[N/A]",), ("No devices were found",), ()])
def test_a_driver_that_says_nothing_of_use_shows_no_gpu(said: tuple[str, ...], cards: Cards) -> None:
    cards(*said)
    assert gpu_bytes() == ()
    cards(81559, code=9)
    assert gpu_bytes() == ()
    assert room_of("cuda", 1, 1) is None


def test_what_every_worker_has_is_what_is_there_by_those_who_share_it(cards: Cards) -> None:
    memory = machine_bytes()
    assert memory is not None
    rooms = [room_of("cpu", 1, workers) for workers in (1, 4)]
    assert [room and room.share for room in rooms] == [memory, memory // 4]
    cards(1000, 1000)
    shares = {(gpus, workers): room_of("cuda", gpus, workers) for gpus in (1, 2) for workers in (1, 2, 3)}
    assert {each: room and room.share for each, room in shares.items()} == {
        (1, 1): 1000 * MIB, (1, 2): 1000 * MIB, (1, 3): 500 * MIB,
        (2, 1): 2000 * MIB, (2, 2): 2000 * MIB, (2, 3): 2000 * MIB,
    }  # fmt: skip


def test_a_length_whose_cache_has_no_room_is_refused_with_the_numbers(model: Checkpoint, cards: Cards) -> None:
    options = options_of(model.path, device="auto")
    short, long = (estimated(options, model, length) for length in (4096, 131072))
    assert short.total < long.cache
    cards(long.cache // MIB)
    assert set(problems(model)) == {131072}
    line = problems(model)[131072]
    expected = r"--lengths: 131072 tokens take [\d.]+ GiB \([\d.]+ weights, [\d.]+ cache, [\d.]+ activations\) in each "
    told = re.fullmatch(
        expected
        + r"worker, which has [\d.]+ GiB \(1 GPU\); use --gpus-per-worker (\d) where there are so many, shorter "
        r"--lengths, or a server \(--base-url\)",
        line,
    )
    assert told is not None
    assert problems(model, gpus_per_worker=int(told[1])) == {}
    assert problems(model, gpus_per_worker=int(told[1]) - 1) != {}
    cards(int(1.05 * long.total / MIB))
    assert problems(model) == {}
    # An estimate may be a tenth too high.
    cards(int(0.95 * long.total / MIB))
    assert problems(model) == {}
    assert set(problems(model, workers=2)) == {131072}
    assert "1 GPU among 2 workers" in problems(model, workers=2)[131072]
    assert "use fewer workers (-n)" in problems(model, workers=2)[131072]


def test_a_thought_and_a_baseline_take_room_too(model: Checkpoint, cards: Cards) -> None:
    long = estimated(options_of(model.path, device="auto"), model, 131072)
    cards(int(1.05 * long.total / MIB))
    assert set(problems(model, thinking_budget=131072)) == {131072}
    heavy = replace(model, weight_bytes=2 * long.total)
    assert set(problems(model, heavy)) == {4096, 131072}
    assert problems(model, replace(model)) == {}


def test_a_model_that_the_machine_cannot_hold_is_refused(model: Checkpoint) -> None:
    memory = machine_bytes()
    assert memory is not None
    huge = replace(model, weight_bytes=2 * memory)
    found = problems(huge, device="cpu")
    assert set(found) == {4096, 131072}
    assert "this machine's memory); use a machine with more" in found[4096]
    half = replace(model, weight_bytes=memory // 2)
    assert problems(half, lengths=(4096,), device="cpu") == {}
    assert "this machine's memory among 4 workers); use fewer workers" in problems(half, device="cpu", workers=4)[4096]


@pytest.fixture
def three_gibibytes(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(calibrated("512"), tmp_path / "step_9"))
    sparse_weights(folder / "model.safetensors", 3)
    return folder


def test_a_run_that_cannot_fit_is_one_line_and_a_plan_says_it_beforehand(
    three_gibibytes: Path, cards: Cards, tmp_path: Path
) -> None:
    cards(2048)
    what = ("--model", str(three_gibibytes), "--suite", "ruler", "--lengths", "4k")
    ended = start(tmp_path, *what, gpus="0")
    assert (ended.code, ended.output) == (4, "")
    (line,) = ended.errors.split("\n\n")[0].splitlines()
    assert re.fullmatch(
        r"ERROR: --lengths: 4096 tokens take 3\.\d GiB \(3\.0 weights, .*2\.0 GiB \(1 GPU\); use .*", line
    )
    (planned := tmp_path / "planned").mkdir()
    ended = start(planned, *what, "--plan", gpus="0")
    assert ended.code == 0
    assert "; --gpus-per-worker 2 with 2 GiB each)" in ended.output
    (refused,) = (line for line in ended.output.splitlines() if line.startswith("cannot run: "))
    assert refused.removeprefix("cannot run: ") == line.removeprefix("ERROR: ")
