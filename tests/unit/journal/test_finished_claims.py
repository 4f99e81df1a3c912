"""A claim outlives its result, so that no worker answers a sample whose result it cannot see yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from longctx.plugins.journal import Heartbeat, Journal
from tests.helpers.journals import SUBJECT, entry, kill_worker

FOLDER = SUBJECT.key


@pytest.fixture
def heartbeats(tmp_path: Path) -> Iterator[list[Heartbeat]]:
    with ExitStack() as stack:
        yield [stack.enter_context(closing(Heartbeat(tmp_path, "run"))) for _ in range(2)]


def hidden(file: Path) -> Path:
    """Take a worker's file away, as if the file system did not show it yet; return where it is."""
    return file.rename(file.with_suffix(".hidden"))


def claims_in(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / FOLDER / "claims").iterdir())


def test_a_result_that_is_not_visible_yet_is_not_computed_again(tmp_path: Path, heartbeats: list[Heartbeat]) -> None:
    first, second = (Journal(tmp_path, SUBJECT, heartbeat) for heartbeat in heartbeats)
    first.append(entry(*first.claim(["aa"], 1)))
    hidden(tmp_path / FOLDER / f"{heartbeats[0].name}.jsonl")
    assert second.claim(["aa"], 1) == []


def test_deaths_that_others_recorded_count_before_a_sample_is_tried_again(
    tmp_path: Path, heartbeats: list[Heartbeat]
) -> None:
    journal = Journal(tmp_path, SUBJECT, heartbeats[0])
    assert journal.claim(["bb"], 1) == ["bb"]
    for _ in range(3):
        kill_worker(tmp_path, "run", ["aa"])
    assert journal.claim(["aa"], 1) == ["aa"]
    assert journal.lost_claims["aa"] == 3


def test_the_last_worker_removes_all_claims(tmp_path: Path, heartbeats: list[Heartbeat]) -> None:
    journals = [Journal(tmp_path, SUBJECT, heartbeat) for heartbeat in heartbeats]
    for journal, key in zip(journals, ("aa", "bb"), strict=True):
        journal.append(entry(*journal.claim([key], 1)))
    (tmp_path / FOLDER / "claims" / "cc").write_text("killed-1-00000000\n")
    for journal, heartbeat, left in zip(journals, heartbeats, (["aa", "bb", "cc"], []), strict=True):
        journal.close()
        heartbeat.close()
        assert claims_in(tmp_path) == left
