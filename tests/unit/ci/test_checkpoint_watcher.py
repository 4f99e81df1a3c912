"""The checkpoint watcher reports every complete checkpoint, and never a half-written one."""

import json
import os
import random
import re
import shutil
import threading
import time
from pathlib import Path

import pytest

from longctx.ci.checkpoint_dirs import UNSETTLED, CheckpointsError, CheckpointWatcher, Step, StepReader, between
from longctx.fixtures.checkpoints.steps import named_steps
from tests.helpers.checkpoints import CONFIG, TENSORS, files, safetensors, write_step


def names(watcher: CheckpointWatcher) -> list[str]:
    return [checkpoint.step.name for checkpoint in watcher.scan()]


def test_a_slow_writer_s_checkpoints_are_reported_complete_and_none_is_missed(tmp_path: Path) -> None:
    """Scan while a thread writes small blocks; step-30 never gets its last shard."""
    begun: set[str] = set()
    ended: set[str] = set()
    rng = random.Random(0)

    def writing() -> None:
        for step in (10, 20, 30, 40, 50):
            checkpoint = tmp_path / f"step-{step}"
            checkpoint.mkdir()
            begun.add(checkpoint.name)
            for name, data in files(step).items():
                if step == 30 and name.startswith("model-00002"):
                    break
                with (checkpoint / name).open("wb") as file:
                    for start in range(0, len(data), 40):
                        file.write(data[start : start + 40])
                        file.flush()
                        time.sleep(rng.random() * 0.004)
            else:
                ended.add(checkpoint.name)

    watcher = CheckpointWatcher(tmp_path)
    writer = threading.Thread(target=writing)
    writer.start()
    scans = 0
    while writer.is_alive():
        for name in names(watcher):
            complete = files(int(name.rpartition("-")[2]))
            assert {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} == complete
        scans += 1
    writer.join()
    names(watcher)
    assert names(watcher) == ["step-10", "step-20", "step-40", "step-50"]
    assert begun - ended == {"step-30"}
    assert tmp_path / "step-30" in watcher.waiting
    assert scans > 10


def test_with_a_marker_one_scan_is_enough(tmp_path: Path) -> None:
    place = write_step(tmp_path, 1)
    watcher = CheckpointWatcher(tmp_path, marker="DONE")
    assert [names(watcher) for _ in range(3)] == [[], [], []]
    assert watcher.waiting == {place: "DONE is not there yet"}
    (place / "DONE").touch()
    assert names(watcher) == ["step-1"]


def test_the_reason_of_an_unreadable_checkpoint_stays_until_it_is_mended(tmp_path: Path) -> None:
    config = write_step(tmp_path, 1) / "config.json"
    config.write_text("{")
    watcher = CheckpointWatcher(tmp_path)
    watcher.scan()
    reasons = [[watcher.scan(), *watcher.waiting.values()] for _ in range(3)]
    assert reasons[1:] == reasons[:1] * 2
    assert watcher.refused
    config.write_text(json.dumps(CONFIG))
    assert [names(watcher) for _ in range(2)] == [[], ["step-1"]]


def test_adapters_and_raw_checkpoints_are_complete_once_they_stay_the_same(tmp_path: Path) -> None:
    adapter, raw = tmp_path / "step-1", tmp_path / "step-2"
    adapter.mkdir()
    raw.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    (raw / "__0_0.distcp").write_bytes(b"weights")
    watcher = CheckpointWatcher(tmp_path, options=["--convert=convert.sh {checkpoint} {out}"])
    watcher.scan()
    assert [checkpoint.step.number for checkpoint in watcher.scan()] == [2]
    assert "adapter_model.safetensors: missing" in watcher.waiting[adapter]
    (adapter / "adapter_model.safetensors").write_bytes(safetensors(TENSORS))
    watcher.scan()
    first, second = watcher.scan()
    (raw / "__0_0.distcp").write_bytes(b"WEIGHTS")
    watcher.scan()
    assert [checkpoint.fingerprint == known.fingerprint for checkpoint, known in
            zip(watcher.scan(), (first, second), strict=True)] == [True, False]  # fmt: skip
    without = CheckpointWatcher(tmp_path)
    without.scan()
    assert [checkpoint.step.number for checkpoint in without.scan()] == [1]


def test_a_link_shows_no_half_written_checkpoint(tmp_path: Path) -> None:
    """Two names in one scan must not make one unchanged state seem to be two scans."""
    place = write_step(tmp_path, 300)
    for name in ("best-300", "latest", "x-1"):
        (tmp_path / name).symlink_to("step-300")
    watcher = CheckpointWatcher(tmp_path)
    for step in (1, 2, 3):
        (place / "config.json").write_text(json.dumps(CONFIG | {"step": step}))
        assert watcher.scan() == []
        assert watcher.waiting == {place: UNSETTLED}
    assert [(found.step.number, found.step.path) for found in watcher.scan()] == [(300, place)]


@pytest.mark.parametrize(
    ("link", "target", "number"),
    [
        ("best-7", "step-300", 300),
        ("step-20", "store/9f3a1c", 20),
        ("checkpoint-20", "store/9f3a1c", 20),
        ("step-20", "store/abc", 20),
        ("global_step30", "old/checkpoint-0400", 400),
    ],
)
def test_the_step_of_a_link_is_that_of_its_directory(link: str, target: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "other" / target).mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / link).symlink_to(tmp_path / "other" / target)
    step = Step(number=number, path=tmp_path / "other" / target)
    assert StepReader().find(tmp_path / "run").steps == (step,)


def test_steps_are_in_numeric_order_and_each_directory_is_there_once(tmp_path: Path) -> None:
    run = tmp_path / "run-3"
    for step in (1000, 500, 20):
        (run / f"step-{step}").mkdir(parents=True)
    (run / "7").mkdir()
    # Names that are no checkpoints of this run: of itself, of its parent, of nothing.
    for name, target in (("a-1", "step-500"), ("step-8", "7"), ("b-2", "."), ("c-3", ".."), ("d-4", "none")):
        (run / name).symlink_to(target)
    # One that is still being written, and one without a number.
    (run / ".step-2").mkdir()
    (run / "last").mkdir()
    assert [step.number for step in StepReader().find(run).steps] == [7, 20, 500, 1000]


def test_what_has_happened_to_a_checkpoint_is_known_after_the_next_scan(tmp_path: Path) -> None:
    place = write_step(tmp_path, 1)
    watcher = CheckpointWatcher(tmp_path)
    watcher.scan()
    (found,) = watcher.scan()
    fingerprint = found.fingerprint

    def losses() -> tuple[str | None, str | None]:
        return watcher.read_loss(place, fingerprint), watcher.find_loss(place, fingerprint)

    assert losses() == (None, None)
    whole = (place / "config.json").read_text()
    (place / "config.json").write_text(json.dumps(CONFIG | {"step": 2}))
    watcher.scan()
    # It may be about to change further.
    assert losses() == ("replaced", None)
    watcher.scan()
    assert losses() == ("replaced", "replaced")
    (place / "config.json").unlink()
    watcher.scan()
    watcher.scan()
    assert losses() == ("incomplete", "incomplete")
    (place / "config.json").write_text(whole)
    watcher.scan()
    watcher.scan()
    assert losses() == (None, None)
    shutil.rmtree(place)
    watcher.scan()
    assert losses() == ("deleted", "deleted")


def folders(run: Path, *names: str) -> Path:
    for name in names:
        (run / name).mkdir(parents=True)
    return run


def test_two_checkpoints_of_one_step_are_named_and_not_measured(tmp_path: Path) -> None:
    run = folders(tmp_path, "step-100", "step-200", "step-200-v1", "epoch=1-step=200")
    found = StepReader().find(run)
    assert [step.number for step in found.steps] == [100]
    assert set(found.unclear) == {run / "step-200", run / "step-200-v1", run / "epoch=1-step=200"}
    reason = found.unclear[run / "step-200"]
    assert reason.startswith(f"is step 200 like {run}/")
    assert "; move one away, or give --step-pattern" in reason
    parts = StepReader().find(folders(tmp_path / "parts", "ep8-step80", "ep9-step90", "ep10-step90", "ep10-step100"))
    assert [step.number for step in parts.steps] == [80, 100]
    one = StepReader(pattern=r"^step-(\d+)$").find(run)
    assert ([step.number for step in one.steps], one.unclear) == ([100, 200], {})


def test_a_name_that_is_no_text_is_left_out_with_a_line(tmp_path: Path) -> None:
    run = folders(tmp_path, "step-1", os.fsdecode(b"step-2-\xff"))
    found = StepReader().find(run)
    assert [step.number for step in found.steps] == [1]
    assert "has a name that is no UTF-8; rename it" in next(iter(found.unclear.values()))


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("epoch-0_step-500", "epoch-1_step-400"), "each epoch .*: step 400 of epoch 1 is lower than step 500"),
        (("stage1-step9000-tokens4B", "stage2-ingredient1-step50"), "each stage .*: step 50 of stage 2 is lower than"),
        (("Phase2_checkpoint-7", "Phase1_checkpoint-8"), "step 7 of phase 2 is lower than step 8 of phase 1; give"),
        (("ep0-ba20", "ep1-ba40", "epoch=2-step=900", "epoch=3-step=1200-v1", "stage3-x", "steps-1-stage4"), None),
    ],
)  # fmt: skip
def test_steps_that_begin_again_with_a_part_of_the_run_have_no_order(
    names: tuple[str, ...], line: str | None, tmp_path: Path
) -> None:
    found = StepReader().find(folders(tmp_path, "step-10000", *names))
    refused = {path.name for path in found.unclear} - {"stage3-x"}
    assert refused == (set(names) if line else set())
    assert line is None or re.search(line, found.unclear[tmp_path / names[0]])
    if line:
        low, high = sorted((tmp_path / name for name in names), key=lambda path: named_steps(path.name))
        with pytest.raises(CheckpointsError, match=r"^--checkpoints: .*begin again"):
            between([f"{tmp_path}/*"], low, high, StepReader())


@pytest.mark.parametrize(
    ("pattern", "names", "numbers"),
    [
        (r"epoch-(\d+)", ("epoch-3-of-10", "epoch-4-of-10", "logs-1"), [3, 4]),
        (r"tokens(\d+B)", ("stage1-tokens4B", "stage1-tokens12B"), [4 * 10**9, 12 * 10**9]),
        (r"^(\d{8})", ("20260301-a", "20260302-b"), [20260301, 20260302]),
        (r"step=(\d+)", ("epoch=2-step=7-step=8",), [7]),
    ],
)
def test_a_pattern_decides_which_number_is_the_step(
    pattern: str, names: tuple[str, ...], numbers: list[int], tmp_path: Path
) -> None:
    found = StepReader(pattern=pattern).find(folders(tmp_path, *names))
    assert ([step.number for step in found.steps], found.unclear) == (numbers, {})


@pytest.mark.parametrize("pattern", ["(", "x", "(a)(b)", "*", "(?P<x"])
def test_a_pattern_without_one_group_is_refused(pattern: str) -> None:
    with pytest.raises(CheckpointsError, match=r"^--step-pattern: "):
        StepReader(pattern=pattern)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (("actor/huggingface", "critic/huggingface"), "actor/huggingface"),
        (("hf",), "hf"),
        (("policy/weights/hf",), "policy/weights/hf"),
        (("", "draft"), ""),
    ],
)
def test_a_checkpoint_deeper_in_the_directory_of_its_step_is_found(
    inner: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    outer = tmp_path / "global_step_40"
    for name in inner:
        (outer / name).mkdir(parents=True, exist_ok=True)
        (outer / name / "config.json").write_text("{}")
    (step,) = StepReader().find(tmp_path).steps
    assert (step.number, step.path, step.name) == (40, outer / expected, "global_step_40")
    assert StepReader().read(step.path, option="--good").number == 40


def test_a_measured_checkpoint_stays_when_another_one_of_its_step_comes(tmp_path: Path) -> None:
    place = write_step(tmp_path, 1)
    watcher = CheckpointWatcher(tmp_path)
    watcher.scan()
    (found,) = watcher.scan()
    (tmp_path / "checkpoint-1").mkdir()
    assert watcher.scan() == []
    assert watcher.find_loss(place, found.fingerprint) is None
    assert watcher.refused
