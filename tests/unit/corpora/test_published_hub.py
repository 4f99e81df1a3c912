"""Tables of hub data sets are read from the data directory, and never from a network."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora import CorpusError, load_corpora
from longctx.fixtures.corpora.published.layouts import hub_layout
from tests.helpers.paths import REPOSITORY

TREC: dict[str, dict[str, list[Any]]] = {
    "train": {"text": ["Where ?", "When ?", "Who ?"], "coarse_label": [1, 0, 1], "fine_label": [0, 1, 2]},
    "test": {"text": ["How ?"], "coarse_label": [0], "fine_label": [2]},
}


STORIES = ["Ida built a mill.".ljust(445_645), "Tom fished.".ljust(445_645), "Eva slept.".ljust(445_644)]
STORY: dict[str, list[Any]] = {
    "document": [{"id": f"d{number}", "text": story} for number, story in enumerate(STORIES)],
    "question": [{"text": "Who built it?"}, {"text": "Who fished?"}, {"text": "Who slept?"}],
    "answers": [[{"text": "Ida"}, {"text": "Ida "}], [{"text": "Tom"}], [{"text": "Eva"}]],
}


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for the cache of `datasets` and the data directory, and refuse every connection."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "arrow"))

    def refuse(*_: object) -> None:
        raise AssertionError("a run used the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    # A data directory must hold at least one known file of its own.
    essays = tmp_path / "data" / "essays" / "PaulGrahamEssays.json"
    essays.parent.mkdir(parents=True)
    essays.write_text('{"text": "A sentence."}')
    return tmp_path


def parquet(path: Path, columns: dict[str, list[Any]], **classes: list[str]) -> Path:
    import datasets

    rows = datasets.Dataset.from_dict(columns)
    for name, labels in classes.items():
        rows = rows.cast_column(name, datasets.ClassLabel(names=labels))
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(path)
    return path


def put_trec(folder: Path) -> None:
    for split, columns in TREC.items():
        parquet(
            folder / f"default/{split}/0000.parquet",
            columns,
            coarse_label=["ABBR", "ENTY"],
            fine_label=["ABBR:abb", "ENTY:cremat", "ENTY:sport"],
        )


def test_the_test_part_of_clinc150_is_its_validation_split(caches: Path) -> None:
    folder = caches / "data/clinc/clinc_oos"
    for config, prefix in (("plus", ""), ("small", "other ")):
        for split, texts in (("train", ["a", "b"]), ("validation", ["c", "d"]), ("test", ["e", "f"])):
            columns: dict[str, list[Any]] = {"text": [prefix + text for text in texts], "intent": [0, 1]}
            parquet(folder / f"{config}/{split}-00000-of-00001.parquet", columns, intent=["greet", "oos"])
    labelled: Any = load_corpora(caches / "data").data_set("clinc150")
    parts = [[(one.text, labelled.labels[one.label]) for one in part] for part in (labelled.train, labelled.test)]
    assert parts == [[("a", "greet"), ("b", "oos")], [("c", "greet"), ("d", "oos")]]


def test_a_table_of_other_columns_is_refused(caches: Path) -> None:
    for split in ("train", "test"):
        parquet(caches / f"data/PolyAI/banking77/{split}.parquet", {"text": ["How?"], "category": ["pin"]})
    with pytest.raises(CorpusError, match="expected a table with text and label; found: no field 'label'"):
        load_corpora(caches / "data").data_set("banking77")


def test_nlu_is_split_like_helmet_does(caches: Path) -> None:
    import datasets

    columns: dict[str, list[Any]] = {
        "text": [f"text {n}" for n in range(50)],
        "scenario": ["alarm"] * 50,
        "label": [n % 2 for n in range(50)],
    }
    parquet(caches / "data/xingkunliuxtracta/nlu_evaluation_data/default/train/0000.parquet", columns, label=["a", "b"])
    labelled: Any = load_corpora(caches / "data").data_set("nlu")
    expected = datasets.Dataset.from_dict(columns).train_test_split(test_size=0.1, seed=42)["test"]["text"]
    assert [one.text for one in labelled.test] == list(expected)
    assert len(labelled.train) == 45


def test_stories_are_read_by_row_and_demonstrations_without_them(caches: Path) -> None:
    folder = caches / "data/deepmind/narrativeqa/data"
    for split in ("test", "train"):
        for part in range(3):
            columns = {name: values[part : part + 1] for name, values in STORY.items()}
            parquet(folder / f"{split}-0000{part}-of-00003.parquet", columns)
    corpora = load_corpora(caches / "data")
    stories: Any = corpora.data_set("narrativeqa")
    assert [(stories[n].document, stories[n].question, stories[n].answers) for n in range(len(stories))] == [
        (STORIES[0], "Who built it?", ("Ida",)),
        (STORIES[1], "Who fished?", ("Tom",)),
    ]
    demos: Any = corpora.data_set("narrativeqa_demos")
    assert [(demos[n].document, demos[n].answers) for n in range(len(demos))] == [
        ("", (name,)) for name in ("Ida", "Tom", "Eva")
    ]
    assert len({stories[0].id, stories[1].id}) == 2


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["data/test-00000-of-00002.parquet", "data/test-00001-of-00002.parquet", "data/train-0.parquet"], [0, 1]),
        (["default/test/0000.parquet", "default/test/0001.parquet", "default/train/0000.parquet"], [0, 1]),
        (["test/test-00000-of-00002.parquet", "test/test-00001-of-00002.parquet"], [0, 1]),
        (["test.parquet", "train.parquet"], [0]),
        (["t-test.arrow", "latest.parquet", "test.json"], []),
    ],
)
def test_the_files_of_a_split(files: list[str], chosen: list[int], caches: Path) -> None:
    for name in files:
        (caches / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (caches / "set" / name).touch()
    (part,) = hub_layout(list, "set", "test").parts
    assert part.find(caches) == (tuple(caches / "set" / files[number] for number in chosen) or None)


def test_a_damaged_table_is_reported_in_one_line(caches: Path) -> None:
    put_trec(caches / "data/CogComp/trec")
    path = caches / "data/CogComp/trec/default/test/0000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorpusError, match=r"^--data-dir: .*0000\.parquet: expected a table"):
        load_corpora(caches / "data").data_set("trec_coarse")


def test_tables_are_read_without_a_network_and_only_when_they_are_used(caches: Path) -> None:
    put_trec(caches / "data/CogComp/trec")
    script = "import sys; from longctx.fixtures.corpora import load_corpora; c = load_corpora(sys.argv[1]); "
    script += "assert 'datasets' not in sys.modules; print(len(c.data_set('trec_coarse').train))"
    ended = subprocess.run(
        [sys.executable, "-c", script, str(caches / "data")],
        cwd=REPOSITORY,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.stdout.strip() == "3", ended.stderr
