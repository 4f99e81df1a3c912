"""Small data sets in the published layouts of HELMET's data sets."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora import load_corpora

Write = Callable[..., Path]
Record = dict[str, Any]


@pytest.fixture(autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the cache of `datasets` at an empty directory."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes JSON, JSON lines or text, compressed for `.gz`, or bytes as they are."""

    def put(name: str, data: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = name.removesuffix(".gz")
        if isinstance(data, bytes):
            content = data
        elif plain.endswith(".jsonl"):
            content = "".join(json.dumps(record) + "\n" for record in data).encode()
        else:
            content = data.encode() if isinstance(data, str) else json.dumps(data).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") and not isinstance(data, bytes) else content)
        return path

    return put


def context(name: str, text: str = "", **more: Any) -> Record:
    return {"id": name, "title": f"Title {name}", "text": text or f"Nothing of note in {name}."} | more


def at_depths(
    question: str, gold: Record, others: Sequence[Record], answers: Sequence[str] = ("Brassmere",), **more: Any
) -> list[Record]:
    """Return six lines of one question with the gold passage at six ranks, as in HELMET's dep6 files."""
    lines = []
    for depth in range(6):
        place = round(depth * len(others) / 5)
        contexts = [*others[:place], gold, *others[place:]]
        lines.append({"question": question, "answers": [*answers], "ctxs": contexts, "depth": depth / 5} | more)
    return lines


GOLD = context("g", "The mill stands in Brassmere.")
OTHERS = [context(f"p{n}") for n in range(9)]


def open_set(folder: Path, name: str) -> Any:
    corpora = load_corpora(folder)
    assert name in corpora.published
    return corpora.data_set(name)


def ids(passages: Sequence[Any]) -> list[str]:
    return [passage.id for passage in passages]


def book(name: int, **more: Any) -> Record:
    return {"id": name, "context": f"Book {name}.", "input": "Who?", "answer": ["Ida"], "options": []} | more


def squad(paragraphs: Mapping[str, tuple[str, Sequence[str]]]) -> Record:
    """SQuAD's public schema: paragraph -> its question and the answers."""
    return {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": context,
                        "qas": [{"id": context, "question": question, "answers": [{"text": text} for text in answers]}],
                    }
                    for context, (question, answers) in paragraphs.items()
                ]
            }
        ]
    }
