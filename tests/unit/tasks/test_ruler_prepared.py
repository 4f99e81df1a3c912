"""RULER's own prepared samples are used exactly as in their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longctx.fixtures.corpora import Corpora, load_corpora
from longctx.fixtures.preflight import sample_problems
from longctx.fixtures.tasks import TASKS
from tests.helpers.tiny_tokenizers import formatter

LENGTH = 1024
NEEDLE = "One of the special magic numbers for calm-river is: 4812207."
TEXT = f"A special magic number is hidden.\n{NEEDLE}\nWhat is it?"
PREFIX = " The special magic number for calm-river is"


def corpora_of(folder: Path, task: str, record: dict[str, object]) -> Corpora:
    file = folder / "ruler" / task / f"validation_{LENGTH}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"index": 0, "outputs": ["4812207"], "length": 99} | record) + "\n", encoding="utf-8")
    return load_corpora(folder)


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"input": TEXT + PREFIX}, TEXT + PREFIX + " "),
        ({"input": TEXT, "answer_prefix": PREFIX}, TEXT + PREFIX),
        ({"input": TEXT + PREFIX, "answer_prefix": PREFIX}, TEXT + PREFIX),
    ],
    ids=["one text", "prefix apart", "prefix in both"],
)
def test_a_prepared_sample_is_used_byte_for_byte(tmp_path: Path, record: dict[str, object], prompt: str) -> None:
    corpora, task = corpora_of(tmp_path, "niah_single_2", record), TASKS["niah_single_2"]
    sample = task.sample(LENGTH, 0, seed=0, tokenizer=formatter(), corpora=corpora)
    assert sample.prompt.text == prompt
    assert sample.source == task.source(corpora, LENGTH) == "published"
    assert sample_problems(sample, task, formatter()) == []
    assert task.score(sample, " 4812207").value == 1
    assert task.question_count is not None
    assert task.question_count(corpora, LENGTH) == 1


def test_other_lengths_and_tasks_are_drawn(tmp_path: Path) -> None:
    corpora = corpora_of(tmp_path, "niah_single_2", {"input": TEXT})
    other = TASKS["niah_single_2"].sample(2048, 0, seed=0, tokenizer=formatter(), corpora=corpora)
    assert other.source == "archive"
    assert NEEDLE not in other.prompt.text
