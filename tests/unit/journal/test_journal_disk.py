"""A directory that fails: one line says what happened, and what was written before is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugins.journal import Heartbeat, Journal, JournalError
from plugins.journal.lines import encode
from tests.helpers.journals import SUBJECT, entry, output, read, started, written

FOLDER = SUBJECT.key


def test_a_file_in_place_of_the_directory_is_told_in_one_line(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    place.write_text("")
    told = rf"^--journal: cannot write {place} \(.*\); give a directory.*; finished results are kept$"
    with pytest.raises(JournalError, match=told):
        Heartbeat(place, "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(JournalError, match="give a directory that can be written"):
        Heartbeat(tmp_path, "run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_and_gives_the_claims_back(tmp_path: Path) -> None:
    written(tmp_path, entry("aa"))
    presence = Heartbeat(tmp_path, "run")
    journal = Journal(tmp_path, SUBJECT, presence)
    assert journal.take(["aa", "bb", "cc"], 9) == ["bb", "cc"]
    own = tmp_path / FOLDER / f"{presence.name}.jsonl"
    own.symlink_to("/dev/full")
    told = rf"^--journal: cannot write {tmp_path} \(No space left on device\); make room.*; finished results are kept$"
    with pytest.raises(JournalError, match=told):
        journal.append(entry("bb"))
    assert list((tmp_path / FOLDER / "claims").iterdir()) == []
    assert set(journal.entries) == set(read(tmp_path).entries) == {"aa"}
    presence.close()


@pytest.mark.parametrize("cut", [True, False])
def test_a_line_that_fits_in_part_is_cut_off_or_left_behind(tmp_path: Path, cut: bool) -> None:
    """The file may grow no further than 2000 bytes; then room is made and the worker goes on."""
    script = f"""
import resource
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
if not {cut}:
    def refuse(descriptor, size):
        raise OSError(5, "no")
    os.ftruncate = refuse
journal.take(["aa", "bb"], 2)
journal.append(entry("aa"))
for element in ("bb", "bb"):
    try:
        journal.append(entry(element, "x" * 2000))
    except JournalError as error:
        print(error)
print(os.listdir(journal.folder / "claims"), (journal.folder / f"{{presence.name}}.jsonl").stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.append(entry("cc"))
print(*journal.entries)
"""
    first, again, left, kept = output(started(script, tmp_path)).splitlines()
    assert first == again
    assert first.startswith(f"--journal: cannot write {tmp_path} (File too large); make room")
    assert left == f"[] {len(encode(entry('aa'))) if cut else 2000}"
    assert kept == "aa cc"
    found = read(tmp_path)
    assert list(found.entries.values()) == [entry("aa"), entry("cc")]
    assert found.unreadable == (not cut)
