"""A fingerprint changes with everything that answers depend on, and reads at most 64 MiB of a weight file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.checkpoints.checkpoint import read_checkpoint
from fixtures.checkpoints.safetensors import READ_LIMIT, Tensor, read_header, sample_blocks
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


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel counts reads on Linux only")
def test_no_more_than_64_mib_of_a_weight_file_are_read(folder: Path) -> None:
    sparse(folder / WEIGHTS, elements=2**27, tensors=12)
    before = bytes_read()
    checkpoint = read_checkpoint(str(folder))
    # The config and the tokenizer are read too.
    assert READ_LIMIT / 2 < bytes_read() - before < READ_LIMIT + 2**16
    assert checkpoint.parameters == 12 * 2**27


def test_a_large_tensor_is_sampled_from_its_first_byte_to_its_last(folder: Path) -> None:
    sparse(folder / WEIGHTS, elements=2**26, tensors=2)
    seen = {read_checkpoint(str(folder)).fingerprint}
    for name, tensor in read_header(folder / WEIGHTS).items():
        for at in (tensor.start, tensor.end - 2, (tensor.start + tensor.end) // 2):
            with (folder / WEIGHTS).open("r+b") as file:
                # A training step moves nearly every weight; 32 MiB stand for it here.
                begin = max(tensor.start, min(at, tensor.end - 2**25))
                file.seek(begin)
                file.write(b"\x01" * 2**25)
            seen.add(read_checkpoint(str(folder)).fingerprint)
        assert name.startswith("layer.")
    assert len(seen) == 7


@given(sizes=st.lists(st.integers(0, 2**34), min_size=1, max_size=400), header=st.integers(10, 2**20))
def test_samples_stay_in_their_tensors_and_within_the_limit(sizes: list[int], header: int) -> None:
    tensors: dict[str, Tensor] = {}
    start = header
    for at, size in enumerate(sizes):
        tensors[str(at)] = Tensor(dtype="U8", shape=(size,), start=start, end=start + size)
        start += size
    blocks = list(sample_blocks(tensors))
    assert sum(length for _, length in blocks) + header <= READ_LIMIT
    assert all(begin >= 0 and begin + length <= start for begin, length in blocks)
    if start + header <= READ_LIMIT - 512:
        assert sum(length for _, length in blocks) == start
    for tensor in tensors.values():
        inside = [b for b in blocks if tensor.start <= b[0] and b[0] + b[1] <= tensor.end and b[1]]
        assert inside or tensor.start == tensor.end
