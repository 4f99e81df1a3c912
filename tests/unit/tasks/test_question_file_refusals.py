"""A faulty tasks file or data file is refused in one line with its place."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora.rows import QuestionsError
from tests.helpers.question_files import (
    ROWS,
    load_tasks_file,
    write_rows,
    write_tasks,
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"fields": {"references": "a"}},
            "slot {context}; this row has a, doc, q; name its field in fields (context =",
        ),
        ({"prompt": {"text": "{Full Text} {context}"}}, "unknown slot {Full Text}; this row has a, context, doc, q,"),
        ({"prompt": {"text": "{a} {context}"}}, "prompt: shows 'a', the field of the right answers; leave it out"),
        ({"prompt": {"field": "a"}}, "prompt: shows 'a', the field of the right answers"),
        ({"prompt": {"text": "{context} {shots}"}}, "unknown slot {shots}"),
        ({"prompt": {"text": "{context} {reference}"}}, "unknown slot {reference}"),
        ({"derive": [{"slot": "question", "from": "doc"}]}, "derive: there is a slot 'question' already; choose"),
        (
            {"derive": [{"slot": "q", "from": "doc"}]},
            "rooms.jsonl, line 1: has a field 'q', and the slot {q} is made by",
        ),
        (
            {"derive": [{"slot": "b", "from": "a"}, {"slot": "c", "from": "b"}], "prompt": {"text": "{c} {context}"}},
            "prompt: shows 'c', the field of the right answers",
        ),
        (
            {"derive": [{"slot": "b", "from": "doc", "regex": "x[0-9]"}]},
            "rooms.jsonl, line 1: 'doc' has no match of 'x[0-9]' for the slot 'b'",
        ),
        ({"derive": [{"slot": "y", "from": "q"}] * 2}, "derive: there is a slot 'y' already; choose another name"),
        ({"shots": {"n": 1, "text": "{b}"}, "prompt": {"text": "{shots}"}}, "shots: unknown slot {b} ("),
        (
            {"source": {"file": "rooms.jsonl", "explode": ["q"], "merge_by": "q"}},
            "explode and merge_by cannot be combined; write a row for each question",
        ),
        ({"source": {"file": "rooms.jsonl", "where": {"q": "x"}}}, "no question is selected; see where and explode"),
    ],
)
def test_a_fault_is_one_line_with_file_line_and_key(tmp_path: Path, changes: Mapping[str, Any], said: str) -> None:
    check_refusal(tmp_path, ROWS, changes, said)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*ROWS, {**ROWS[0], "a": float("nan")}], "line 5: 'a' is nan"),
        ([*ROWS, {**ROWS[0], "doc": ""}], "line 5: 'doc' is ''; write text"),
        ([*ROWS, {**ROWS[0], "doc": [" ", ""]}], "line 5: 'doc' is [' ', '']; write text"),
        ([*ROWS, {**ROWS[0], "q": "\n\u200b"}], "line 5: 'q' is '\\n\\u200b'; write text"),
        ([*ROWS, {**ROWS[0], "a": "x | y"}], "line 5: 'a' is 'x | y', perhaps a list; write JSON: a list of texts"),
        ([*ROWS, {**ROWS[0], "a": ["x", None]}], "line 5: 'a' is ['x', None]"),
        ([*ROWS, {**ROWS[0], "a": "[]"}], "line 5: 'a' is '[]'; write an answer"),
        ([*ROWS, {**ROWS[0], "a": "['x' 'y']"}], """'a' is "['x' 'y']", perhaps a list; write JSON: a list of texts"""),
        (
            [*ROWS, {**ROWS[0], "a": "[1, 2]"}],
            "'a' is '[1, 2]', perhaps a list; write JSON: a list of texts, even of one",
        ),
        (
            [*ROWS, {**ROWS[0], "context": "x"}],
            "line 5: has a field 'context', and the slot {context} is made from 'doc'",
        ),
    ],
)
def test_a_faulty_row_is_named(tmp_path: Path, rows: Sequence[Mapping[str, Any]], said: str) -> None:
    check_refusal(tmp_path, rows, {}, said)


OPTIONS = {"context": "doc", "question": "q", "references": "a", "options": "o"}
CHOICE: Mapping[str, Any] = {"fields": OPTIONS, "metric": {"name": "option"}}
LABELS = {
    "fields": {"context": "doc", "question": "q", "references": "a", "labels": "o"},
    "metric": {"name": "label_set"},
}


@pytest.mark.parametrize(
    ("row", "changes", "said"),
    [
        ({"a": ["A", "B"], "o": ["x", "y"]}, CHOICE, "line 5: 'a' names the options A, B; name one right option"),
        ({"a": 2, "o": ["x", "y"]}, CHOICE, "line 5: 'a' is '2'; write the letter or the text of one option"),
        ({"o": ["x", " "]}, CHOICE, "line 5: 'o' is no list of 2 to 26 options, none of them empty"),
        ({"o": ["x", None]}, CHOICE, "line 5: 'o' is no list of 2 to 26 options"),
        ({"o": "x, y"}, CHOICE, "line 5: 'o' is no list of 2 to 26 options"),
        ({"o": {"A": "x"}}, CHOICE, "line 5: 'o' is no list of 2 to 26 options"),
        (
            {"o": ["x", "y"], "options": ["z"]},
            {**CHOICE, "prompt": {"text": "{options[0]} {context}"}},
            "'options', and",
        ),
        (
            {"o": "red"},
            LABELS,
            "'o' is 'red'; write a list of names",
        ),
        (
            {"o": [{"text": "x"}]},
            {"prompt": {"text": "{o}"}},
            "prompt: {o} is a record; name one of its fields: o.text (",
        ),
        (
            {"o": {"text": "x"}},
            {"fields": {"references": "o.text"}, "prompt": {"text": "{o} {doc}"}},
            "prompt: shows 'o', the field of the right answers; leave it out",
        ),
        (
            {"o": {"text": "x"}},
            {"prompt": {"text": "{o}"}},
            "prompt: {o} is a record; name one of its fields: o.text (",
        ),
        ({"o": " "}, {"prompt": {"field": "o"}}, "line 5: 'o' is ' '; write text"),
        (
            {"shots": "x"},
            {"shots": {"n": 1, "text": "x"}, "prompt": {"text": "{shots}"}},
            "'shots', and the slot {shots}",
        ),
        ({"q": "x", "id": 1}, {"source": {"file": "rooms.jsonl", "merge_by": "id"}}, "line 5: has the 'id' of"),
        (
            {"doc": "x", "id": 1},
            {"source": {"file": "rooms.jsonl", "merge_by": "id"}},
            "line 4, but another 'context';",
        ),
    ],
)
def test_a_row_that_would_change_what_is_asked_is_named(
    tmp_path: Path, row: Mapping[str, Any], changes: Mapping[str, Any], said: str
) -> None:
    rows = [{"o": ["red", "green", "blue", "white"], "id": number - 2, **each} for number, each in enumerate(ROWS)]
    check_refusal(tmp_path, [*rows, {**rows[3], **row}], changes, said)


def test_a_field_named_reference_is_no_answer_in_a_solved_example(tmp_path: Path) -> None:
    rows = [{**row, "reference": "Smith 2020"} for row in ROWS]
    shots = {"shots": {"n": 1, "text": "{q} {reference}"}, "prompt": {"text": "{shots} {q}"}}
    check_refusal(tmp_path, rows, shots, "has a field 'reference', and the slot {reference} is made from 'a'")


def check_refusal(folder: Path, rows: Sequence[Mapping[str, Any]], changes: Mapping[str, Any], said: str) -> None:
    write_rows(folder / "rooms.jsonl", rows)
    check_file_refusal(write_tasks(folder, **changes), said)


def check_file_refusal(path: Path, said: str) -> None:
    with pytest.raises(QuestionsError) as caught:
        versions_of(path)
    message = str(caught.value)
    assert message.startswith("--tasks-file: ")
    assert said in message
    assert "\n" not in message


def versions_of(path: Path) -> list[str]:
    return [task.version(512) for task in load_tasks_file(path) if task.version is not None]


ROW = json.dumps(ROWS[0]).encode()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "r.json",
            b'{"data": [\n' + ROW + b"]}",
            "r.json, line 1: cut off, or no JSON object; give one JSON list of objects",
        ),
        (
            "r.json",
            b"[" + ROW + b"]\n[" + ROW + b"]",
            "r.json: JSON is malformed: trailing characters (",
        ),
        ("r.json", b"[" + ROW + b", null]", "r.json, entry 2: no JSON object"),
        ("r.json", b"[" + ROW + b',"x",' + ROW + b"]", "r.json, entry 2: no JSON object"),
        ("r.json", b"[" + ROW + b",[" + ROW + b"]]", "r.json, entry 2: no JSON object"),
        ("r.json", b"[" + ROW + b",]", "r.json: JSON is malformed: trailing comma in array"),
        ("r.json", b"[" + ROW, "r.json: Input data was truncated; give one JSON list"),
        ("r.json", ROW + b"\n\n3\n", "r.json, line 3: cut off, or no JSON object"),
        (
            "r.jsonl",
            ROW.decode().replace("red", "\u00e9").encode("latin-1"),
            "line 1: byte 0xe9 is not UTF-8, perhaps Latin-1",
        ),
        ("r.jsonl", ROW.decode().encode("utf-16-be"), "r.jsonl: is UTF-16 or no text at all, not UTF-8"),
        ("r.jsonl", gzip.compress(ROW, mtime=0), "r.jsonl: is packed with gzip; end its name with .gz"),
        ("r.jsonl", b"PK\x03\x04x", "r.jsonl: is an archive or an Excel file"),
        ("r.jsonl", b"version https://git-lfs.github.com/spec/v1\n", "is a pointer of Git LFS; git lfs pull gets it"),
        ("r.jsonl.gz", ROW, "r.jsonl.gz: Not a gzipped file"),
        ("r.csv", b"doc,q,a\nx,y,z\n\nx,y\n", "r.csv, line 4: 2 cells, but the header has 3; give a header"),
        ("r.csv", b'doc,q,a\n"x\ny",y,z\nx,y,z,\n', "r.csv, line 4: 4 cells, but the header has 3"),
        ("r.csv", b"doc,q,q\nx,y,z\n", "r.csv, line 1: the header has 'q' twice"),
        ("r.csv", b'doc,q,a\nx,y,"z\n', "r.csv, line 2: unexpected end of data"),
        ("r.csv", b"doc,q,a\nx,y,caf\xe9\n", "r.csv, line 2: byte 0xe9 is not UTF-8, perhaps Latin-1; give a header"),
        ("r.csv", b"doc;q;a\nx;y;z\n", "r.csv, line 1: cells stand between ';', not ','"),
        ("r.csv", b"doc,q,a\n", "r.csv: no record; give a header and rows with as many cells"),
        ("r.tsv", b'doc\tq\ta\n"x" y\ty\tz\n', "r.tsv, line 2: ' ' expected after '\"'"),
        ("r.parquet", b"x", "r.parquet: cannot be read (ArrowInvalid: Parquet file size is 1 bytes"),
        ("r.xlsx", b"x", "r.xlsx: unknown format '.xlsx'; save the sheet as CSV in UTF-8"),
        ("r.txt", b"x", "r.txt: unknown format '.txt'; set format to one of jsonl, json, parquet, csv, tsv"),
    ],
)
def test_a_file_of_another_form_is_named_with_its_place(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    check_file_refusal(write_tasks(tmp_path, source={"file": name}), said)


def test_files_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = write_tasks(tmp_path)
    write_rows(tmp_path / "rooms.jsonl", ROWS)
    plain = versions_of(path)
    for file in (path, tmp_path / "rooms.jsonl"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert len(versions_of(path)) == len(plain)
    path.write_bytes(b"# x\n\xff\n" + path.read_bytes())
    with pytest.raises(QuestionsError, match=r"own.toml, line 2: no UTF-8 text; save the file as UTF-8"):
        versions_of(path)
