"""Entries that were appended to a journal are read back unchanged, whatever happens to the files around them."""

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from longctx.plugins.journal import Entry, Heartbeat, Journal, Subject
from longctx.plugins.journal.lines import encode_line
from tests.helpers.journals import (
    SUBJECT,
    entry,
    load_all,
    read_journal,
    sample_keys,
    unreadable_lines,
    write_journal,
)

TEXTS = ["", "\ud800 alone", "a\0b", "line\nbreak\u2028\x85", "é😀\x7f", '"\\', "x" * 100_000]


def with_score(plain: Entry, value: float) -> Entry:
    return replace(plain, outcome=replace(plain.outcome, score=replace(plain.outcome.score, value=value)))


@pytest.mark.parametrize("text", TEXTS)
def test_an_entry_is_read_back_equal(tmp_path: Path, text: str) -> None:
    file = write_journal(tmp_path, entry("aa", text))
    assert load_all(read_journal(tmp_path)) == {"aa": entry("aa", text)}
    assert file.read_bytes().isascii()
    assert file.read_bytes().count(b"\n") == 1


WRONG_SCORES = [with_score(entry("aa"), value) for value in (float("nan"), float("inf"), 1.5, -0.5)]


@pytest.mark.parametrize("wrong", [*WRONG_SCORES, entry("../aa")])
def test_an_entry_that_no_reader_accepts_cannot_be_appended(tmp_path: Path, wrong: Entry) -> None:
    with pytest.raises(ValueError, match=r"at `\$\.(outcome\.score\.value|element)`"):
        write_journal(tmp_path, wrong)
    assert read_journal(tmp_path).entries == {}


def test_a_journal_cut_at_any_byte_loses_its_last_line_at_most(tmp_path: Path) -> None:
    expected = [entry(key, f"answer {key} é") for key in sample_keys(4)]
    file = write_journal(tmp_path, *expected)
    data = file.read_bytes()
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        complete = data[:size].count(b"\n")
        journal = read_journal(tmp_path)
        assert list(load_all(journal).values()) == expected[:complete]
        assert unreadable_lines(journal) == 0


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(0, 3))
def test_foreign_bytes_between_lines_damage_nothing_else(garbage: list[bytes], before: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        expected = [entry(key) for key in sample_keys(3)]
        file = write_journal(Path(name), *expected)
        lines = file.read_bytes().splitlines(keepends=True)
        lines.insert(before, b"".join(data + b"\n" for data in garbage))
        file.write_bytes(b"".join(lines))
        journal = read_journal(Path(name))
        assert list(load_all(journal).values()) == expected
        assert unreadable_lines(journal) == sum(bool(line.strip()) for data in garbage for line in data.split(b"\n"))


def test_only_new_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_journal(tmp_path, entry("aa"), entry("bb"))
    journal = Journal(tmp_path, SUBJECT)
    journal.refresh()
    assert len(journal.entries) == 2
    opened: list[Path] = []
    open_file = Path.open

    def recording_open(path: Path, mode: str, buffering: int = -1) -> Any:
        opened.append(path)
        return open_file(path, mode, buffering)

    monkeypatch.setattr(Path, "open", recording_open)
    journal.refresh()
    assert opened == []
    with file.open("ab") as lines:
        lines.write(encode_line(entry("cc")) + encode_line(entry("dd"))[:-1])
    opened.clear()
    # The first line is damaged now: it would count as unreadable if it were read again.
    with open(file, "r+b") as damaged:
        damaged.write(b"?")
    journal.refresh()
    assert opened == [file]
    assert (set(journal.entries), unreadable_lines(journal)) == ({"aa", "bb", "cc"}, 0)
    with open(file, "ab") as lines:
        lines.write(b"\n")
    journal.refresh()
    assert set(journal.entries) == {"aa", "bb", "cc", "dd"}


def test_a_deleted_file_does_not_stop_a_reader(tmp_path: Path) -> None:
    file = write_journal(tmp_path, entry("aa"))
    journal = Journal(tmp_path, SUBJECT)
    journal.refresh()
    file.unlink()
    write_journal(tmp_path, entry("bb"))
    journal.refresh()
    assert set(journal.entries) == {"aa", "bb"}


@given(st.permutations(["a", "b", "c"]), st.permutations(["a", "b", "c"]))
def test_all_readers_choose_the_same_of_several_results(first: list[str], later: list[str]) -> None:
    """The order in which files appear, grow and are read makes no difference."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, SUBJECT.key)
        folder.mkdir()
        growing = Journal(Path(directory), SUBJECT)
        for name in first:
            lines = [entry("ee", f"{name} first", prompt="11"), entry("ee", f"{name} again", prompt="11")]
            (folder / f"{name}.jsonl").write_bytes(b"".join(map(encode_line, lines)))
            growing.refresh()
        for name in later:
            with (folder / f"{name}.jsonl").open("ab") as file:
                file.write(encode_line(entry(name * 2, f"late {name}", prompt="22")))
            growing.refresh()
        chosen = [growing.entries["ee"], growing.entries_by_prompt["22"]]
        assert chosen == [entry("ee", "a first", prompt="11"), entry("aa", "late a", prompt="22")]
        fresh = read_journal(Path(directory))
        assert (fresh.entries, fresh.entries_by_prompt) == (growing.entries, growing.entries_by_prompt)


def test_two_workers_see_the_same_results_of_both(tmp_path: Path) -> None:
    with closing(Heartbeat(tmp_path, "run")) as one, closing(Heartbeat(tmp_path, "run")) as two:
        journals = [Journal(tmp_path, SUBJECT, heartbeat) for heartbeat in (one, two)]
        for number, journal in enumerate(journals):
            journal.append(entry("aa", f"of {number}"))
            for facts in ({"engine": number}, {"engine": number}, {"engine": number, "notes": ("late",)}):
                journal.record_facts(facts)
            journal.record_failure("case", f"reason {number}")
        for journal in journals:
            journal.refresh()
        first = min((one, two), key=lambda heartbeat: heartbeat.name)
        number = (one, two).index(first)
        for journal in journals:
            assert load_all(journal)["aa"].outcome.generation.text == f"of {number}"
            of_each = [[{"engine": n}, {"engine": n, "notes": ["late"]}] for n in (number, 1 - number)]
            assert journal.facts == of_each[0] + of_each[1]
            assert journal.failures == {"case": f"reason {number}"}


def test_failures_are_of_one_run_and_facts_of_all(tmp_path: Path) -> None:
    with closing(Heartbeat(tmp_path, "monday")) as heartbeat:
        journal = Journal(tmp_path, SUBJECT, heartbeat)
        journal.record_failure("case", "out of memory")
        journal.record_facts({"engine": "hf"})
    with closing(Heartbeat(tmp_path, "tuesday")) as heartbeat:
        journal = Journal(tmp_path, SUBJECT, heartbeat)
        journal.refresh()
        assert (journal.failures, journal.facts) == ({}, [{"engine": "hf"}])
    with closing(Heartbeat(tmp_path, "monday")) as heartbeat:
        journal = Journal(tmp_path, SUBJECT, heartbeat)
        journal.refresh()
        assert journal.failures == {"case": "out of memory"}


def test_results_belong_to_a_fingerprint_and_its_execution_and_to_no_name(tmp_path: Path) -> None:
    other = replace(SUBJECT, fingerprint="e" * 64)
    eager = replace(SUBJECT, execution={**SUBJECT.execution, "attention": "eager"})
    reordered = dict(reversed(list(SUBJECT.execution.items())))
    renamed = Subject(model="../elsewhere/é", fingerprint=SUBJECT.fingerprint, execution=reordered)
    write_journal(tmp_path, entry("aa"))
    assert set(read_journal(tmp_path, SUBJECT).entries) == {"aa"}
    assert set(read_journal(tmp_path, renamed).entries) == {"aa"}
    assert set(read_journal(tmp_path, other).entries) == set()
    assert set(read_journal(tmp_path, eager).entries) == set()


def test_the_key_of_a_subject_never_changes() -> None:
    assert Subject(model="m", fingerprint="f", execution={"a": "b"}).key == "f1004c9b15e588b04cb47935"


def test_a_journal_without_a_heartbeat_creates_and_writes_nothing(tmp_path: Path) -> None:
    journal = read_journal(tmp_path / "none")
    assert (journal.entries, journal.entries_by_prompt, journal.facts, journal.failures) == ({}, {}, [], {})
    journal.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="Heartbeat"):
        journal.append(entry("aa"))


def test_a_worker_whose_directory_was_deleted_creates_it_again(tmp_path: Path) -> None:
    with closing(Heartbeat(tmp_path, "run")) as heartbeat:
        journal = Journal(tmp_path, SUBJECT, heartbeat)
        journal.append(entry("aa"))
        for file in sorted((tmp_path / SUBJECT.key).rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (tmp_path / SUBJECT.key).rmdir()
        assert journal.claim(["aa", "bb"], 9) == ["bb"]
        journal.append(entry("bb"))
    assert load_all(read_journal(tmp_path)) == {"bb": entry("bb")}
    assert (tmp_path / SUBJECT.key / "subject.json").exists()
