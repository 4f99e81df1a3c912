"""Ways to replace a checkpoint, or one of its files, by those of another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

WEIGHTS = "model.safetensors"


def replace_directory(true: Path, other: Path) -> None:
    true.rename(true.with_name(f"{true.name}-moved"))
    shutil.copytree(other, true)


def rewrite_weights(true: Path, other: Path) -> None:
    """Write other weights into the same file and restore its modification time."""
    status = (true / WEIGHTS).stat()
    with (true / WEIGHTS).open("r+b") as file:
        file.write((other / WEIGHTS).read_bytes())
    os.utime(true / WEIGHTS, ns=(status.st_atime_ns, status.st_mtime_ns))


def truncate_weights(true: Path, other: Path) -> None:
    shutil.copyfile(other / WEIGHTS, true / WEIGHTS)


def link_weights(true: Path, other: Path) -> None:
    (true / "link").symlink_to(other / WEIGHTS)
    (true / "link").replace(true / WEIGHTS)


def replace_file(name: str) -> Callable[[Path, Path], None]:
    """Return a change that puts another file in the place of the file of this name."""

    def change(true: Path, other: Path) -> None:
        shutil.copyfile(other / name, true / "new")
        (true / "new").replace(true / name)

    return change


CHANGES: Mapping[str, Callable[[Path, Path], None]] = {
    "directory": replace_directory,
    "weights in place": rewrite_weights,
    "weights copied over": truncate_weights,
    "weights linked": link_weights,
    "config": replace_file("config.json"),
    "tokenizer": replace_file("tokenizer.json"),
    "template": replace_file("tokenizer_config.json"),
    "generation config": replace_file("generation_config.json"),
}
