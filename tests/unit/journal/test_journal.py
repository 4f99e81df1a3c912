"""What is appended to a journal is read back whole, whatever happened to the files around it."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.journal import Entry, Heartbeat, Journal, Subject
from plugins.journal.lines import decode, encode
from tests.helpers.journals import SUBJECT, entry, keys, output, read, started, written

TEXTS = ["", "\ud800 alone", "a\0b", "line\nbreak\u2028\x85", "é😀\x7f", '"\\', "x" * 100_000]


@pytest.mark.parametrize("text", TEXTS)
def test_an_entry_comes_back_equal(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, entry("aa", text))
    assert read(tmp_path).entries == {"aa": entry("aa", text)}
    assert file.read_bytes().isascii()
    assert file.read_bytes().count(b"\n") == 1


@given(st.text(), st.text(), st.floats(0, 1), st.dictionaries(st.text(), st.floats(0, 1)))
def test_any_entry_survives_its_line(text: str, case: str, value: float, parts: dict[str, float]) -> None:
    plain = entry("aa", text, case=case)
    score = replace(plain.outcome.score, value=value, parts=parts, failure=None)
    full = replace(plain, outcome=replace(plain.outcome, score=score))
    assert decode(encode(full)) == full


def test_what_is_not_a_number_is_refused(tmp_path: Path) -> None:
    plain = entry("aa")
    bad = replace(plain, outcome=replace(plain.outcome, score=replace(plain.outcome.score, value=float("nan"))))
    with pytest.raises(ValueError, match="JSON compliant"):
        written(tmp_path, bad)
    with pytest.raises(ValueError, match="wrong type"):
        written(tmp_path, entry("../aa"))
    assert read(tmp_path).entries == {}


def test_a_journal_cut_at_any_byte_loses_its_last_line_at_most(tmp_path: Path) -> None:
    wanted = [entry(key, f"answer {key} é") for key in keys(4)]
    file = written(tmp_path, *wanted)
    data = file.read_bytes()
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        whole = data[:size].count(b"\n")
        found = read(tmp_path)
        assert list(found.entries.values()) == wanted[:whole]
        assert found.unreadable == 0


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 3))
def test_foreign_bytes_between_lines_cost_nothing_else(garbage: list[bytes], before: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        wanted = [entry(key) for key in keys(3)]
        file = written(Path(name), *wanted)
        lines = file.read_bytes().splitlines(keepends=True)
        lines.insert(before, b"".join(each + b"\n" for each in garbage))
        file.write_bytes(b"".join(lines))
        found = read(Path(name))
        assert list(found.entries.values()) == wanted
        assert found.unreadable == sum(bool(line.strip()) for each in garbage for line in each.split(b"\n"))


def altered(**changes: Any) -> bytes:
    data = json.loads(encode(entry("aa")))
    for path, value in changes.items():
        place, names = data, path.split("__")
        for name in names[:-1]:
            place = place[name]
        place[names[-1]] = value
    return json.dumps(data).encode()


STRANGE = [
    b"\0" * 300, b"[" * 100_000, b"1" * 5000, b"null", b'"element"', b"[]", b'{"facts": 3}', b'{"lost": "aa"}',
    b'{"failed": 1, "reason": "r", "run": "run"}', b"\xff\xfe{}", altered(extra=1), altered(element="../aa"),
    altered(index=True), altered(outcome=None), altered(outcome__score=None), altered(outcome__score__value="1"),
    altered(outcome__score__value=float("nan")), altered(outcome__score__parts=[1]), altered(outcome__depths=["0"]),
    altered(outcome__references=3), altered(outcome__generation__text=None), encode(entry("aa"))[:-40],
]  # fmt: skip


@pytest.mark.parametrize("line", STRANGE, ids=range(len(STRANGE)))
def test_a_line_of_unknown_shape_is_skipped_and_counted(tmp_path: Path, line: bytes) -> None:
    file = written(tmp_path, entry("bb"))
    file.write_bytes(line + b"\n" + file.read_bytes())
    found = read(tmp_path)
    assert set(found.entries) == {"bb"}
    assert (found.unreadable, found.facts, found.lost.total()) == (1, [], 0)


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, entry("aa"), entry("bb"))
    journal = Journal(tmp_path, SUBJECT)
    assert journal.refresh() == 2
    opened: list[Path] = []
    open_file = Path.open

    def watched(path: Path, mode: str) -> Any:
        opened.append(path)
        return open_file(path, mode)

    monkeypatch.setattr(Path, "open", watched)
    assert journal.refresh() == 0
    assert opened == []
    with file.open("ab") as lines:
        lines.write(encode(entry("cc")) + encode(entry("dd"))[:-1])
    opened.clear()
    # Spoilt behind the reader's back: it would be counted if it were read again.
    with open(file, "r+b") as spoilt:
        spoilt.write(b"?")
    assert journal.refresh() == 1
    assert opened == [file]
    assert (set(journal.entries), journal.unreadable) == ({"aa", "bb", "cc"}, 0)
    with open(file, "ab") as lines:
        lines.write(b"\n")
    assert (journal.refresh(), set(journal.entries)) == (1, {"aa", "bb", "cc", "dd"})


@pytest.mark.parametrize("later", [["cc"], ["cc", "ddd", "eeee"]])
def test_a_file_that_was_cut_is_read_again_from_its_start(tmp_path: Path, later: list[str]) -> None:
    """Shorter than before, or grown again since: then no line begins where the reader stopped."""
    file = written(tmp_path, entry("aa"), entry("bb"))
    journal = Journal(tmp_path, SUBJECT)
    journal.refresh()
    file.write_bytes(b"".join(encode(entry(key)) for key in later))
    journal.refresh()
    assert (list(journal.entries), journal.unreadable) == (later, 0)
    assert list(journal.generations) == [f"{key}00" for key in later]


def test_a_file_that_was_deleted_is_no_error(tmp_path: Path) -> None:
    file = written(tmp_path, entry("aa"))
    journal = Journal(tmp_path, SUBJECT)
    journal.refresh()
    file.unlink()
    written(tmp_path, entry("bb"))
    assert journal.refresh() == 1
    assert set(journal.entries) == {"aa", "bb"}


@given(st.permutations(["a", "b", "c"]), st.permutations(["a", "b", "c"]))
def test_the_choice_between_duplicates_depends_on_nothing_but_their_files(first: list[str], then: list[str]) -> None:
    """Whoever reads in whatever order, at once or as files appear, sees the same."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, SUBJECT.key)
        folder.mkdir()
        grown = Journal(Path(directory), SUBJECT)
        for index, name in enumerate(first):
            lines = [entry("ee", f"{name} first", prompt="11"), entry("ee", f"{name} again", prompt="11")]
            (folder / f"{name}.jsonl").write_bytes(b"".join(map(encode, lines)))
            assert grown.refresh() == (index == 0)
        for name in then:
            with (folder / f"{name}.jsonl").open("ab") as file:
                file.write(encode(entry(name * 2, f"late {name}", prompt="22")))
            grown.refresh()
        assert grown.entries["ee"] == entry("ee", "a first", prompt="11")
        assert grown.generations["22"] == entry("aa", "late a", prompt="22")
        fresh = read(Path(directory))
        assert (fresh.entries, fresh.generations) == (grown.entries, grown.generations)


def test_two_workers_see_each_other_and_themselves_alike(tmp_path: Path) -> None:
    with Heartbeat(tmp_path, "run") as one, Heartbeat(tmp_path, "run") as two:
        journals = [Journal(tmp_path, SUBJECT, presence) for presence in (one, two)]
        for number, journal in enumerate(journals):
            journal.append(entry("aa", f"of {number}"))
            journal.note_facts({"engine": number, "versions": ("1", "2")})
            journal.note_facts({"engine": "ignored"})
            journal.fail("case", f"reason {number}")
        for journal in journals:
            journal.refresh()
        first = min((one, two), key=lambda presence: presence.name)
        number = (one, two).index(first)
        for journal in journals:
            assert journal.entries["aa"].outcome.generation.text == f"of {number}"
            assert journal.facts == [{"engine": n, "versions": ["1", "2"]} for n in (number, 1 - number)]
            assert journal.failures == {"case": f"reason {number}"}


def test_failures_are_of_this_run_and_facts_of_all(tmp_path: Path) -> None:
    with Heartbeat(tmp_path, "monday") as presence:
        journal = Journal(tmp_path, SUBJECT, presence)
        journal.fail("case", "out of memory")
        journal.note_facts({"engine": "hf"})
    with Heartbeat(tmp_path, "tuesday") as presence:
        journal = Journal(tmp_path, SUBJECT, presence)
        journal.refresh()
        assert (journal.failures, journal.facts) == ({}, [{"engine": "hf"}])
    with Heartbeat(tmp_path, "monday") as presence:
        journal = Journal(tmp_path, SUBJECT, presence)
        journal.refresh()
        assert journal.failures == {"case": "out of memory"}


def test_another_process_takes_up_where_one_ended(tmp_path: Path) -> None:
    script = "for key in journal.take(['aa', 'bb'], 2): journal.append(entry(key))"
    output(started(script, tmp_path))
    assert output(started("print(journal.take(['aa', 'bb', 'cc'], 9), *journal.entries)", tmp_path)).split() == [
        "['cc']", "aa", "bb",
    ]  # fmt: skip


def test_checkpoints_of_one_name_never_share_and_one_checkpoint_under_two_names_does(tmp_path: Path) -> None:
    other = replace(SUBJECT, fingerprint="e" * 64)
    eager = replace(SUBJECT, execution={**SUBJECT.execution, "attention": "eager"})
    written(tmp_path, entry("aa"))
    assert [set(read(tmp_path, subject).entries) for subject in (SUBJECT, other, eager)] == [{"aa"}, set(), set()]
    turned = dict(reversed(list(SUBJECT.execution.items())))
    renamed = Subject(model="../elsewhere/é", fingerprint=SUBJECT.fingerprint, execution=turned)
    assert set(read(tmp_path, renamed).entries) == {"aa"}
    assert Subject(model="m", fingerprint="f", execution={"a": "b"}).key == "f1004c9b15e588b04cb47935"


def test_a_reader_creates_nothing_and_writes_nothing(tmp_path: Path) -> None:
    journal = read(tmp_path / "none")
    assert (journal.entries, journal.generations, journal.facts, journal.failures) == ({}, {}, [], {})
    journal.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="Presence"):
        journal.append(entry("aa"))


def test_a_file_deleted_under_a_living_worker_is_begun_anew(tmp_path: Path) -> None:
    with Heartbeat(tmp_path, "run") as presence:
        journal = Journal(tmp_path, SUBJECT, presence)
        journal.append(entry("aa"))
        for file in sorted((tmp_path / SUBJECT.key).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (tmp_path / SUBJECT.key).rmdir()
        assert journal.take(["aa", "bb"], 9) == ["bb"]
        later: Entry = entry("bb")
        journal.append(later)
    assert read(tmp_path).entries == {"bb": later}
    assert (tmp_path / SUBJECT.key / "subject.json").exists()
