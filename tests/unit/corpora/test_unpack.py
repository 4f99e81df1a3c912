"""Archives unpack into their directory only, and again without harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from longctx.fixtures.corpora.download import FetchError, _Manifest, unpack
from tests.helpers.archives import files_under, tar_of

CONTENT = bytes(range(256)) * 400


def ignore(line: str) -> None:
    """Print nothing."""


@pytest.mark.parametrize("name", ["../outside.jsonl", "data/../../outside.jsonl"])
def test_an_archive_writes_nothing_outside_the_directory(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "to"
    directory.mkdir()
    archive = directory / "a.tar.gz"
    archive.write_bytes(tar_of({"data/one": b"1", name: b"x"}))
    with pytest.raises(FetchError, match="outside"):
        unpack(archive, "key", _Manifest(directory), ignore)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.tar.gz"]


def test_links_of_an_archive_are_left_out(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar_of({"data/one": b"1"}, links={"data/two": "one"}))
    unpack(archive, "key", _Manifest(tmp_path), ignore)
    assert files_under(tmp_path) == ["a.tar.gz", "one"]
    assert (tmp_path / "one").read_bytes() == b"1"
    assert _Manifest(tmp_path).holds_members("key")


def test_a_torn_archive_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    content = tar_of({f"data/kilt/{number}": CONTENT for number in range(4)})
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(FetchError, match="cannot be unpacked"):
        unpack(archive, "key", _Manifest(tmp_path), ignore)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]
    assert not _Manifest(tmp_path).holds_members("key")


def test_unpacking_again_replaces_only_missing_files(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(tar_of({f"data/kilt/{number}": b"%d" % number for number in range(4)}))
    unpack(archive, "key", _Manifest(tmp_path), ignore)
    (tmp_path / "kilt/2").unlink()
    lines: list[str] = []
    unpack(archive, "key", _Manifest(tmp_path), lines.append)
    assert lines == ["kilt/2: unpacked"]
    assert [(tmp_path / "kilt" / str(number)).read_bytes() for number in range(4)] == [b"0", b"1", b"2", b"3"]
