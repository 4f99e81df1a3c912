"""Rankings, NDCG and ROUGE-L, against the packages that define them and against plain implementations."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytrec_eval import RelevanceEvaluator
from rouge_score.rouge_scorer import RougeScorer

from longctx.fixtures.scoring.rouge import rouge_l
from longctx.fixtures.tasks.helmet.rerank import ndcg, parse_ranking

IDENTIFIERS = st.sampled_from([str(number) for number in (*range(12), 7130104, 7130105, 8421)])
RELEVANCE = st.dictionaries(IDENTIFIERS, st.integers(0, 3), max_size=12)
OUTPUTS = st.lists(
    st.sampled_from(
        ["1", "22", "7130104", " > ", ">", "\n>", "[ID: ", "] ", "ID", "id", ", ", "Ranking:", "\u0663", "-"]
    )
).map("".join)


# --- rankings ---


@pytest.mark.parametrize(
    ("output", "paper", "strict"),
    [
        ("", (), ()),
        ("none of them", (), ()),
        ("ID3 > ID1 > ID3 > ID2", ("3", "1", "2"), ("3", "1", "2")),
        ("1 > 2, 4 > 5", ("1", "2"), ("1", "2")),
        ("1 > 2\n3 > 4 > 5", ("3", "4", "5"), ("3", "4", "5")),
        ("007 > 7", ("007", "7"), ("007", "7")),
        ("passage 3 > passage 1", ("3",), ("3", "1")),
        ("**3** > **1**", ("3",), ("3", "1")),
        ("[3] &gt; [1]", ("3",), ("3", "1")),
        ("Doc 3, Doc 1 and Doc 2", ("3",), ("3", "1", "2")),
        ("1. [3]\n2. [1]", ("1",), ("3", "1")),
        ("1 > 3. Wait, no: 3 \u2192 1", ("1", "3"), ("3", "1")),
        ("10 passages about 5 topics", ("10",), ("10",)),
        ("1 > 2 >", ("1", "2"), ("1", "2")),
        (f"1 > 2 {'9' * 5000}", ("9" * 5000,), ("1", "2")),
        ("\u0663 > \u0664", ("\u0663", "\u0664"), ("3", "4")),
    ],
)
def test_known_rankings(output: str, paper: tuple[str, ...], strict: tuple[str, ...]) -> None:
    assert parse_ranking(output) == paper
    assert parse_ranking(output, strict=True) == strict


def test_reading_a_ranking_takes_time_in_proportion() -> None:
    """A model may repeat itself up to its last token."""
    for strict in (False, True):
        assert parse_ranking("1 > " * 50_000 + " " * 50_000, strict=strict) == ("1",)


# --- NDCG ---


@settings(deadline=None)
@given(OUTPUTS, RELEVANCE.filter(bool))
def test_ndcg_is_trec_evals_for_scores_that_fall_with_the_rank(output: str, relevance: dict[str, int]) -> None:
    ranking = parse_ranking(output)
    run = {name: float(-place) for place, name in enumerate(ranking)}
    expected = RelevanceEvaluator({"q": relevance}, {"ndcg_cut.10"}).evaluate({"q": run})["q"]["ndcg_cut_10"]
    assert ndcg(ranking, relevance) == pytest.approx(expected, abs=1e-12)


def test_the_best_order_scores_1_and_unknown_passages_take_a_place() -> None:
    relevance = {"a": 3, "b": 2, "c": 0}
    assert ndcg(["a", "b", "c"], relevance) == 1
    assert ndcg(["x", "a"], {"a": 3}) == pytest.approx(1 / math.log2(3))
    assert ndcg([], relevance) == ndcg(["c", "x"], relevance) == ndcg(["c"], {"c": 0}) == ndcg(["a"], {}) == 0


# --- ROUGE-L ---

WORDS = st.lists(st.sampled_from(["cat", "dog", "ran", "to", "The", "x1", "\n", "-", "é", ".", "sat"]), max_size=9)
TEXT = WORDS.map(" ".join)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=40) | TEXT, st.text(max_size=40) | TEXT)
def test_rouge_l_is_that_of_rouge_score_with_stems(output: str, reference: str) -> None:
    scorer = RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True)
    assert rouge_l(output, [reference]) == scorer.score(reference, output)["rougeL"].fmeasure
    assert rouge_l(output, reference) == rouge_l(output, [reference])


def test_rouge_l_compares_stems_and_nothing_scores_0() -> None:
    assert rouge_l("running dogs", ["cat", "run dog"]) == 1
    assert rouge_l("", ["dog"]) == rouge_l("...", ["dog"]) == rouge_l("dog", [""]) == rouge_l("犬", ["犬"]) == 0
    with pytest.raises(ValueError, match="references: there are none"):
        rouge_l("dog", [])
