"""The directory of published files: locating them, reading them late, and reporting faulty ones."""

from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.corpora import Corpora, CorpusError, load_corpora
from tests.helpers.published_files import (
    GOLD,
    OTHERS,
    Write,
    at_depths,
    book,
    context,
    open_set,
    own_caches,
    write,
)

__all__ = ["own_caches", "write"]

KEYS = "json_kv/test_k9_dep6.jsonl"


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_sources_names_exactly_the_sets_that_exist(write: Write, tmp_path: Path, ending: str) -> None:
    write(f"infbench/longbook_qa_eng.jsonl{ending}", [book(0)])
    prepared = {"index": 0, "input": "A key: 7.", "outputs": ["7"], "length": 9}
    write(f"data/ruler/niah_single_1/validation_4096.jsonl{ending}", [prepared])
    corpora = load_corpora(tmp_path)
    assert len(corpora.data_set("ruler/niah_single_1/4096")) == 1
    assert corpora.sources["infbench_qa"] == "published"
    assert "nq" not in corpora.sources
    assert corpora.data_set("infbench_qa") is corpora.data_set("infbench_qa")


def test_nothing_is_parsed_before_its_first_use(write: Write, tmp_path: Path) -> None:
    for name in ("kilt/nq-dev-multikilt_1000_k10_dep6.jsonl", "alce/asqa_eval_gtr_top2000.json", KEYS):
        write(name, b"torn {")
    corpora = load_corpora(tmp_path)
    assert corpora.fingerprint
    for name in ("nq", "asqa", "json_kv"):
        with pytest.raises(CorpusError, match=r"^--data-dir: [^\n]*; put the published file in its place[^\n]*$"):
            corpora.data_set(name)


def test_the_fingerprint_changes_with_any_byte_of_a_small_file_and_with_the_size_of_a_large_one(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("longctx.fixtures.corpora.published.layouts.WHOLE_BYTES", 2**12)
    monkeypatch.setattr("longctx.fixtures.corpora.published.layouts.BLOCK_BYTES", 16)
    write(KEYS, "a small file")
    seen = {load_corpora(tmp_path).fingerprint, Corpora().fingerprint}
    write(KEYS, "a other file")
    seen.add(load_corpora(tmp_path).fingerprint)
    path = write("kilt/nq-dev-multikilt_1000_k10_dep6.jsonl", at_depths("Where?", GOLD, OTHERS))
    seen.add(load_corpora(tmp_path).fingerprint)
    content = path.read_bytes()
    assert len(content) > 2**12
    for changed in (content + b"\n", b" " + content[1:], content[:-1] + b" "):
        path.write_bytes(changed)
        seen.add(load_corpora(tmp_path).fingerprint)
    assert len(seen) == 7
    path.write_bytes(content)
    assert load_corpora(tmp_path).fingerprint in seen


NQ = "kilt/nq-dev-multikilt_1000_k9_dep6.jsonl"
ASQA, MSMARCO = "alce/asqa_eval_gtr_top2000.json", "msmarco/test_reranking_data_k9_dep3.jsonl"
KILT_LINE = at_depths("Where?", GOLD, OTHERS)[0]
LAW_CASE = {"id": "c0", "sources": ["Filed."], "summary/long": "Long.", "summary/short": "Short."}


@pytest.mark.parametrize(
    ("name", "file", "data", "fault"),
    [
        ("nq", NQ, b'{"question": "Q", "ctxs": [', "line 1: cut off"),
        ("nq", NQ, b"", "no record"),
        ("nq", NQ, [{"answers": []}], "record 1: Object missing required field `question`"),
        ("nq", NQ, [KILT_LINE | {"ctxs": None}], "record 1: NoneType in place"),
        ("nq", NQ, [KILT_LINE | {"ctxs": [{"id": 1}]}], "record 1: no field 'text'"),
        ("nq", NQ, [KILT_LINE | {"answers": [4]}], "record 1: int in place of text"),
        ("nq", NQ, [KILT_LINE | {"ctxs": OTHERS}], "record 1: no passage is marked as gold"),
        ("popqa", "kilt/popqa_test_1000_k9_dep6.jsonl", [KILT_LINE], "record 1: no field 's_pop'"),
        ("popqa", "kilt/popqa_test_1000_k9_dep6.jsonl", [KILT_LINE | {"s_pop": 9**9}], "all on well known subjects"),
        ("asqa", ASQA, b'[{"question": "Q", "docs": [', "truncated"),
        ("asqa", ASQA, [{"question": "Q", "docs": []}], "record 1: no field 'answers'"),
        ("msmarco", MSMARCO, [{"qid": 1, "query": "q", "ctxs": [context("a", label=7)]}], "a label of 7, not 0"),
        ("json_kv", KEYS, [{"context": "none", "question": "k", "answer": "v"}], "record 1:"),
        ("json_kv", KEYS, [{"context": '{"a": "b"}', "question": "c", "answer": "b"}], "does not have the key"),
        ("ruler/vt/4096", "ruler/vt/validation_4096.jsonl", [{"input": "x"}], "record 1: no field 'answer'"),
        ("multi_lexsum", "multi_lexsum/multi_lexsum_val.jsonl", [LAW_CASE], "the longest of 6 characters"),
        ("infbench_mc", "infbench/longbook_choice_eng.jsonl", [book(1, options=["Tom"])], "record 1:"),
    ],
)  # fmt: skip
def test_a_fault_in_a_file_is_reported_in_one_line(
    name: str, file: str, data: Any, fault: str, write: Write, tmp_path: Path
) -> None:
    path = write(file, data)
    with pytest.raises(CorpusError) as raised:
        open_set(tmp_path, name)[0]
    assert str(raised.value).startswith(f"--data-dir: {path}: expected ")
    assert fault in str(raised.value)
    assert "\n" not in str(raised.value)
