"""The records of HELMET's other published files, in small files of the same layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from longctx.fixtures.corpora import load_corpora
from tests.helpers.published_files import (
    Write,
    book,
    ids,
    open_set,
    own_caches,
    write,
)

__all__ = ["own_caches", "write"]


# --- rerank ---


def test_the_lines_of_a_query_are_one_entry(write: Write, tmp_path: Path) -> None:
    contexts = [{"id": f"{n}", "text": f"Text {n}.", "label": n % 4} for n in range(8)]
    lines = [
        {"qid": qid, "query": f"query {qid}", "ctxs": turned} for qid in (7, 9) for turned in (contexts, contexts[::-1])
    ]
    write("msmarco/test_reranking_data_k8_dep3.jsonl", lines)
    write("msmarco/test_reranking_data_k10_dep3.jsonl", lines[:2])
    data = open_set(tmp_path, "msmarco_demos")
    assert len(data) == 1
    (tmp_path / "msmarco/test_reranking_data_k10_dep3.jsonl").unlink()
    data = open_set(tmp_path, "msmarco")
    assert [data[n].id for n in range(len(data))] == ["7", "9"]
    assert (ids(data[0].passages)[:2], data[0].labels[:5]) == (["0", "1"], (0, 1, 2, 3, 0))


# --- recall ---


def test_pairs_stay_in_order(write: Write, tmp_path: Path) -> None:
    context = 'JSON data:\n{"k2": "v2", "k0": "v0", "k1": "v1"}'
    row = {"context": context, "question": "k0", "answer": "v0", "demos": [], "num_kvs": 3, "depth": 0.5}
    write("json_kv/test_k3_dep6.jsonl", [row, row | {"question": "k2", "answer": ["v2"]}])
    data = open_set(tmp_path, "json_kv")
    assert data[0].pairs == (("k2", "v2"), ("k0", "v0"), ("k1", "v1"))
    assert [(data[n].key, data[n].value) for n in range(len(data))] == [("k0", "v0"), ("k2", "v2")]


def test_prepared_samples_are_not_changed(write: Write, tmp_path: Path) -> None:
    write("ruler/vt/validation_4096.jsonl", [{"index": 5, "input": " Track.\n", "outputs": ["A", "B"], "length": 9}])
    helmet = {"context": "A key.", "query": "key", "type_needle_v": "numbers", "answer": ["7", "8"]}
    write("data/ruler/niah_multivalue/validation_131072.jsonl", [helmet])
    corpora = load_corpora(tmp_path)
    assert set(corpora.published) == {"ruler/vt/4096", "ruler/niah_multivalue/131072"}
    data: Any = corpora.published_set("ruler/vt/4096")
    assert (data[0].id, data[0].text, data[0].references) == ("5", " Track.\n", ("A", "B"))
    data = corpora.published_set("ruler/niah_multivalue/131072")
    assert (data[0].context, data[0].query, data[0].needle_type) == ("A key.", "key", "numbers")
    assert corpora.published_set("ruler/vt/8192") is None


# --- long documents ---


def test_books_with_questions_options_and_key_points(write: Write, tmp_path: Path) -> None:
    folder = "xinrongzhang2022/InfiniteBench"
    write(f"{folder}/longbook_qa_eng.jsonl", [book(0)])
    write(f"{folder}/longbook_choice_eng.jsonl", [book(1, options=["Tom", "Ida", "Una", "Per"])])
    write(f"{folder}/longbook_sum_eng.jsonl", [book(2, answer=["A summary."]), book(3)])
    write("infbench/longbook_sum_eng_keypoints.jsonl", [{"id": 2, "keypoints": ["One.", "Two."]}])
    question = open_set(tmp_path, "infbench_qa")[0]
    assert (question.id, question.document, question.question, question.answers, question.options) == (
        "0",
        "Book 0.",
        "Who?",
        ("Ida",),
        (),
    )
    assert open_set(tmp_path, "infbench_mc")[0].answers == ("B", "Ida")
    cases = open_set(tmp_path, "infbench_sum")
    assert (cases[0].summary, cases[0].key_points, cases[1].key_points) == ("A summary.", ("One.", "Two."), ())


def test_law_cases_that_are_short_or_without_a_short_summary_are_left_out(write: Write, tmp_path: Path) -> None:
    """65 536 tokens of Llama 2, at 3.4 characters each, are 222 822.4 characters."""
    heard = {"c0": "x" * 222_815, "c3": "x" * 222_814}
    rows = [
        {"id": f"c{n}", "sources": ["Filed.", heard.get(f"c{n}", "x" * 230_000)]}
        | {"summary/long": "Long.", "summary/short": short, "summary/short_keypoints": ["A point."]}
        for n, short in enumerate(["Short.", None, "Too.", "Just below."])
    ]
    write("multi_lexsum/multi_lexsum_val.jsonl", rows)
    data = open_set(tmp_path, "multi_lexsum")
    assert (len(data), data.left_out, data[1].id) == (2, 2, "c2")
    assert (len(data[0].document), data[0].summary, data[0].full_summary) == (222_823, "Short.", "Long.")
    assert data[0].key_points == ("A point.",)
