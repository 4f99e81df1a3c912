"""A line is read only if its checksum, its fields, their types and their ranges are right."""

from __future__ import annotations

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

from plugins.journal.lines import Entry, Facts, Failure, Line, LostClaim, decode_head, decode_line, encode_line
from tests.helpers.journals import entry, load_all, read_journal, write_journal

CHANGES = 4000
# As version 0.1 wrote them, without a checksum.
OLD_LINES = {
    b'{"element":"69a52f06f19f825e","prompt":"fc42be68c42a144ccc8792214b317a33","case":"test_cite[qampari-2k]",'
    b'"index":0,"outcome":{"index":0,"score":{"value":0.0,"parts":{"correct":0.0},"failure":"wrong"},"generation":'
    b'{"text":" First \\u00e9 \\ud800","prompt_tokens":1646,"generated_tokens":56,"computed_tokens":1701,'
    b'"reused_tokens":0,"finish":"stop","seconds":3.246130626999957},"references":["First Expedition"],'
    b'"depths":[0.16666666666666666],"excerpt":null}}\n': Entry,
    b'{"facts":{"engine":"hf","batch_size":1}}\n': Facts,
    b'{"failed":"test_ruler[vt-4k]","reason":"out of memory","run":"run"}\n': Failure,
    b'{"lost":"69a52f06f19f825e","run":"run"}\n': LostClaim,
}
LINES: list[Line] = [
    entry("aa", "an é answer \ud800"),
    Facts(facts={"engine": "hf", "batch_size": 1}),
    Failure(case="test_ruler[vt-4k]", reason="out of memory", run="run"),
    LostClaim(key="aa", run="run"),
]


def changed_entry(**changes: Any) -> bytes:
    """Return a line without a checksum, after changes of fields by their path, such as outcome__index."""
    data = json.loads(encode_line(entry("aa")))
    del data["crc32"]
    for path, value in changes.items():
        place, names = data, path.split("__")
        for name in names[:-1]:
            place = place[name]
        place[names[-1]] = value
    return json.dumps(data).encode()


@given(st.text(), st.text(), st.floats(0, 1), st.dictionaries(st.text(), st.floats(0, 1)))
def test_any_entry_is_decoded_as_it_was_encoded(text: str, case: str, value: float, parts: dict[str, float]) -> None:
    plain = entry("aa", text, case=case)
    score = replace(plain.outcome.score, value=value, parts=parts, failure=None)
    full = replace(plain, outcome=replace(plain.outcome, score=score))
    assert decode_line(encode_line(full)) == full
    tokens = full.outcome.generation.computed_tokens
    assert decode_head(encode_line(full)) in (None, (full.key, full.prompt, case, value, tokens))


@pytest.mark.parametrize("line", LINES)
def test_the_last_field_is_the_checksum_of_all_bytes_before_it(line: Line) -> None:
    data = encode_line(line)
    match = re.fullmatch(rb'(.*),"crc32":"([0-9a-f]{8})"\}\n', data)
    assert match is not None
    assert int(match[2], 16) == zlib.crc32(match[1])
    assert list(json.loads(data))[-1] == "crc32"


FIELD = ',"computed_tokens":7,'


@pytest.mark.parametrize("tokens", [None, 0, 4009])
@pytest.mark.parametrize("text", ["an answer", FIELD, f'"{FIELD}', f'\\"{FIELD}"{FIELD}', '"value":1}', "é\ud800\n"])
def test_the_head_of_an_entry_is_that_of_the_whole_line_whatever_its_texts_are(text: str, tokens: int | None) -> None:
    made = entry("aa-_9", text, prompt="f0")
    outcome = made.outcome
    line = replace(
        made,
        outcome=replace(
            outcome,
            score=replace(outcome.score, value=0.25, parts={text: 0.5, "computed_tokens": 1.0, "generation": 0.0}),
            generation=replace(outcome.generation, computed_tokens=tokens),
            references=(text, "computed_tokens", FIELD),
        ),
    )
    assert decode_line(encode_line(line)) == line
    assert decode_head(encode_line(line)) == (line.key, line.prompt, line.case, 0.25, tokens)


def test_only_an_entry_with_a_checksum_has_a_head() -> None:
    assert [decode_head(encode_line(line)) is not None for line in LINES] == [isinstance(line, Entry) for line in LINES]
    assert decode_head(changed_entry()) is None


@pytest.mark.parametrize(("data", "kind"), OLD_LINES.items(), ids=[kind.__name__ for kind in OLD_LINES.values()])
def test_lines_without_a_checksum_are_read(data: bytes, kind: type[Line]) -> None:
    line = decode_line(data)
    assert isinstance(line, kind)
    content = json.loads(encode_line(line))
    del content["crc32"]
    assert content == json.loads(data)


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
        assert all(decode_head(part) in (None, decode_head(encode_line(line))) for part in parts)


REFUSED = {
    "zero bytes": b"\0" * 300,
    "deep nesting": b"[" * 100_000,
    "deep nesting in facts": b'{"facts": {"a": ' + b"[" * 100_000,
    "a long number": b"1" * 5000,
    "null": b"null",
    "a string": b'"element"',
    "a list": b"[]",
    "facts that are no object": b'{"facts": 3}',
    "facts that are not a number": b'{"facts": {"a": NaN}}',
    "a lost claim without a run": b'{"lost": "aa"}',
    "a failure of a number": b'{"failed": 1, "reason": "r", "run": "run"}',
    "no ASCII": b"\xff\xfe{}",
    "an unknown field": changed_entry(extra=1),
    "an unknown field within": changed_entry(outcome__score__extra=1),
    "a checksum that is not the last field": changed_entry(crc32="00000000", prompt="11"),
    "a key that is a path": changed_entry(element="../aa"),
    "a key with a newline": changed_entry(element="aa\n"),
    "a truth value for a number": changed_entry(index=True),
    "a negative index": changed_entry(index=-1),
    "no outcome": changed_entry(outcome=None),
    "no score": changed_entry(outcome__score=None),
    "text for a score": changed_entry(outcome__score__value="1"),
    "a score that is not a number": changed_entry(outcome__score__value=float("nan")),
    "a score above 1": changed_entry(outcome__score__value=1.01),
    "a negative score": changed_entry(outcome__score__value=-0.01),
    "an unknown kind of failure": changed_entry(outcome__score__failure="bad"),
    "parts in a list": changed_entry(outcome__score__parts=[1]),
    "an infinite part": changed_entry(outcome__score__parts={"v": float("inf")}),
    "a part beyond all numbers": changed_entry(outcome__score__parts={"v": 1}).replace(b'"v": 1', b'"v": 1e999'),
    "text for a depth": changed_entry(outcome__depths=["0"]),
    "a number for references": changed_entry(outcome__references=3),
    "no answer": changed_entry(outcome__generation__text=None),
    "a negative count of tokens": changed_entry(outcome__generation__computed_tokens=-1),
    "an unknown end": changed_entry(outcome__generation__finish="tired"),
    "half an excerpt": changed_entry(outcome__excerpt={"question": "why"}),
    "half a line": encode_line(entry("aa"))[:-40],
}  # fmt: skip


def test_an_unchanged_entry_without_a_checksum_is_read() -> None:
    assert decode_line(changed_entry()) == entry("aa")


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED)
def test_a_damaged_or_unknown_line_is_skipped_and_counted(tmp_path: Path, line: bytes) -> None:
    file = write_journal(tmp_path, entry("bb"))
    file.write_bytes(line + b"\n" + file.read_bytes())
    journal = read_journal(tmp_path)
    assert load_all(journal) == {"bb": entry("bb")}
    assert (journal.unreadable_lines, journal.facts, journal.lost_claims.total()) == (1, [], 0)
