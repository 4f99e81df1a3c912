"""Files of others: only regular files of a plausible size are opened, and no path raises anything but OSError."""

import os
from pathlib import Path

import pytest

from longctx.fixtures.outside_files import (
    MAX_JSON_VALUES,
    absolute,
    check_regular,
    check_values,
    expanded,
    parse_json,
    read_outside,
)  # fmt: skip


@pytest.mark.parametrize("shape", ["pipe", "device", "directory", "loop", "dangling", "huge"])
def test_anything_but_a_regular_file_is_refused_without_opening_it(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    match shape:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "directory":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nowhere")
        case _:
            path.touch()
            os.truncate(path, 3 * 2**30)
    with pytest.raises(OSError) as error:  # noqa: PT011  # any kind of it; the message is the system's
        read_outside(path)
    assert error.value.strerror


def test_a_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(path)
    assert read_outside(tmp_path / "link", limit_bytes=5) == b"12345"
    with pytest.raises(OSError, match="more than 0 MiB"):
        check_regular(path, limit_bytes=4)


@pytest.mark.parametrize("values", ["[],", "0,", "{},"])
def test_json_with_more_values_than_memory_holds_is_refused_before_it_is_parsed(values: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("[" + values * (MAX_JSON_VALUES + 1) + "0]")
    with pytest.raises(OSError, match="more than 3,000,000 values"):
        check_values(file)
    with pytest.raises(ValueError, match="more than 3,000,000 values"):
        parse_json(file.read_bytes())


def test_odd_paths_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert absolute("loop", directory=tmp_path) == tmp_path / "loop"
    assert expanded("~no-such-user/x") == Path("~no-such-user/x")
    assert absolute("~/x") == Path(os.path.realpath(Path.home() / "x"))
