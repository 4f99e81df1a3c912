"""HELMET's published files: what becomes of their records, in small files of the same layout."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.corpora import Corpora, CorpusError, load_corpora
from fixtures.corpora.published import items
from fixtures.corpora.published.items import open_array, open_lines
from fixtures.corpora.shapes import PassageQuestion, Scheme

Write = Callable[..., Path]
Record = dict[str, Any]


@pytest.fixture(autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has in its caches is not found, and nothing is left there."""
    for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Puts JSON, JSON lines or raw text under a data directory; a name in .gz is compressed."""

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
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return put


def context(name: str, text: str = "", **more: Any) -> Record:
    return {"id": name, "title": f"Title {name}", "text": text or f"Nothing of note in {name}."} | more


def at_depths(
    question: str, gold: Record, others: Sequence[Record], answers: Sequence[str] = ("Brassmere",), **more: Any
) -> list[Record]:
    """Six lines of one question, the gold passage at six ranks, as HELMET's dep6 files have them."""
    lines = []
    for depth in range(6):
        place = round(depth * len(others) / 5)
        contexts = [*others[:place], gold, *others[place:]]
        lines.append({"question": question, "answers": [*answers], "ctxs": contexts, "depth": depth / 5} | more)
    return lines


GOLD = context("g", "The mill stands in Brassmere.")
OTHERS = [context(f"p{n}") for n in range(9)]


def open_set(folder: Path, name: str) -> Any:
    found = load_corpora(folder).collection(name)
    assert found is not None, name
    return found


def ids(passages: Sequence[Any]) -> list[str]:
    return [passage.id for passage in passages]


# --- rag ---


def test_the_six_lines_of_a_question_are_one_entry_with_its_gold_passage(write: Write, tmp_path: Path) -> None:
    first = at_depths("Where is the mill?", GOLD, OTHERS)
    second = at_depths("Where is the well?", context("w", "The well is in Aln."), OTHERS[::-1], ["Aln"])
    # The lines of two questions need not stand together.
    write(
        "kilt/nq-dev-multikilt_1000_k10_dep6.jsonl", [line for pair in zip(first, second, strict=True) for line in pair]
    )
    found = open_set(tmp_path, "nq")
    assert (len(found), found.source, found.left_out) == (2, "published", 0)
    assert isinstance(found[0], PassageQuestion)
    assert (found[0].question, found[0].answers) == ("Where is the mill?", (("Brassmere",),))
    assert [ids(found[n].gold) for n in range(2)] == [["g"], ["w"]]
    assert ids(found[0].others) == ids(found[1].others)[::-1] == [f"p{n}" for n in range(9)]
    with pytest.raises(IndexError):
        found[2]
    with pytest.raises(IndexError):
        found[-1]


@given(places=st.lists(st.integers(0, 9), min_size=2, max_size=6, unique=True), order=st.permutations(range(9)))
def test_the_gold_passage_is_the_one_that_moves(places: list[int], order: list[int]) -> None:
    from fixtures.corpora.published.passages import _moved

    others = [("", f"p{n}") for n in order]
    first, last = ([*others[:at], ("", "gold"), *others[at:]] for at in (places[0], places[-1]))
    found = _moved(first, last)
    # Neighbours that change places do not tell which of them moved.
    assert found == [("", "gold")] or (abs(places[0] - places[-1]) == 1 and len(found) == 1)


def test_no_other_passage_states_an_answer(write: Write, tmp_path: Path) -> None:
    others = [
        context("flagged", "It is there.", has_answer=True),
        context("stated", "BRASSMERE has a mill."),
        context("part", "The Brassmeres moved away."),
        *OTHERS,
    ]
    write("kilt/nq-dev-multikilt_1000_k10_dep6.jsonl", at_depths("Where?", GOLD, others))
    assert ids(open_set(tmp_path, "nq")[0].others)[:2] == ["part", "p0"]


@pytest.mark.parametrize(
    "line",
    [
        {"positive_ctxs": [{"id": "a", "title": "", "text": "x"}, {"id": "b", "title": "", "text": "y"}]},
        {"positive_ctxs": [{"text": "Ida built the mill."}, {"text": "Ida was born in Aln."}, {"text": "not here"}]},
    ],
)
def test_listed_gold_passages_are_taken_all(line: Record, write: Write, tmp_path: Path) -> None:
    contexts = [context("a", "Ida built the mill."), *OTHERS, context("b", "Ida was born in Aln.")]
    lines = [
        {"id": "h1", "question": "Where was its builder born?", "answers": ["Aln"], "ctxs": turned} | line
        for turned in (contexts[3:] + contexts[:3], contexts[::-1], contexts)
    ]
    write("kilt/hotpotqa-dev-multikilt_1000_k11_dep3.jsonl", lines)
    found = open_set(tmp_path, "hotpotqa")
    assert len(found) == 1
    assert (found[0].id, sorted(ids(found[0].gold))) == ("h1", ["a", "b"])
    assert len(found[0].others) == 9


def test_scores_give_back_the_order_of_retrieval(write: Write, tmp_path: Path) -> None:
    contexts = [context(f"p{n}", score=float(n)) for n in (3, 1, 4, 2)] + [GOLD | {"score": 9.0, "has_answer": True}]
    write(
        "kilt/hotpotqa-dev-multikilt_1000_k5_dep3.jsonl",
        [{"question": "Q", "answers": ["Brassmere"], "ctxs": contexts}],
    )
    assert ids(open_set(tmp_path, "hotpotqa")[0].others) == ["p4", "p3", "p2", "p1"]


def test_the_file_with_most_passages_is_taken(write: Write, tmp_path: Path) -> None:
    for passages in (5, 9, 3):
        name = f"kilt/triviaqa-dev-multikilt_1000_k{passages + 1}_dep6.jsonl"
        write(name, at_depths("Where?", GOLD, OTHERS[:passages]))
    write("kilt/triviaqa-train-multikilt_1000_k3_dep6.jsonl", at_depths("When?", GOLD, OTHERS[:2]))
    assert len(open_set(tmp_path, "triviaqa")[0].others) == 9
    assert open_set(tmp_path, "triviaqa_demos")[0].question == "When?"
    assert len(open_set(tmp_path, "triviaqa_demos")[0].others) == 2


def test_popqa_asks_for_little_known_subjects_only(write: Write, tmp_path: Path) -> None:
    lines = [
        line
        for name, views in (("A", 999), ("B", 1000), ("C", 12), ("C", 5_000_000))
        for line in at_depths(f"Where is {name}?", GOLD, OTHERS, s_pop=views)
    ]
    write("kilt/popqa_test_1000_k10_dep6.jsonl", lines)
    found = open_set(tmp_path, "popqa")
    assert [found[n].question for n in range(len(found))] == ["Where is A?", "Where is C?"]
    assert found.left_out == 2


@pytest.mark.parametrize("before", [True, False])
def test_a_long_record_is_grouped_wherever_its_question_stands(before: bool, write: Write, tmp_path: Path) -> None:
    others = [context(f"p{n}", f"{n} " + 'said \\" "question": "no" ' * 60) for n in range(9)]
    lines = at_depths('Where is "the" mill\u2019s\nwheel?', GOLD, others, s_pop=4)
    if not before:
        lines = [{name: line[name] for name in ("ctxs", "answers", "s_pop", "question")} for line in lines]
    assert len(json.dumps(lines[0])) > 2 * items.PEEK_BYTES
    write("kilt/popqa_test_1000_k10_dep6.jsonl", lines)
    found = open_set(tmp_path, "popqa")
    assert [found[n].question for n in range(len(found))] == ['Where is "the" mill\u2019s\nwheel?']


def test_a_question_without_any_gold_is_told_when_it_is_read(write: Write, tmp_path: Path) -> None:
    write("kilt/nq-dev-multikilt_1000_k9_dep6.jsonl", [{"question": "Q", "answers": ["Aln"], "ctxs": OTHERS}])
    found = open_set(tmp_path, "nq")
    with pytest.raises(CorpusError, match="record 1: no passage is marked as gold"):
        found[0]


def oracle(number: int) -> Record:
    text = f"Town {number} lies by the river Aln{number}."
    gold = {"title": f"Town {number}", "text": text, "hasanswer": True, "isgold": True}
    return {"question": f"By which river is town {number}?", "answers": [f"Aln{number}"], "ctxs": [gold]}


def test_passages_of_other_questions_stand_beside_an_oracle(write: Write, tmp_path: Path) -> None:
    rows = [oracle(n) for n in range(20)]
    rows.append(oracle(20) | {"answers": ["nowhere"]})
    write("qa/nq-open-oracle.jsonl.gz", rows)
    squad = {
        "data": [
            {
                "title": "T",
                "paragraphs": [{"context": "A mill by the Aln3.", "qas": []}, {"context": "Fog.", "qas": []}],
            }
        ]
    }
    write("qa/squad-dev-v2.0.json", squad)
    found = open_set(tmp_path, "nq")
    assert (len(found), found.left_out) == (20, 1)
    for index in range(20):
        texts = [passage.text for passage in found[index].others]
        assert len(texts) == len(set(texts)) == (20 if index == 3 else 21)
        assert not any(f"Aln{index}." in text for text in texts)
        assert texts[-1] in ("Fog.", "A mill by the Aln3.")
    assert ids(found[4].others) != ids(found[5].others)
    assert ids(open_set(tmp_path, "nq")[4].others) == ids(found[4].others)


# --- cite ---


def alce(name: str, **more: Any) -> Record:
    docs = [{"title": f"T{n}", "text": f'Text {n} with a }} brace and a " quote.'} for n in range(5)]
    return {"sample_id": name, "question": f"Who, {name}?", "docs": docs} | more


@pytest.mark.parametrize("indent", [None, 4])
def test_alce_items_are_found_in_one_array(indent: int | None, write: Write, tmp_path: Path) -> None:
    pairs = [{"short_answers": ["Ida", "Ida Marsh"], "question": "?"}, {"short_answers": ["Tom"]}]
    content = json.dumps([alce("a", qa_pairs=pairs), alce("b", qa_pairs=pairs)], indent=indent)
    write("alce/asqa_eval_gtr_top2000.json", content)
    found = open_set(tmp_path, "asqa")
    assert [found[n].id for n in range(len(found))] == ["a", "b"]
    assert found[1].answers == (("Ida", "Ida Marsh"), ("Tom",))
    assert (found[0].gold, len(found[0].others), found[0].others[4].title) == ((), 5, "T4")


def test_each_item_of_a_list_is_a_facet(write: Write, tmp_path: Path) -> None:
    write("alce/qampari_eval_gtr_top2000.json", [alce("q", answers=[["One", "1"], ["Two"]])])
    assert open_set(tmp_path, "qampari")[0].answers == (("One", "1"), ("Two",))


values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\{}[],: \n\u00e9', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\{}', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    records=st.lists(st.dictionaries(st.text('a"\\{}', max_size=3), values, max_size=3), min_size=1, max_size=5),
    chunk=st.integers(1, 60),
    indent=st.sampled_from([None, 1]),
    wrapped=st.booleans(),
    as_ascii=st.booleans(),
)
def test_records_are_found_wherever_reads_end(
    records: list[Record],
    chunk: int,
    indent: int | None,
    wrapped: bool,
    as_ascii: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("items")
    whole = {"data": records} if wrapped else records
    (folder / "a.json").write_text(json.dumps(whole, indent=indent, ensure_ascii=as_ascii), encoding="utf-8")
    (folder / "a.jsonl").write_text(
        "".join(f" {json.dumps(record, ensure_ascii=as_ascii)}\r\n\n" for record in records), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(items, "CHUNK_BYTES", chunk)
        for found in (open_array(folder / "a.json", "a"), open_lines(folder / "a.jsonl", "a")):
            assert [found.record(n) for n in range(len(found))] == records


# --- rerank ---


def test_the_lines_of_a_query_are_one_entry(write: Write, tmp_path: Path) -> None:
    contexts = [{"id": f"{n}", "text": f"Text {n}.", "label": n % 4} for n in range(8)]
    lines = [
        {"qid": qid, "query": f"query {qid}", "ctxs": turned} for qid in (7, 9) for turned in (contexts, contexts[::-1])
    ]
    write("msmarco/test_reranking_data_k8_dep3.jsonl", lines)
    write("msmarco/test_reranking_data_k10_dep3.jsonl", lines[:2])
    found = open_set(tmp_path, "msmarco_demos")
    assert len(found) == 1
    (tmp_path / "msmarco/test_reranking_data_k10_dep3.jsonl").unlink()
    found = open_set(tmp_path, "msmarco")
    assert [found[n].id for n in range(len(found))] == ["7", "9"]
    assert (ids(found[0].passages)[:2], found[0].labels[:5]) == (["0", "1"], (0, 1, 2, 3, 0))


def test_results_of_a_retriever_are_joined_with_judgements(write: Write, tmp_path: Path) -> None:
    for year, first in (("dl19", 1), ("dl20", 3)):
        hits = {
            q: [{"content": f"Text {q}{n}", "qid": q, "docid": f"{q}{n}"} for n in range(3)] for q in (first, first + 1)
        }
        write(f"rerank/{year}/retrieve_results_{year}.json.gz", [{"query": f"q{q}", "hits": hits[q]} for q in hits])
    write("rerank/dl19/qrels.dl19-passage.txt", "1 Q0 11 3\n1 Q0 30 2\n2 Q0 11 1\n")
    write("rerank/dl20/qrels.dl20-passage.txt", "3 0 32 1\n")
    found = open_set(tmp_path, "msmarco")
    assert len(found) == 4
    assert (ids(found[0].passages)[:3], found[0].labels[:3]) == (["10", "11", "12"], (0, 3, 0))
    label = dict(zip(ids(found[0].passages), found[0].labels, strict=True))
    assert len(label) == 12
    assert {name: grade for name, grade in label.items() if grade} == {"11": 3, "30": 2}


# --- icl ---


def small_schemes(write: Write) -> None:
    write("icl/trec/train_5500.label", "LOC:city Where is Caf\u00e9 Aln ?\nNUM:date When ?\n".encode("iso-8859-1"))
    write("icl/trec/TREC_10.label", "LOC:other Where ?\n")
    write("icl/banking77/train.csv", 'text,category\n"Where, pray?\nNow!",card\nHow?,pin\n')
    write("icl/banking77/test.csv", "text,category\nWhen?,pin\n")
    splits = {
        "train": [["a", "greet"]],
        "oos_train": [["b", "oos"]],
        "val": [["c", "greet"]],
        "oos_val": [["d", "oos"]],
    }
    write("icl/clinc150/data_oos_plus.json.gz", splits | {"test": [["e", "greet"]], "oos_test": []})
    head = "answerid;scenario;intent;answer_annotation;answer_from_anno;answer_from_user\n"
    write("icl/nlu/train.csv", f'{head}1;alarm;query;x;list "my" alarms;<List>\n')
    write("icl/nlu/test.csv", f"{head}2;alarm;set;x;wake me;Wake me!\n")


def test_the_original_files_of_the_classification_sets(write: Write, tmp_path: Path) -> None:
    small_schemes(write)
    corpora = load_corpora(tmp_path)
    found = {name: corpora.collection(name) for name in ("trec_coarse", "trec_fine", "banking77", "clinc150", "nlu")}
    assert all(isinstance(scheme, Scheme) for scheme in found.values())
    parts = {
        name: [[(one.text, scheme.labels[one.label]) for one in part] for part in (scheme.train, scheme.test)]
        for name, scheme in found.items()
        if isinstance(scheme, Scheme)
    }
    assert parts["trec_coarse"] == [[("Where is Caf\u00e9 Aln ?", "LOC"), ("When ?", "NUM")], [("Where ?", "LOC")]]
    assert parts["trec_fine"][1] == [("Where ?", "LOC:other")]
    assert parts["banking77"] == [[("Where, pray?\nNow!", "card"), ("How?", "pin")], [("When?", "pin")]]
    assert parts["clinc150"] == [[("a", "greet"), ("b", "oos")], [("c", "greet"), ("d", "oos")]]
    assert parts["nlu"] == [[('list "my" alarms', "alarm_query")], [("wake me", "alarm_set")]]


def test_the_whole_nlu_file_is_split_by_its_texts(write: Write, tmp_path: Path) -> None:
    rows = [f"1;{n};alarm;query;x;{n} o'clock;Is it {n}?" for n in range(400)]
    text = "\n".join(["userid;answerid;scenario;intent;status;answer_normalised;answer", *rows])
    write("icl/nlu/NLU-Data-Home-Domain-Annotated-All.csv", text)
    found = open_set(tmp_path, "nlu")
    assert 20 < len(found.test) < 60
    assert len(found.train) + len(found.test) == 400


# --- recall ---


def test_pairs_keep_their_order(write: Write, tmp_path: Path) -> None:
    context = 'JSON data:\n{"k2": "v2", "k0": "v0", "k1": "v1"}'
    row = {"context": context, "question": "k0", "answer": "v0", "demos": [], "num_kvs": 3, "depth": 0.5}
    write("json_kv/test_k3_dep6.jsonl", [row, row | {"question": "k2", "answer": ["v2"]}])
    found = open_set(tmp_path, "json_kv")
    assert found[0].pairs == (("k2", "v2"), ("k0", "v0"), ("k1", "v1"))
    assert [(found[n].key, found[n].value) for n in range(len(found))] == [("k0", "v0"), ("k2", "v2")]


def test_a_key_that_is_not_there_is_told(write: Write, tmp_path: Path) -> None:
    write("json_kv/test_k1_dep6.jsonl", [{"context": '{"a": "b"}', "question": "c", "answer": "b"}])
    with pytest.raises(CorpusError, match="record 1: the object does not hold"):
        open_set(tmp_path, "json_kv")[0]


def test_prepared_samples_are_taken_as_they_are(write: Write, tmp_path: Path) -> None:
    write("ruler/vt/validation_4096.jsonl", [{"index": 5, "input": " Track.\n", "outputs": ["A", "B"], "length": 9}])
    helmet = {"context": "A key.", "query": "key", "type_needle_v": "numbers", "answer": ["7", "8"]}
    write("data/ruler/niah_multivalue/validation_131072.jsonl", [helmet])
    corpora = load_corpora(tmp_path)
    assert set(corpora.published) == {"ruler/vt/4096", "ruler/niah_multivalue/131072"}
    found: Any = corpora.collection("ruler/vt/4096")
    assert (found[0].id, found[0].text, found[0].references) == ("5", " Track.\n", ("A", "B"))
    found = corpora.collection("ruler/niah_multivalue/131072")
    assert (found[0].context, found[0].query, found[0].needle_type) == ("A key.", "key", "numbers")
    assert corpora.collection("ruler/vt/8192") is None


# --- long documents ---


def book(name: int, **more: Any) -> Record:
    return {"id": name, "context": f"Book {name}.", "input": "Who?", "answer": ["Ida"], "options": []} | more


def test_books_with_questions_options_and_key_points(write: Write, tmp_path: Path) -> None:
    folder = "xinrongzhang2022/InfiniteBench"
    write(f"{folder}/longbook_qa_eng.jsonl", [book(0)])
    write(f"{folder}/longbook_choice_eng.jsonl", [book(1, options=["Tom", "Ida", "Una", "Per"])])
    write(f"{folder}/longbook_sum_eng.jsonl", [book(2, answer=["A summary."]), book(3)])
    write("infbench/longbook_sum_eng_keypoints.jsonl", [{"id": 2, "keypoints": ["One.", "Two."]}])
    asked = open_set(tmp_path, "infbench_qa")[0]
    assert (asked.id, asked.document, asked.question, asked.answers, asked.options) == (
        "0",
        "Book 0.",
        "Who?",
        ("Ida",),
        (),
    )
    assert open_set(tmp_path, "infbench_mc")[0].answers == ("B", "Ida")
    cases = open_set(tmp_path, "infbench_sum")
    assert (cases[0].summary, cases[0].key_points, cases[1].key_points) == ("A summary.", ("One.", "Two."), ())


def test_law_cases_without_a_short_summary_are_left_out(write: Write, tmp_path: Path) -> None:
    rows = [
        {"id": f"c{n}", "sources": ["Filed.", "Heard."], "summary/long": "Long.", "summary/short": short}
        | {"summary/short_keypoints": ["A point."]}
        for n, short in enumerate(["Short.", None, "Too."])
    ]
    write("multi_lexsum/multi_lexsum_val.jsonl", rows)
    found = open_set(tmp_path, "multi_lexsum")
    assert (len(found), found.left_out, found[1].id) == (2, 1, "c2")
    assert (found[0].document, found[0].summary, found[0].full_summary) == ("Filed.\n\nHeard.", "Short.", "Long.")
    assert found[0].key_points == ("A point.",)


def test_books_come_without_the_terms_of_their_publisher(write: Write, tmp_path: Path) -> None:
    listing = "document_id,set,kind,story_url,wiki_title\nd1,test,gutenberg,http://g.org/ebooks/14.txt.utf-8,The Mill\n"
    write("books/narrativeqa_documents.csv", listing)
    head, tail = "*** START OF THIS PROJECT GUTENBERG EBOOK X ***", "*** END OF THIS PROJECT GUTENBERG EBOOK X ***"
    write("books/14-0.txt.gz", f"Terms.\r\n{head}\r\n\r\nA caf\u00e9.\r\n{tail}\r\nMore terms.".encode("iso-8859-1"))
    write("books/99.txt", "Another.")
    found = open_set(tmp_path, "books")
    assert (len(found), found.left_out) == (1, 1)
    assert (found[0].id, found[0].title, found[0].text) == ("d1", "The Mill", "A caf\u00e9.")


# --- the directory ---


def test_a_directory_with_none_of_the_files_is_refused(write: Write, tmp_path: Path) -> None:
    write("kilt/readme.txt", "no")
    with pytest.raises(CorpusError, match="none of the known files"):
        load_corpora(tmp_path)


def test_found_sets_are_published_and_others_are_not_named(write: Write, tmp_path: Path) -> None:
    small_schemes(write)
    corpora = load_corpora(tmp_path)
    assert corpora.sources["nlu"] == "published"
    assert "nq" not in corpora.sources
    assert corpora.collection("nq") is None
    assert corpora.collection("nlu") is corpora.collection("nlu")
    assert Corpora().collection("nlu") is None
    with pytest.raises(KeyError, match="no published set 'squad'"):
        corpora.collection("squad")


def test_nothing_is_parsed_before_it_is_asked_for(write: Write, tmp_path: Path) -> None:
    for name in ("kilt/nq-dev-multikilt_1000_k10_dep6.jsonl", "alce/asqa_eval_gtr_top2000.json", "icl/nlu/train.csv"):
        write(name, b"torn {")
    write("icl/nlu/test.csv", b"torn {")
    corpora = load_corpora(tmp_path)
    assert corpora.fingerprint
    for name in ("nq", "asqa", "nlu"):
        with pytest.raises(CorpusError, match=r"^--data-dir: [^\n]*; put the published file in its place[^\n]*$"):
            corpora.collection(name)


def test_the_fingerprint_changes_with_any_byte_of_a_small_file_and_with_the_size_of_a_large_one(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fixtures.corpora.published.WHOLE_BYTES", 2**12)
    monkeypatch.setattr("fixtures.corpora.published.BLOCK_BYTES", 16)
    small_schemes(write)
    seen = {load_corpora(tmp_path).fingerprint, Corpora().fingerprint}
    write("icl/trec/TREC_10.label", "LOC:other Whose ?\n")
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


@pytest.mark.parametrize(
    ("name", "file", "data", "said"),
    [
        ("nq", NQ, b'{"question": "Q", "ctxs": [', "record 1: cut off"),
        ("nq", NQ, b"", "no record"),
        ("nq", NQ, [{"answers": []}], "record 1: no field 'question'"),
        ("nq", NQ, [KILT_LINE | {"ctxs": None}], "record 1: NoneType in place"),
        ("nq", NQ, [KILT_LINE | {"ctxs": [{"id": 1}]}], "record 1: no field 'text'"),
        ("nq", NQ, [KILT_LINE | {"answers": [4]}], "record 1: int in place of text"),
        ("popqa", "kilt/popqa_test_1000_k9_dep6.jsonl", [KILT_LINE], "record 1: no field 's_pop'"),
        ("popqa", "kilt/popqa_test_1000_k9_dep6.jsonl", [KILT_LINE | {"s_pop": 9**9}], "all on well known subjects"),
        ("asqa", ASQA, b'[{"question": "Q", "docs": [', "cut off"),
        ("asqa", ASQA, [{"question": "Q", "docs": []}], "record 1: no field 'answers'"),
        ("msmarco", MSMARCO, [{"qid": 1, "query": "q", "ctxs": [context("a", label=7)]}], "a label of 7, not 0"),
        ("trec_fine", "icl/trec/TREC_10.label", "A question without a label\n", "line 1: 'A question without a label'"),
        ("json_kv", "json_kv/test_k9_dep6.jsonl", [{"context": "none", "question": "k", "answer": "v"}], "record 1:"),
        ("ruler/vt/4096", "ruler/vt/validation_4096.jsonl", [{"input": "x"}], "record 1: no field 'answer'"),
        ("infbench_mc", "infbench/longbook_choice_eng.jsonl", [book(1, options=["Tom"])], "record 1:"),
        ("nq", NQ + ".gz", gzip.compress(b'{"question": "Q"}')[:-12], "ended before"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_one_line(
    name: str, file: str, data: Any, said: str, write: Write, tmp_path: Path
) -> None:
    small_schemes(write)
    path = write(file.removesuffix(".gz") if isinstance(data, bytes) else file, data)
    if file.endswith(".gz"):
        path = path.rename(path.with_name(f"{path.name}.gz"))
    with pytest.raises(CorpusError) as raised:
        open_set(tmp_path, name)[0]
    assert str(raised.value).startswith(f"--data-dir: {path}: expected ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_large_compressed_file_has_to_be_unpacked(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "MOST_UNPACKED_BYTES", 2**20)
    write(NQ + ".gz", [KILT_LINE | {"filling": "x" * 2**20}])
    with pytest.raises(CorpusError, match=r"more than 1 MiB in \.gz, which has to be read whole; gunzip it"):
        open_set(tmp_path, "nq")
