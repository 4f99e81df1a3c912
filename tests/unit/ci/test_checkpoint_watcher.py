"""What a watch takes for a whole checkpoint: never half of one, and none missed."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from pathlib import Path

from ci.watch.checkpoint_watcher import Watcher
from tests.helpers.checkpoints import CONFIG, TENSORS, files, safetensors, write_step


def names(watcher: Watcher) -> list[str]:
    return [each.step.name for each in watcher.look()]


def test_a_slow_writer_is_never_read_half_and_never_missed(tmp_path: Path) -> None:
    """Looks go on while a thread writes in pieces; step-30 is left without its last shard for ever."""
    begun: set[str] = set()
    ended: set[str] = set()
    chance = random.Random(0)

    def writing() -> None:
        for step in (10, 20, 30, 40, 50):
            place = tmp_path / f"step-{step}"
            place.mkdir()
            begun.add(place.name)
            for name, data in files(step).items():
                if step == 30 and name.startswith("model-00002"):
                    break
                with (place / name).open("wb") as file:
                    for start in range(0, len(data), 40):
                        file.write(data[start : start + 40])
                        file.flush()
                        time.sleep(chance.random() * 0.004)
            else:
                ended.add(place.name)

    watcher = Watcher(tmp_path)
    writer = threading.Thread(target=writing)
    writer.start()
    looks = 0
    while writer.is_alive():
        seen = names(watcher)
        for name in seen:
            whole = files(int(name.rpartition("-")[2]))
            assert {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} == whole
        looks += 1
    writer.join()
    names(watcher)
    assert names(watcher) == ["step-10", "step-20", "step-40", "step-50"]
    assert begun - ended == {"step-30"}
    assert "step-30" in watcher.waiting
    assert looks > 10


def test_a_single_file_that_still_grows_is_not_whole(tmp_path: Path) -> None:
    place = write_step(tmp_path, 1)
    for path in place.glob("model*"):
        path.unlink()
    whole = safetensors(TENSORS)
    (place / "model.safetensors").write_bytes(whole[:-1])
    watcher = Watcher(tmp_path)
    assert [names(watcher) for _ in range(3)] == [[], [], []]
    (place / "model.safetensors").write_bytes(whole)
    assert [names(watcher) for _ in range(2)] == [[], ["step-1"]]


def test_with_a_marker_one_look_is_enough_and_none_without_it(tmp_path: Path) -> None:
    place = write_step(tmp_path, 1)
    watcher = Watcher(tmp_path, marker="DONE")
    assert [names(watcher) for _ in range(3)] == [[], [], []]
    assert watcher.waiting == {"step-1": "DONE is not there yet"}
    (place / "DONE").touch()
    assert names(watcher) == ["step-1"]


def test_hidden_and_nameless_directories_are_no_checkpoints(tmp_path: Path) -> None:
    shutil.copytree(write_step(tmp_path, 1), tmp_path / ".step-2-being-written")
    shutil.copytree(tmp_path / "step-1", tmp_path / "last")
    watcher = Watcher(tmp_path)
    assert [names(watcher) for _ in range(2)] == [[], ["step-1"]]


def test_a_checkpoint_written_anew_is_another_one(tmp_path: Path) -> None:
    place = write_step(tmp_path, 1)
    watcher = Watcher(tmp_path)
    names(watcher)
    (first,) = watcher.look()
    (place / "config.json").write_text(json.dumps(CONFIG | {"step": 2}))
    assert watcher.look() == []
    (second,) = watcher.look()
    assert first.fingerprint != second.fingerprint
