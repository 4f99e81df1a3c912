"""A file is replaced as a whole or not at all, and a failed write leaves nothing behind."""

import os
from pathlib import Path

import pytest

from longctx.fixtures.atomic_files import partial_path, replacing, with_final_names, write_all, write_file


def test_a_file_is_created_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["report.json"]


def test_readers_see_the_old_content_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def write_and_fail(path: Path, error: type[BaseException]) -> None:
    with replacing(path) as file:
        file.write(b"new")
        raise error


@pytest.mark.parametrize("error", [OSError, ValueError, KeyboardInterrupt])
def test_an_exception_while_writing_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"old")
    with pytest.raises(error):
        write_and_fail(path, error)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write_file(tmp_path / "report.json", b"new")
    assert os.listdir(tmp_path) == ["report.json"]


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with replacing(path) as first, replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_new_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "report.json", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["step-1.json", "a step.1 .json", "é", ".hidden"])
def test_a_partial_file_has_its_final_name_in_texts(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    partial = partial_path(path)
    text = "--report-json={0} report     {0} '{0}'"
    assert (partial.parent, partial.suffix) == (tmp_path, ".partial")
    assert with_final_names(text.format(partial)) == text.format(path)
    assert with_final_names(partial.name) == name


@pytest.mark.parametrize(
    "text", ["a.json.partial", ".a/b.0123abcd.partial", ".a.0123.partial", "x.json.0123abcd.partial"]
)
def test_other_names_stay(text: str) -> None:
    assert with_final_names(text) == text


def test_a_write_in_parts_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: system_write(descriptor, data[:3]))
    descriptor = os.open(tmp_path / "lines", os.O_CREAT | os.O_WRONLY)
    try:
        write_all(descriptor, b"0123456789")
    finally:
        os.close(descriptor)
    assert (tmp_path / "lines").read_bytes() == b"0123456789"


def test_a_write_that_makes_no_progress_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with pytest.raises(OSError, match="No space left"):
        write_all(-1, b"data")
