"""A model that cannot fit into memory is refused with the numbers before it is loaded; one that may fit is tried."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures import memory as fit
from longctx.fixtures.cases import plan
from longctx.fixtures.checkpoints.checkpoint import Checkpoint, read_checkpoint
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.memory import (
    MemoryEstimate,
    _memory_budget_of,
    _MemoryBudget,
    cases_over_memory,
    gpu_memory_bytes,
    machine_memory_bytes,
)
from longctx.fixtures.records import Options
from longctx.fixtures.tasks import TASKS
from longctx.plugins.collection import _local_worker_count
from tests.helpers.runs import calibration_checkpoint, run_pytest, sparse_weights
from tests.helpers.workers import options_of

MIB, GIB = 2**20, 2**30
Cards = Callable[..., None]


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    """Return a function that makes NVIDIA's program report GPUs of the given sizes in MiB."""
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
    return read_checkpoint(str(calibration_checkpoint("full")))


def estimated_memory(options: Options, checkpoint: Checkpoint, length: int) -> MemoryEstimate:
    found = fit.estimated_memory(options, checkpoint, length)
    assert found is not None
    return found


def problems(model: Checkpoint, *others: Checkpoint, workers: int = 1, **settings: object) -> dict[int, str]:
    """Return the problem of each length that does not fit, and check that it holds for all of its cases."""
    options = options_of(model.path, **{"lengths": (4096, 131072), "device": "cuda", **settings})
    cases = plan(options, TASKS, Corpora())
    refused = cases_over_memory(options, (model, *others), cases, workers=workers)
    for length in options.lengths:
        ids = {case.id for case in cases if case.length == length}
        assert ids <= refused.keys() or not ids & refused.keys()
    return {case.length: refused[case.id] for case in cases if case.id in refused}


@pytest.mark.parametrize(
    ("sizes", "asked", "budget"),
    [
        ((81559, 40960), ("cuda", 2, 1), (122519, 2, 1)),
        ((81559, 40960), ("cuda:1", 2, 4), (122519, 2, 1)),
        # A small GPU beside a large one is used by a second worker only.
        ((2048, 24564), ("cuda", 1, 1), (24564, 1, 1)),
        ((2048, 24564), ("cuda", 1, 2), (2048, 1, 1)),
        ((2048, 24564), ("cuda:0", 1, 2), (24564, 1, 2)),
        ((40960, 81559), ("cuda", 1, 3), (81559, 1, 2)),
        ((1000, 1000), ("cuda", 1, 2), (1000, 1, 1)),
        ((1000, 1000), ("cuda", 2, 3), (2000, 2, 1)),
    ],
)
def test_workers_share_the_gpus_that_the_driver_shows(
    sizes: tuple[int, ...], asked: tuple[str, int, int], budget: tuple[int, int, int], cards: Cards
) -> None:
    cards(*sizes)
    total, gpus, workers = budget
    assert _memory_budget_of(*asked) == _MemoryBudget(total_bytes=total * MIB, gpu_count=gpus, worker_count=workers)


def test_visible_gpus_count_as_the_largest(cards: Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says which GPUs these are."""
    cards(81559, 40960)
    for shown, seen in {"1": 1, "GPU-8f3a,GPU-1c": 2, "0,-1,1": 1, "1,0,7": 2, "": 0, "-1": 0}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
        assert gpu_memory_bytes() == (81559 * MIB, 40960 * MIB)[:seen]


@pytest.mark.parametrize(("built", "gpus"), [("2.13.0", True), ("2.13.0+cpu", False)])
def test_device_auto_is_a_gpu_if_torch_was_built_for_one_and_the_machine_has_a_driver(
    built: str, gpus: bool, cards: Cards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "version", lambda _: built)
    monkeypatch.setattr(fit, "GPU_NODES", (str(tmp_path),))
    cards(1000)
    memory = machine_memory_bytes()
    assert memory is not None
    assert _memory_budget_of("auto", 1, 1) == _MemoryBudget(
        total_bytes=1000 * MIB if gpus else memory, gpu_count=int(gpus), worker_count=1
    )
    # The size of a GPU that is present is unknown, and the machine's memory is not used instead.
    cards("[Insufficient Permissions]")
    assert (_memory_budget_of("auto", 1, 1) is None) == gpus
    monkeypatch.setattr(fit, "GPU_NODES", ())
    budget = _memory_budget_of("auto", 1, 1)
    assert budget is not None
    assert budget.gpu_count == 0


@pytest.mark.parametrize("said", [("[N/A]",), ("No devices were found",), (), (81559, "[N/A]"), ("\\377\\376",)])
def test_an_unreadable_report_of_the_driver_shows_no_gpu(said: tuple[str, ...], cards: Cards) -> None:
    cards(*said)
    assert gpu_memory_bytes() == ()
    cards(81559, code=9)
    assert gpu_memory_bytes() == ()
    assert _memory_budget_of("cuda", 1, 1) is None


def test_a_length_whose_cache_does_not_fit_is_refused_with_the_numbers(model: Checkpoint, cards: Cards) -> None:
    options = options_of(model.path, device="cuda")
    short, long = (estimated_memory(options, model, length) for length in (4096, 131072))
    assert short.total_bytes < 0.6 * long.total_bytes
    cards(int(0.6 * long.total_bytes / MIB))
    assert set(problems(model)) == {131072}
    line = problems(model)[131072]
    expected = r"--lengths: 131072 tokens take [\d.]+ GiB \([\d.]+ weights, [\d.]+ cache\) in each "
    match = re.fullmatch(
        expected + r"worker, which has [\d.]+ GiB \(1 GPU\); use fewer workers \(-n\), more --gpus-per-worker, shorter "
        r"--lengths, or a server \(--base-url\)",
        line,
    )
    assert match is not None
    cards(int(1.05 * long.total_bytes / MIB))
    assert problems(model) == {}
    # An estimate may be a tenth too high.
    cards(int(0.95 * long.total_bytes / MIB))
    assert problems(model) == {}
    assert set(problems(model, workers=2)) == {131072}
    assert "1 GPU among 2 workers" in problems(model, workers=2)[131072]


def test_a_thought_and_a_baseline_need_memory_too(model: Checkpoint, cards: Cards) -> None:
    long = estimated_memory(options_of(model.path, device="cuda"), model, 131072)
    cards(int(1.05 * long.total_bytes / MIB))
    assert set(problems(model, thinking_budget=131072)) == {131072}
    heavy = replace(model, weight_bytes=2 * long.total_bytes)
    assert set(problems(model, heavy)) == {4096, 131072}
    assert problems(model, replace(model)) == {}


def test_a_model_that_the_machine_cannot_hold_is_refused(model: Checkpoint) -> None:
    memory = machine_memory_bytes()
    assert memory is not None
    huge = replace(model, weight_bytes=2 * memory)
    refused = problems(huge, device="cpu")
    assert set(refused) == {4096, 131072}
    assert "(this machine's memory); use " in refused[4096]
    half = replace(model, weight_bytes=memory // 2)
    assert problems(half, lengths=(4096,), device="cpu") == {}
    # Weights may be pages of one file for all workers.
    assert problems(half, lengths=(4096,), device="cpu", workers=4) == {}
    stored = replace(model, weight_bytes=memory * 2 // 3, dtype="bfloat16")
    for name in ("bfloat16", "bf16"):
        assert problems(stored, lengths=(4096,), device="cpu", dtype=name) == {}
    # By itself, a CPU computes in float32: twice the bytes.
    assert 4096 in problems(stored, lengths=(4096,), device="cpu")


# Limits the memory of a run, as a container would, so that a checkpoint that takes seconds to read does not fit.
LIMIT = """
from pathlib import Path

from longctx.fixtures import memory as fit

limit = Path(__file__).with_name("memory.max")
limit.write_text(str(3 * 2**28))
fit.CONTAINER_LIMITS = (str(limit),)
"""


@pytest.fixture
def too_heavy(tmp_path: Path) -> Path:
    """A checkpoint whose header claims more weights than the memory of LIMIT."""
    folder = Path(shutil.copytree(calibration_checkpoint("512"), tmp_path / "step_9"))
    sparse_weights(folder / "model.safetensors", 1)
    return folder


def test_a_run_that_cannot_fit_ends_with_one_line_that_a_plan_shows_too(
    too_heavy: Path, cards: Cards, tmp_path: Path
) -> None:
    what = ("-p", "limit", f"--model={too_heavy}", "--suite", "ruler", "--lengths", "4k", "--device", "cpu")
    for folder in (tmp_path, planned := tmp_path / "planned"):
        folder.mkdir(exist_ok=True)
        (folder / "limit.py").write_text(LIMIT)
    ended = run_pytest(tmp_path, *what)
    assert (ended.exit_code, ended.output) == (4, f"reading {too_heavy}, 1.1 GB\n")
    (line,) = ended.errors.split("\n\n")[0].splitlines()
    assert re.fullmatch(
        r"ERROR: --lengths: 4096 tokens take [\d.]+ GiB \([\d.]+ weights, .*GiB \(this machine's memory\); use .*", line
    )
    cards(2**20)
    ended = run_pytest(planned, *what, "--plan", "-n", "2", gpus="0")
    assert ended.exit_code == 0
    assert re.search(r"cache(; --gpus-per-worker \d+ with 1024 GiB each)?\)", ended.output)
    (refused,) = (line for line in ended.output.splitlines() if line.startswith("cannot run: "))
    assert "(this machine's memory among 2 workers)" in refused


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ((), 1), (("-n", "3"), 3), (("-n", "8", "--maxprocesses", "2"), 2), (("--dist=load", "--tx", "3*popen"), 3),
        (("--tx", "3*popen"), 1), (("-n", "0"), 1), (("--dist=load", "--tx", "ssh=there", "--tx", "popen"), None),
        (("-p", "no:xdist"), 1),
    ],
)  # fmt: skip
def test_workers_on_this_machine_are_counted(options: tuple[str, ...], workers: int | None) -> None:
    config = pytest.Config.fromdictargs({}, ["--capture=no", *options])
    if plugin := config.pluginmanager.getplugin("xdist"):
        plugin.pytest_cmdline_main(config)
    assert _local_worker_count(config) == workers
