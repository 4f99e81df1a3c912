"""The records of HELMET's other published files, in small files of the same layout."""

from pathlib import Path

from tests.helpers.published_files import (
    Write,
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


# --- long documents ---


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
    assert [data[index].id for index in range(len(data))] == ["c0", "c2"]
    assert (len(data[0].document), data[0].summary, data[0].full_summary) == (222_823, "Short.", "Long.")
    assert data[0].key_points == ("A point.",)
