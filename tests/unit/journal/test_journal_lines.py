"""A line is read only if its checksum, its fields, their types and their ranges are right."""

import json
import re
import zlib
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from longctx.plugins.journal.lines import (
    CHECKSUM_BYTES,
    Facts,
    FailedCase,
    Line,
    LostClaim,
    decode_line,
    encode_line,
)
from tests.helpers.journals import entry, load_all, read_journal, unreadable_lines, write_journal

CHANGES = 4000
LINES: list[Line] = [
    entry("aa", "an é answer \ud800"),
    Facts(facts={"engine": "hf", "batch_size": 1}),
    FailedCase(case="test_ruler[vt-4k]", reason="out of memory", run="run"),
    LostClaim(key="aa", run="run"),
]


def checked(content: bytes) -> bytes:
    """Return a line with a right checksum and any content."""
    body = content.removesuffix(b"}")
    return body + b',"crc32":"%08x"}' % zlib.crc32(body)


def changed_entry(**changes: Any) -> bytes:
    """Return a line with a right checksum, after changes of fields by their path, such as outcome__index."""
    data = json.loads(encode_line(entry("aa")))
    del data["crc32"]
    for path, value in changes.items():
        place, names = data, path.split("__")
        for name in names[:-1]:
            place = place[name]
        place[names[-1]] = value
    return checked(json.dumps(data).encode())


@given(st.text(), st.text(), st.floats(0, 1), st.dictionaries(st.text(), st.floats(0, 1)))
def test_any_entry_is_decoded_as_it_was_encoded(text: str, case: str, value: float, parts: dict[str, float]) -> None:
    plain = entry("aa", text, case=case)
    score = replace(plain.outcome.score, value=value, parts=parts, failure=None)
    full = replace(plain, outcome=replace(plain.outcome, score=score))
    assert decode_line(encode_line(full)) == full


@pytest.mark.parametrize("line", LINES)
def test_the_last_field_is_the_checksum_of_all_bytes_before_it(line: Line) -> None:
    data = encode_line(line)
    match = re.fullmatch(rb'(.*),"crc32":"([0-9a-f]{8})"\}\n', data)
    assert match is not None
    assert int(match[2], 16) == zlib.crc32(match[1])
    assert list(json.loads(data))[-1] == "crc32"


def test_no_line_with_a_changed_byte_is_read_with_other_content() -> None:
    random = Random(7)
    for _ in range(CHANGES):
        line = random.choice(LINES)
        data = bytearray(encode_line(line))
        place = random.randrange(len(data))
        data[place] ^= random.randrange(1, 256)
        # A byte that became a newline ends the line there.
        parts = bytes(data).splitlines(keepends=True) if b"\n" in data[:-1] else [bytes(data)]
        assert all(decode_line(part) in (None, line) for part in parts)


REFUSED = {
    "zero bytes": b"\0" * 300,
    "deep nesting": b"[" * 100_000,
    "deep nesting in facts": b'{"facts": {"a": ' + b"[" * 100_000,
    "a long number": b"1" * 5000,
    "a list": b"[]",
    "facts that are not a number": checked(b'{"facts": {"a": NaN}}'),
    "a lost claim without a run": checked(b'{"lost": "aa"}'),
    "no ASCII": checked(b"\xff\xfe{}"),
    "an unknown field": changed_entry(extra=1),
    "an unknown field within": changed_entry(outcome__score__extra=1),
    "a checksum that is not the last field": changed_entry(crc32="00000000", prompt="11"),
    "a key that is a path": changed_entry(element="../aa"),
    "a key with a newline": changed_entry(element="aa\n"),
    "a truth value for a number": changed_entry(index=True),
    "a negative index": changed_entry(index=-1),
    "text for a score": changed_entry(outcome__score__value="1"),
    "a score that is not a number": changed_entry(outcome__score__value=float("nan")),
    "a score above 1": changed_entry(outcome__score__value=1.01),
    "a negative score": changed_entry(outcome__score__value=-0.01),
    "an unknown kind of failure": changed_entry(outcome__score__failure="bad"),
    "an infinite part": changed_entry(outcome__score__parts={"v": float("inf")}),
    "a part beyond all numbers": checked(
        changed_entry(outcome__score__parts={"v": 1})[:-CHECKSUM_BYTES].replace(b'"v": 1', b'"v": 1e999') + b"}"
    ),
    "a negative count of tokens": changed_entry(outcome__generation__computed_tokens=-1),
    "an unknown end": changed_entry(outcome__generation__finish="tired"),
    "half an excerpt": changed_entry(outcome__excerpt={"question": "why"}),
    "no checksum": b'{"facts": {}}',
    "half a line": encode_line(entry("aa"))[:-40],
}  # fmt: skip


def test_damage_is_named_once_for_each_file_with_its_first_line(tmp_path: Path) -> None:
    line = encode_line(entry("aa"))[:-40]
    file = write_journal(tmp_path, entry("bb"), entry("cc"))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], line + b"\n", line + b"\n", *lines[1:]]))
    journal = read_journal(tmp_path)
    assert journal.damage == [
        f"{file}: 2 of {len(lines) + 2} lines cannot be read, first line 2; "
        "samples without another result are computed again"
    ]
    journal.refresh(thorough=True)
    assert len(journal.damage) == 1


def test_line_ends_of_windows_lose_nothing(tmp_path: Path) -> None:
    file = write_journal(tmp_path, entry("aa"), entry("bb"))
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    journal = read_journal(tmp_path)
    assert load_all(journal) == {"aa": entry("aa"), "bb": entry("bb")}
    assert journal.damage == []


def test_an_entry_that_another_encoder_wrote_is_read() -> None:
    assert decode_line(changed_entry()) == entry("aa")


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_a_damaged_or_unknown_line_is_skipped_and_counted(tmp_path: Path, line: bytes) -> None:
    file = write_journal(tmp_path, entry("bb"))
    file.write_bytes(line + b"\n" + file.read_bytes())
    journal = read_journal(tmp_path)
    assert load_all(journal) == {"bb": entry("bb")}
    assert (unreadable_lines(journal), journal.facts, journal.lost_claims.total()) == (1, [], 0)
