"""Results that version 0.1 stored under a fingerprint of samples of the weights are found under the full one."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from plugins.journal import adopt_results
from plugins.journal.housekeeping import subject_directories
from tests.helpers.journals import SUBJECT, entry, read_journal, write_journal

FULL = "e" * 32
ADOPTED = msgspec.structs.replace(SUBJECT, fingerprint=FULL)
BEGUN = 1_000_000.0


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Return a journal whose results were begun at BEGUN."""
    write_journal(tmp_path, entry("aa"))
    os.utime(tmp_path / SUBJECT.key / "subject.json", (BEGUN, BEGUN))
    return tmp_path


def adopt(directory: Path, *, last_change: float = BEGUN, full: str = FULL) -> None:
    adopt_results(directory, sampled=SUBJECT.fingerprint, full=full, last_change=last_change)


def test_results_are_found_under_the_full_fingerprint(earlier: Path) -> None:
    adopt(earlier)
    adopt(earlier)
    assert set(read_journal(earlier, ADOPTED).entries) == {"aa"}
    assert [item.subject for item in subject_directories(earlier)] == [ADOPTED]


def test_a_report_of_version_0_1_still_finds_them(earlier: Path) -> None:
    adopt(earlier)
    assert set(read_journal(earlier).entries) == {"aa"}


def test_a_checkpoint_that_changed_after_the_results_adopts_nothing(earlier: Path) -> None:
    adopt(earlier, last_change=BEGUN + 1)
    assert not read_journal(earlier, ADOPTED).entries
    assert set(read_journal(earlier).entries) == {"aa"}


def test_results_are_adopted_by_one_checkpoint_only(earlier: Path) -> None:
    adopt(earlier)
    adopt(earlier, full="d" * 32)
    assert not read_journal(earlier, msgspec.structs.replace(SUBJECT, fingerprint="d" * 32)).entries


def test_results_under_the_full_fingerprint_stay(earlier: Path) -> None:
    write_journal(earlier, entry("bb"), subject=ADOPTED)
    adopt(earlier)
    assert set(read_journal(earlier, ADOPTED).entries) == {"bb"}
    assert set(read_journal(earlier).entries) == {"aa"}


def test_results_of_other_checkpoints_stay(earlier: Path) -> None:
    adopt_results(earlier, sampled="c" * 32, full=FULL, last_change=0.0)
    assert set(read_journal(earlier).entries) == {"aa"}
    adopt(earlier / "missing")
    assert not (earlier / "missing").exists()
