"""If the directory fails, one line says why, and results that were written before stay."""

from pathlib import Path

import pytest

from longctx.plugins.journal import Heartbeat, Journal, JournalError
from tests.helpers.journals import (
    SUBJECT,
    entry,
    load_all,
    read_journal,
    start_worker,
    unreadable_lines,
    worker_output,
    write_journal,
)

FOLDER = SUBJECT.key


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_and_releases_the_claims(tmp_path: Path) -> None:
    write_journal(tmp_path, entry("aa"))
    heartbeat = Heartbeat(tmp_path, "run")
    journal = Journal(tmp_path, SUBJECT, heartbeat)
    assert journal.claim(["aa", "bb", "cc"], 9) == ["bb", "cc"]
    own = tmp_path / FOLDER / f"{heartbeat.name}.jsonl"
    own.symlink_to("/dev/full")
    message = (
        rf"^--journal: cannot write {tmp_path} \(No space left on device\); make room.*; finished results are kept$"
    )
    with pytest.raises(JournalError, match=message):
        journal.append(entry("bb"))
    assert list((tmp_path / FOLDER / "claims").iterdir()) == []
    assert set(journal.entries) == set(read_journal(tmp_path).entries) == {"aa"}
    heartbeat.close()


def test_a_line_that_was_written_in_part_is_skipped(tmp_path: Path) -> None:
    """The file may not grow beyond 2000 bytes. Then the limit is lifted, and the worker continues."""
    script = """
import resource
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
journal.claim(["aa", "bb"], 2)
journal.append(entry("aa"))
for key in ("bb", "bb"):
    try:
        journal.append(entry(key, "x" * 2000))
    except JournalError as error:
        print(error)
print(os.listdir(journal.folder / "claims"), (journal.folder / f"{heartbeat.name}.jsonl").stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
journal.append(entry("cc"))
print(*journal.entries)
"""
    first, again, state, keys = worker_output(start_worker(script, tmp_path)).splitlines()
    assert first == again
    assert first.startswith(f"--journal: cannot write {tmp_path} (File too large); make room")
    assert state == "['aa'] 2000"
    assert keys == "aa cc"
    journal = read_journal(tmp_path)
    assert list(load_all(journal).values()) == [entry("aa"), entry("cc")]
    assert unreadable_lines(journal) == 1
