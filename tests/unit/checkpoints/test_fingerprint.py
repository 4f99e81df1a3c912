"""A fingerprint changes with everything that answers depend on, and reads a bounded part of a very large file."""

import json
import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longctx.fixtures.checkpoints import fingerprint
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.fingerprint import BLOCKS_PER_TENSOR, SAMPLE_BYTES
from longctx.fixtures.checkpoints.safetensors import CheckpointError, Tensor, read_header, sample_blocks
from tests.helpers.checkpoints import (
    CONFIG,
    TENSORS,
    WEIGHTS,
    WHOLE,
    Change,
    both,
    configure,
    safetensors,
    sound_checkpoint,
    write,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sound_checkpoint(tmp_path / "step_1000")


@given(at=st.integers(0, 71))
def test_the_fingerprint_changes_with_any_weight(at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "fingerprint"
    folder.mkdir(exist_ok=True)
    both(write("config.json", json.dumps(CONFIG)), write("tokenizer.json", "{}"), write(WEIGHTS, WHOLE))(folder)
    before = read_checkpoint(str(folder)).fingerprint
    changed = bytearray(WHOLE)
    changed[len(WHOLE) - 1 - at] ^= 1
    (folder / WEIGHTS).write_bytes(changed)
    assert read_checkpoint(str(folder)).fingerprint != before


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: configure(folder, rope_theta=5e5),
        write("tokenizer.json", '{"a": 1}'),
        write("generation_config.json", '{"eos_token_id": 7}'),
        write("chat_template.jinja", "{{ messages }}"),
        write(WEIGHTS, safetensors(dict(reversed(TENSORS.items())))),
    ],
    ids=["config", "tokenizer", "generation config", "chat template", "weights"],
)
def test_the_fingerprint_changes_with_everything_that_answers_depend_on(change: Change, folder: Path) -> None:
    before = read_checkpoint(str(folder)).fingerprint
    change(folder)
    assert read_checkpoint(str(folder)).fingerprint != before


def test_the_fingerprint_does_not_depend_on_the_path(folder: Path) -> None:
    before = read_checkpoint(str(folder)).fingerprint
    (folder / "trainer_state.json").write_text("{}")
    assert read_checkpoint(str(folder.rename(folder.parent / "step_2000"))).fingerprint == before


def sparse(path: Path, elements: int, tensors: int) -> None:
    """Write a large file of zeros that takes no space on disk."""
    entries = {
        f"layer.{at}": {
            "dtype": "BF16",
            "shape": [elements],
            "data_offsets": [2 * elements * at, 2 * elements * (at + 1)],
        }
        for at in range(tensors)
    }
    text = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 2 * elements * tensors)


def bytes_read() -> int:
    """Return the bytes that this process has read so far, as the kernel counts them."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the user's cache into a temporary directory and return that of the fingerprints."""
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache" / "longctx-gates" / "fingerprints"


@pytest.fixture
def large(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkpoint beyond the limit of small ones; the limits are made small."""
    for name, size in (("SMALL_FILE_BYTES", 2**14), ("BLOCK_BYTES", 2**12), ("SAMPLE_BYTES", 2**16)):
        monkeypatch.setattr(fingerprint, name, size)
    monkeypatch.setattr(fingerprint, "SETTLED_SECONDS", 0.0)
    sparse(folder / WEIGHTS, elements=2**14, tensors=4)
    return folder


def rewrite(file: Path, at: int, data: bytes) -> None:
    """Overwrite a part of a file in place and restore its modification time."""
    status = file.stat()
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def entry_of(cache: Path) -> Path:
    """Return the only entry of the cache."""
    (entry,) = cache.iterdir()
    return entry


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel counts reads on Linux only")
def test_a_part_of_a_file_of_more_than_2_gib_is_read(folder: Path, cache: Path) -> None:
    sparse(folder / WEIGHTS, elements=2**27, tensors=12)
    before = bytes_read()
    checkpoint = read_checkpoint(str(folder))
    # The config and the tokenizer are read too.
    assert SAMPLE_BYTES / 2 < bytes_read() - before < SAMPLE_BYTES + 2**16
    assert checkpoint.parameters == 12 * 2**27


def test_a_larger_file_is_sampled_from_the_first_byte_to_the_last_of_every_tensor(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "WHOLE_FILE_BYTES", 2**16)
    seen = {read_checkpoint(str(large)).fingerprint}
    for tensor in read_header(large / WEIGHTS).values():
        for at in (tensor.start, tensor.end - 1):
            rewrite(large / WEIGHTS, at, b"\x01")
            seen.add(read_checkpoint(str(large)).fingerprint)
    assert len(seen) == 9


@given(at=st.integers(0, 2**17 - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_every_byte_of_a_file_of_up_to_2_gib_counts(at: int, large: Path) -> None:
    before = read_checkpoint(str(large))
    start = min(tensor.start for tensor in read_header(large / WEIGHTS).values())
    rewrite(large / WEIGHTS, start + at, bytes([at % 255 + 1]))
    after = read_checkpoint(str(large))
    rewrite(large / WEIGHTS, start + at, b"\x00")
    assert after.fingerprint != before.fingerprint
    assert read_checkpoint(str(large)).fingerprint == before.fingerprint


def test_a_small_checkpoint_keeps_its_fingerprint_and_is_not_cached(folder: Path, cache: Path) -> None:
    assert read_checkpoint(str(folder)).fingerprint == "04a7a23023d56ba5b571207418d039bc"
    assert not cache.exists()


def test_a_large_checkpoint_is_hashed_once_into_a_directory_of_the_user_alone(
    large: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_checkpoint(str(large))
    monkeypatch.setattr(fingerprint, "_hash_content", None)
    assert read_checkpoint(str(large)) == first
    cache.chmod(0o777)
    with pytest.raises(CheckpointError, match="TypeError"):
        read_checkpoint(str(large))


def test_a_checkpoint_that_was_just_written_is_not_cached(
    large: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second write within one tick of the clock would not be noticed."""
    monkeypatch.setattr(fingerprint, "SETTLED_SECONDS", 60.0)
    read_checkpoint(str(large))
    assert not cache.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: entry.write_bytes(entry.read_bytes()[:-9]),
        lambda entry: entry.write_bytes(b"[" * 100_000),
        lambda entry: entry.write_text(entry.read_text().replace('"fingerprint": "', '"fingerprint": "0')),
        lambda entry: entry.write_text(
            entry.read_text().replace(json.loads(entry.read_text())["fingerprint"], "0" * 32)
        ),
        lambda entry: entry.rename(entry.with_name("other")) and entry.symlink_to("other"),
        lambda entry: (entry.unlink(), entry.mkdir()),
    ],
    ids=["torn", "nested", "malformed", "forged", "link", "directory"],
)
def test_a_damaged_or_forged_entry_is_not_used(large: Path, cache: Path, damage: Change) -> None:
    first = read_checkpoint(str(large))
    damage(entry_of(cache))
    assert read_checkpoint(str(large)) == first


def test_an_entry_of_another_checkpoint_is_not_used(large: Path, cache: Path) -> None:
    first = read_checkpoint(str(large))
    copy = Path(shutil.copytree(large, large.with_name("step_2000")))
    rewrite(copy / WEIGHTS, 2**16, b"other")
    stolen = entry_of(cache).read_bytes()
    second = read_checkpoint(str(copy))
    for entry in cache.iterdir():
        entry.write_bytes(stolen)
    assert read_checkpoint(str(copy)).fingerprint == second.fingerprint != first.fingerprint


def test_a_cache_that_cannot_be_written_costs_time_only(large: Path, cache: Path) -> None:
    cache.parent.parent.write_text("a file in place of the directory")
    assert read_checkpoint(str(large)).fingerprint == read_checkpoint(str(large)).fingerprint


@given(sizes=st.lists(st.integers(0, 2**34), min_size=1, max_size=400), header=st.integers(10, 2**20))
def test_samples_stay_in_their_tensors_and_within_the_limit(sizes: list[int], header: int) -> None:
    tensors: dict[str, Tensor] = {}
    start = header
    for at, size in enumerate(sizes):
        tensors[str(at)] = Tensor(dtype="U8", shape=(size,), start=start, end=start + size)
        start += size
    blocks = list(sample_blocks(tensors, limit_bytes=SAMPLE_BYTES, blocks_per_tensor=BLOCKS_PER_TENSOR))
    assert sum(length for _, length in blocks) + header <= SAMPLE_BYTES
    assert all(begin >= 0 and begin + length <= start for begin, length in blocks)
    if start + header <= SAMPLE_BYTES - 512:
        assert sum(length for _, length in blocks) == start
    for tensor in tensors.values():
        inside = [b for b in blocks if tensor.start <= b[0] and b[0] + b[1] <= tensor.end and b[1]]
        assert inside or tensor.start == tensor.end
