"""HELMET's published questions over passages: the gold passages and the other ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.corpora.files import open_array, open_lines
from longctx.fixtures.corpora.schema import PassageQuestion
from tests.helpers.published_files import (
    GOLD,
    OTHERS,
    Record,
    Write,
    at_depths,
    context,
    ids,
    open_set,
    own_caches,
    write,
)

__all__ = ["own_caches", "write"]


# --- rag ---


def test_the_six_lines_of_a_question_are_one_entry_with_its_gold_passage(write: Write, tmp_path: Path) -> None:
    first = at_depths("Where is the mill?", GOLD, OTHERS)
    second = at_depths("Where is the well?", context("w", "The well is in Aln."), OTHERS[::-1], ["Aln"])
    # The lines of two questions need not stand together.
    write(
        "kilt/nq-dev-multikilt_1000_k10_dep6.jsonl", [line for pair in zip(first, second, strict=True) for line in pair]
    )
    questions = open_set(tmp_path, "nq")
    assert (len(questions), questions.source) == (2, "published")
    assert isinstance(questions[0], PassageQuestion)
    assert (questions[0].question, questions[0].answers) == ("Where is the mill?", (("Brassmere",),))
    assert [ids(questions[n].gold) for n in range(2)] == [["g"], ["w"]]
    assert ids(questions[0].others) == ids(questions[1].others)[::-1] == [f"p{n}" for n in range(9)]
    with pytest.raises(IndexError):
        questions[2]


@given(places=st.lists(st.integers(0, 9), min_size=2, max_size=6, unique=True), order=st.permutations(range(9)))
def test_the_gold_passage_is_the_one_that_moves(places: list[int], order: list[int]) -> None:
    from longctx.fixtures.corpora.published.passage_sets import _moved

    others = [("", f"p{n}") for n in order]
    first, last = ([*others[:at], ("", "gold"), *others[at:]] for at in (places[0], places[-1]))
    moved = _moved(first, last)
    # Neighbours that change places do not tell which of them moved.
    assert moved == [("", "gold")] or (abs(places[0] - places[-1]) == 1 and len(moved) == 1)


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
    questions = open_set(tmp_path, "hotpotqa")
    assert len(questions) == 1
    assert (questions[0].id, sorted(ids(questions[0].gold))) == ("h1", ["a", "b"])
    assert len(questions[0].others) == 9


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
    questions = open_set(tmp_path, "popqa")
    assert [questions[n].question for n in range(len(questions))] == ["Where is A?", "Where is C?"]


# --- records of large files ---


values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\{}[],: \n\u00e9', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\{}', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    records=st.lists(st.dictionaries(st.text('a"\\{}', max_size=3), values, max_size=3), min_size=1, max_size=5),
    indent=st.sampled_from([None, 1]),
    as_ascii=st.booleans(),
)
def test_records_are_found_in_lines_and_lists(
    records: list[Record],
    indent: int | None,
    as_ascii: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("items")
    (folder / "a.json").write_text(json.dumps(records, indent=indent, ensure_ascii=as_ascii), encoding="utf-8")
    (folder / "a.jsonl").write_text(
        "".join(f" {json.dumps(record, ensure_ascii=as_ascii)}\r\n\n" for record in records), encoding="utf-8"
    )
    for index in (open_array(folder / "a.json", "a"), open_lines(folder / "a.jsonl", "a")):
        assert [index.record(n) for n in range(len(index))] == records
