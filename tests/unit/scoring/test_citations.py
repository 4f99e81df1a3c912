"""Answers with citations, against plain implementations of ALCE's definitions."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longctx.fixtures.scoring.citations import (
    CitationScores,
    citation_scores,
    premise,
    recall_5,
    sentences,
    separated,
    statements,
    string_em,
)
from longctx.fixtures.scoring.match import normalize

# The first sentence loads NLTK, most of a second.
FIRST_LOADS = settings(deadline=None)
# A claim holds where every fact of it (an animal) stands in the premise.
FACTS = ("owl", "elk", "fox")
PREMISES = [premise(f"P{number}", facts) for number, facts in enumerate(("owl", "elk", "owl elk", "fox", "", "owl"), 1)]
MARKS = st.sampled_from(["[1]", " [2]", "[3]", " [4]", "[5]", "[6]", "[0]", "[7]", "[99]", "[1, 2]", "[x]", " |", "]"])
CLAIM = st.lists(st.sampled_from(["It says owl", "It says elk", "and fox", "so it is", "\n"]), min_size=1, max_size=2)
SENTENCE = st.tuples(CLAIM.map(" ".join), st.lists(MARKS, max_size=5).map("".join)).map("".join)
OUTPUTS = st.lists(SENTENCE, max_size=4).map(lambda parts: "".join(f"{part}. " for part in parts))
LISTS = st.lists(st.sampled_from(["Paris", " Rome [1]", "the Rome", "owl [3][4]", "", "Oslo.", " [2]"])).map(",".join)


def entails(text: str, claim: str) -> bool:
    return all(fact in text for fact in FACTS if fact in claim)


def by_definition(units: Sequence[str], premises: Sequence[str]) -> tuple[float, float]:
    """ALCE's recall and precision, one statement at a time (Gao et al. 2023, §3.2)."""
    recall: list[bool] = []
    right, cited = 0, 0
    for statement in units:
        numbers = [int(digits) - 1 for digits in re.findall(r"\[([0-9]+)", statement)]
        claim = re.sub(r"\[[0-9]+", "", re.sub(r" \[[0-9]+", "", statement)).replace(" |", "").replace("]", "").strip()
        if not numbers or max(numbers) >= len(premises):
            recall.append(False)
            continue
        numbers = numbers[:3]
        cited += len(numbers)
        recall.append(entails("\n".join([premises[number] for number in numbers]), claim))
        if recall[-1]:
            for place in range(len(numbers)):
                rest = [premises[number] for other, number in enumerate(numbers) if other != place]
                superfluous = not entails(premises[numbers[place]], claim) and entails("\n".join(rest), claim)
                right += len(numbers) == 1 or not superfluous
    return sum(recall) / len(recall), right / cited if cited else 0.0


# --- citation recall and precision ---


def judged(
    output: str, *, question: str | None = None, strict: bool = False, shown: int | None = None
) -> tuple[float, float] | None:
    scores = citation_scores(output, PREMISES, entails, question=question, strict=strict, shown=shown)
    return (scores.recall, scores.precision) if scores else None


@FIRST_LOADS
@given(OUTPUTS)
@example("It says owl and elk [1][2]. It says fox [0].")
def test_sentences_are_judged_by_the_book(output: str) -> None:
    units = [sentence for sentence in sentences(re.sub("\n+", " ", output)) if len(sentence.strip()) >= 5]
    expected = pytest.approx(by_definition(units, PREMISES)) if units else None
    assert judged(output) == expected


@given(LISTS)
@example("It says owl [1],.")
def test_items_are_judged_by_the_book_with_the_question(output: str) -> None:
    units = [f"Which owl? {item.strip()}" for item in output.rstrip().rstrip(".").rstrip(",").split(",")]
    assert judged(output, question="Which owl?") == pytest.approx(by_definition(units, PREMISES))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("It says owl [1].", (1, 1)),
        ("It says owl.", (0, 0)),
        ("It says owl [2].", (0, 0)),
        ("It says owl and elk [1][2].", (1, 1)),
        # The first two are needed only without the third, which entails it alone.
        ("It says owl and elk [1][2][3].", (1, 1 / 3)),
        ("It says owl [1][4].", (1, 0.5)),
        # A fourth citation is not read.
        ("It says elk [1][4][5][2].", (0, 0)),
        ("It says owl [1]. It says elk.", (0.5, 1)),
        ("It says owl [1].\n\nIt says elk [2].", (1, 1)),
        # Only the first number in brackets is read, and the rest stays in the claim.
        ("It says owl and elk [1, 2].", (0, 0)),
        ("It says owl [\u0661].", (1, 1)),
        # A sentence of fewer than five characters is left out.
        ("1. It says owl [1].", (1, 1)),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_known_citations(output: str, expected: tuple[float, float], strict: bool) -> None:
    assert judged(output, strict=strict) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("output", "shown", "paper", "strict"),
    [
        # No citation counts from 0: Python takes the last passage.
        ("It says owl [0].", None, (1, 1), (0, 0)),
        ("It says owl [1]. It says owl [00].", None, (1, 1), (0.5, 0.5)),
        # The published data holds more passages than a prompt shows.
        ("It says owl [6].", 3, (1, 1), (0, 0)),
        ("It says owl [3].", 3, (1, 1), (1, 1)),
        # A made-up passage costs recall, and strictly precision too.
        ("It says owl [1]. It says owl [1][7].", None, (0.5, 1), (0.5, 1 / 3)),
        ("It says owl [1]. It says owl [999999999999].", None, (0.5, 1), (0.5, 0.5)),
        (f"It says owl [1]. It says owl [{'9' * 5000}].", None, (0.5, 1), (0.5, 0.5)),
        # The same passage again weighs a good sentence double.
        ("It says owl [1][1]. It says elk [1].", None, (0.5, 2 / 3), (0.5, 0.5)),
        # Nor does a repeated one make room for a fourth.
        ("It says owl and elk [1][1][1][2].", None, (0, 0), (0, 0)),
        # An answer without a sentence.
        ("", None, None, (0, 0)),
        (" \n\n", None, None, (0, 0)),
        ("[1].", None, None, (0, 0)),
    ],
)
def test_where_the_strict_reading_differs(
    output: str, shown: int | None, paper: tuple[float, float] | None, strict: tuple[float, float]
) -> None:
    assert judged(output, shown=shown) == (pytest.approx(paper) if paper else None)
    assert judged(output, shown=shown, strict=True) == pytest.approx(strict)


@FIRST_LOADS
@given(OUTPUTS, st.integers(0, len(PREMISES)))
def test_strict_recall_never_gives_more(output: str, shown: int) -> None:
    paper, strict = judged(output) or (0, 0), judged(output, strict=True, shown=shown)
    assert strict is not None
    assert strict[0] <= paper[0]
    assert all(0 <= score <= 1 for score in (*paper, *strict))


@FIRST_LOADS
@given(OUTPUTS)
def test_no_pair_is_decided_twice(output: str) -> None:
    pairs: list[tuple[str, str]] = []

    def asking(text: str, claim: str) -> bool:
        pairs.append((text, claim))
        return entails(text, claim)

    citation_scores(output, PREMISES, asking)
    assert len(pairs) == len(set(pairs))


def test_an_entailment_that_fails_is_an_error_and_no_score() -> None:
    def broken(text: str, claim: str) -> bool:
        raise TimeoutError("no judge")

    with pytest.raises(TimeoutError, match="no judge"):
        citation_scores("It says owl [1].", PREMISES, broken)


def test_very_short_sentences_do_not_count() -> None:
    assert citation_scores("It says owl [1]. Yes.", PREMISES, entails) == CitationScores(recall=1, precision=1)


# --- the text ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("One", ("One",)),
        ("He left. She stayed! Why?", ("He left.", "She stayed!", "Why?")),
        ("Mr. Smith met Dr. No. They left.", ("Mr. Smith met Dr. No.", "They left.")),
        ("It was made in the U.S. by J. Smith in Aug. 1990.", ("It was made in the U.S. by J. Smith in Aug. 1990.",)),
        ("It cost $3.5 million [1]. Then it fell [2].", ("It cost $3.5 million [1].", "Then it fell [2].")),
        ('"Stop." He did.[1] Then he left.', ('"Stop."', "He did.", "[1] Then he left.")),
    ],
)
def test_sentences_are_split_as_nltk_does(text: str, expected: tuple[str, ...]) -> None:
    """The expected sentences are those of NLTK 3.10 with its own punkt_tab."""
    assert sentences(text) == expected


@FIRST_LOADS
@given(st.text(max_size=60) | OUTPUTS)
def test_no_word_is_lost_between_sentences(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


def test_the_output_is_read_as_one_line() -> None:
    assert statements("One [1].\n\n\nTwo\nthree<|im_end|>") == ("One [1].", "Two three")


# --- correctness ---

NAMES = st.lists(st.lists(st.sampled_from(["Paris", "rome", "The owl", "Oslo", "", "Lima"]), max_size=3), min_size=1)


@given(LISTS | OUTPUTS, NAMES)
def test_string_em_is_the_share_of_questions_answered(output: str, answers: list[list[str]]) -> None:
    answers = [names or ["Bern"] for names in answers]
    text = normalize(re.sub(r" ?\[\d+", "", output.replace("\n", " ")).replace(" |", "").replace("]", ""))
    hits = [any(normalize(name) in text for name in names) for names in answers]
    assert string_em(output, answers) == pytest.approx(sum(hits) / len(hits))
    assert string_em(output, answers, strict=True) <= string_em(output, answers)


@given(LISTS, NAMES)
def test_recall_5_counts_five_answers_at_most(output: str, answers: list[list[str]]) -> None:
    listed = [normalize(re.sub(r" ?\[\d+\]", "", item)) for item in output.split(",")]
    hits = [any(normalize(name) in listed for name in names if normalize(name)) for names in answers]
    assert recall_5(output, answers) == pytest.approx(min(5, sum(hits)) / min(5, len(answers)))


def test_known_answers() -> None:
    assert string_em("It opened in 19[1]60 [2].", [["1960"]]) == 1
    assert string_em("the party", [["art"]]) == 1
    assert string_em("the party", [["art"]], strict=True) == string_em("", [["The"]], strict=True) == 0
    towns = [["Paris"], ["Rome", "Roma"], ["Oslo"], ["Lima"], ["Bern"], ["Riga"]]
    assert recall_5("Paris [1], the Roma [2][3].", towns) == pytest.approx(2 / 5)
    assert recall_5("Paris, Rome, Oslo, Lima, Bern, Riga", towns) == 1
    assert recall_5("Paris", towns[:2]) == 0.5
    assert recall_5("Paris\nRome", towns[:2]) == 0, "a list on lines is one item, as in the paper's scorer"
    assert recall_5("", [[""]]) == recall_5(",,.", towns) == 0


@pytest.mark.parametrize("metric", [string_em, recall_5])
def test_no_answer_is_no_score(metric: object) -> None:
    assert callable(metric)
    with pytest.raises(ValueError, match="answers: there are none"):
        metric("Paris", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a [1, 2].", "a [1][2]."), ("[1-3]", "[1][2][3]"), ("\u30101\u3011", "[1]"), ("[Document 3]", "[3]")],
)
def test_citations_in_one_pair_of_brackets_are_separated(text: str, expected: str) -> None:
    assert separated(text) == expected
