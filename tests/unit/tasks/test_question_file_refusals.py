"""A faulty tasks file or data file is refused in one line with its place."""

from __future__ import annotations

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
from tests.helpers.runs import usage_error


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nam": "x"}, "own.toml, line 10, dataset 'rooms', nam: unknown key 'nam'; did you mean 'name'?"),
        ({"version": None}, "own.toml, line 1, dataset 'rooms': the key 'version' is missing"),
        ({"source": {"fil": "x"}}, "line 5, dataset 'rooms', source: unknown key 'fil'; did you mean 'file'?"),
        ({"budget": 0}, "line 8, dataset 'rooms', budget: Expected 'int' >= 1"),
        ({"name": "Rooms!"}, "line 2, dataset 'Rooms!', name: Expected 'str' matching regex"),
        ({"metric": {"name": "bleu"}}, "line 9, dataset 'rooms', metric: unknown metric 'bleu'; known are exact_match"),
        ({"metric": {"name": "option"}}, "metric: 'option' is for multiple choice; name the field of the options"),
        ({"prompt": None}, "line 1, dataset 'rooms', prompt: give either a prompt or turns"),
        ({"prompt": {"text": "{contxt}"}}, "line 7, dataset 'rooms', prompt: unknown slot {contxt}; this row has a,"),
        ({"prompt": {"text": "{q"}}, "prompt: a single '{'; write {{ for a brace of the text"),
        ({"source": {"file": "none.jsonl"}}, "line 5, dataset 'rooms', source: file: no such file"),
        ({"source": {"file": "rooms.jsonl", "rows": 9}}, "source: rows is 9, but"),
        ({"source": {"file": "rooms.jsonl", "sha256": "00"}}, "source: sha256 is 00, but"),
        ({"length": {"rule": "cut"}}, "length.rule: Invalid enum value 'cut'"),
        ({"fields": {"references": "a"}, "length": {"rule": "head"}}, "rule 'head' needs the context"),
        (
            {"category": "skip"},
            "line 4, dataset 'rooms', category: 'skip' is a marker of pytest itself; choose another",
        ),
        ({"lengths": ["8q"]}, "lengths: unknown '8q'; write 8k, 8192 or 1m"),
        ({"answer": {"regex": "("}}, "answer: no regular expression"),
        ({"derive": [{"slot": "y", "from": "doc", "drop": [-1, 3]}]}, "derive[0].drop[0]: Expected 'int' >= 0"),
        ({"shots": {"n": 4, "text": "{q}"}}, "shots: n is 4, but there are only 4 questions"),
        ({"fields": {"references": "b"}}, "rooms.jsonl, line 1: no field 'b'; the row has 'doc', 'q', 'a' (dataset"),
    ],
)
def test_a_fault_is_one_line_with_file_line_and_key(tmp_path: Path, changes: Mapping[str, Any], said: str) -> None:
    check_refusal(tmp_path, ROWS, changes, said)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*ROWS, {**ROWS[0], "a": None}], "rooms.jsonl, line 5: 'a' is None; write an answer, or a list of accepted"),
        ([*ROWS, {**ROWS[0], "a": []}], "line 5: 'a' is []"),
        ([*ROWS, {**ROWS[0], "a": float("nan")}], "line 5: 'a' is nan"),
        ([*ROWS, {**ROWS[0], "doc": None}], "line 5: 'doc' is None; write text"),
        ([{**ROWS[0], "q": {"text": "x"}}], "line 1: 'q' is {'text': 'x'}; write text"),
        ([*ROWS, {"doc": "x", "q": "y"}], "line 5: no field 'a'; the row has 'doc', 'q'"),
        ([], "rooms.jsonl: no record; give one JSON object per line"),
    ],
)
def test_a_faulty_row_is_named(tmp_path: Path, rows: Sequence[Mapping[str, Any]], said: str) -> None:
    check_refusal(tmp_path, rows, {}, said)


def check_refusal(folder: Path, rows: Sequence[Mapping[str, Any]], changes: Mapping[str, Any], said: str) -> None:
    write_rows(folder / "rooms.jsonl", rows)
    path = write_tasks(folder, **changes)
    with pytest.raises(QuestionsError) as caught:
        versions_of(path)
    message = str(caught.value)
    assert message.startswith("--tasks: ")
    assert said in message
    assert "\n" not in message


def versions_of(path: Path) -> list[str]:
    return [task.version(512) for task in load_tasks_file(path) if task.version is not None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"doc": "x"\n', "rooms.jsonl, line 1: cut off, or no JSON object; give one JSON object per line"),
        (b'\n\n{"doc": "x"\n', "rooms.jsonl, line 3: cut off, or no JSON object"),
        (
            '{"doc": "x"}\n'.encode("utf-16"),
            "line 1: cut off, or no JSON object; give one JSON object per line, in UTF-8",
        ),
        (b'{"doc": }\n', "rooms.jsonl, line 1: Expecting value"),
        (b"\n\n" + json.dumps(ROWS[0]).encode() + b"\n{]}\n", "rooms.jsonl, line 4: "),
    ],
)
def test_text_that_is_no_json_is_named_with_its_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "rooms.jsonl").write_bytes(content)
    with pytest.raises(QuestionsError) as caught:
        load_tasks_file(write_tasks(tmp_path))
    assert said in str(caught.value)


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


def test_an_option_value_that_fits_no_file_is_refused_before_a_model_is_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "rooms.jsonl", ROWS)
    own = write_tasks(tmp_path, name="vt")
    assert "dataset 'vt', name: this project has a task of that name" in usage_error("--model=m", f"--tasks={own}")
    own = write_tasks(tmp_path)
    assert "--tasks: --suite ruler leaves out its tasks" in usage_error("--model=calibration:512", f"--tasks={own}")
    wrong = ("--model=calibration:512", f"--tasks={own}", "--suite=other")
    assert usage_error(*wrong).startswith("--suite: unknown 'other'; use one of ruler, helmet")
    assert "none.toml: no such file; give a TOML file" in usage_error("--model=m", "--tasks=none.toml")
    missing = "its files are under --data-dir; longctx fetch longbench2 --to DIR gets it"
    assert missing in usage_error("--model=calibration:512", "--tasks=longbench2", "--suite=tasks")
    own.write_text("dataset = ['x']")
    assert "own.toml, line 1, dataset '?': expected a table, got 'str'" in usage_error("--model=m", f"--tasks={own}")
    write_tasks(tmp_path)
    own.write_text(own.read_text().replace('"rooms.jsonl"', '"rooms.jsonl'))
    assert "own.toml is not TOML: " in usage_error("--model=m", f"--tasks={own}")
