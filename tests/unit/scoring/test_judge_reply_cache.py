"""Replies are stored for all later processes, whatever happens to the one that received them."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.plugins.journal import JournalError, JudgeReplies


def lines(directory: Path) -> int:
    """Return the number of stored lines. Lines that these tests write contain no space."""
    return sum(len(path.read_bytes().split()) for path in (directory / "judge").glob("judge-*.jsonl"))


@settings(max_examples=25)  # Each is written and synced.
@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_stored_replies_can_be_read_by_every_process(replies: dict[str, str]) -> None:
    with TemporaryDirectory() as place:
        ours = JudgeReplies(Path(place), "one")
        for key, reply in replies.items():
            ours.put(key, reply)
        ours.close()
        stored = JudgeReplies(Path(place), "reader")
        assert {key: stored.get(key) for key in replies} == replies
        assert stored.get("another") is None


def test_a_reply_of_another_process_is_read_on_demand(tmp_path: Path) -> None:
    """A process that reads too early reads again."""
    ours, theirs = JudgeReplies(tmp_path, "one"), JudgeReplies(tmp_path, "two")
    assert ours.get("a") is None
    ours.put("b", "ours")
    for index in range(3):
        theirs.put(f"a{index}", f"reply {index}")
        assert ours.get(f"a{index}") == f"reply {index}"
    assert theirs.get("b") == "ours"


def test_threads_put_whole_lines_and_a_key_once(tmp_path: Path) -> None:
    replies = JudgeReplies(tmp_path, "one")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: replies.put(str(number % 40), "x" * number), range(200)))
    assert lines(tmp_path) == 40
    stored = JudgeReplies(tmp_path, "reader")
    assert all(stored.get(str(number)) == replies.get(str(number)) for number in range(40))


def test_a_process_of_the_same_name_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    JudgeReplies(tmp_path, "one").put("a", "first")
    (path,) = (tmp_path / "judge").iterdir()
    path.write_bytes(path.read_bytes() + b'{"key":"torn","rep')
    again = JudgeReplies(tmp_path, "one")
    assert again.get("a") == "first"
    again.put("b", "second")
    stored = JudgeReplies(tmp_path, "reader")
    assert (stored.get("a"), stored.get("b"), stored.get("torn")) == ("first", "second", None)


@pytest.mark.parametrize(
    "noise", [b"\n", b"[]\n", b'{"key":"k"}\n', b'{"key":1,"reply":"x"}\n', b"\xff\n", b"[" * 9999 + b"\n", b"null\n"]
)
def test_other_lines_are_skipped(tmp_path: Path, noise: bytes) -> None:
    JudgeReplies(tmp_path, "one").put("a", "first")
    (tmp_path / "judge" / "judge-0.jsonl").write_bytes(noise + b'{"key":"b","reply":"second"}\n')
    stored = JudgeReplies(tmp_path, "reader")
    assert (stored.get("a"), stored.get("b"), stored.get("k")) == ("first", "second", None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "judge-one.jsonl").symlink_to("/dev/full")
    message = rf"^--journal: cannot write {tmp_path}/judge \(No space left on device\); make room"
    replies = JudgeReplies(tmp_path, "one")
    with pytest.raises(JournalError, match=message):
        replies.put("a", "first")
