"""Scores of procedures: LongProc's values with their faults, and the same without them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.scoring.procedures import (
    actions_before_error,
    after_first_error,
    belief_progress,
    beliefs,
    lines_before_error,
    published_table_f1,
    search_progress,
    solves,
    table_f1,
)
from longctx.fixtures.tasks import TASKS
from tests.helpers.tiny_tokenizers import make_sample

PROCEDURES = ("path_traversal", "countdown", "belief_tracking", "table_extraction")
FOUR = ["a", "b", "c", "d"]
SEARCH = ["[1, 2, 3]", "- Pick 1 and 2.", "-- 2 + 1 = 3. Go on.", "--- 3 + 3 = 6. Drop it.", "--- 3 - 3 = 0. Found."]
ROWS = (("Ann", "the miller", "1,700"), ("Ben", "N/A", "1800"))
PRINTED = "Name\tTrade\tYear\nann\tMiller\t1700\nBen\tN/A\t1800"


def test_the_published_share_of_a_path_counts_the_first_wrong_line_as_right() -> None:
    assert (lines_before_error(["a", "x", "c", "d"], FOUR), after_first_error(["a", "x", "c", "d"], FOUR)) == (
        0.25,
        0.5,
    )
    assert (lines_before_error(["x"], FOUR), after_first_error(["x"], FOUR)) == (0, 0.25)
    assert (lines_before_error(["a"], FOUR), after_first_error(["a"], FOUR)) == (0.25, 0.25)


def test_the_published_share_of_a_search_never_reaches_1_and_may_be_negative() -> None:
    assert (actions_before_error(SEARCH, SEARCH), search_progress(SEARCH, SEARCH)) == (1, 0.75)
    assert (actions_before_error(SEARCH[:1], SEARCH), search_progress(SEARCH[:1], SEARCH)) == (0.2, -0.25)
    other = [*SEARCH[:2], "-- 2 + 1 = 3. Something else.", *SEARCH[3:]]
    assert (actions_before_error(other, SEARCH), search_progress(other, SEARCH)) == (1, 0.75)
    dropped = [*SEARCH[:3], "--- 3 + 3 = 6. Go on.", SEARCH[4]]
    assert (actions_before_error(dropped, SEARCH), search_progress(dropped, SEARCH)) == (0.6, 0.5)
    assert search_progress(["[1, 2, 4]", *SEARCH[1:]], SEARCH) == 0


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ("48 + 12 = 60\n60 - 22 = 38\n38 - 27 = 11", True),
        ("48 + 12 = 60\n60 - 22 = 38\n27 - 38 = -11", False),
        ("48 + 12 = 60\n60 - 22 = 39\n39 - 27 = 12", False),
        ("48 + 12 = 60\n48 - 22 = 26\n26 - 27 = -1", False),
        ("48 + 12 = 60\n60 - 22 = 38", False),
        ("48 / 0 = 0\nx\n1 = 1 = 1", False),
        ("27 + 22 = 49\n12 + 48 = 60\n60 - 49 = 11", True),
    ],
)
def test_a_solution_uses_every_number_once(solution: str, expected: bool) -> None:
    assert solves([12, 48, 22, 27], 11, solution) is expected


def test_beliefs_are_compared_without_case_and_small_words() -> None:
    said = beliefs("Ann:\n- Step 3: ANN is in the hall\n\n - not the first column\n- \nno")
    assert said == ["3 ann hall"]
    assert belief_progress(["x", "b"], ["a", "b"]) == 0
    assert belief_progress(["a", "b", "c"], ["a", "b"]) == 1
    assert belief_progress([], ["a", "b"]) == 0


def test_the_published_f1_of_a_table_reads_the_first_line_as_its_header() -> None:
    rows = [line.split("\t") for line in PRINTED.splitlines()]
    assert published_table_f1(f"```tsv\n{PRINTED}\n```", ROWS) == (1, True)
    assert published_table_f1(f"{PRINTED}\nThese are all rows.", ROWS) == (1, True)
    assert round(published_table_f1("\n".join(PRINTED.splitlines()[1:]), ROWS)[0], 3) == 0.667
    assert published_table_f1(f"{PRINTED}\n{PRINTED.splitlines()[1]}", ROWS) == (1, True)
    assert published_table_f1(PRINTED.replace("\t", " "), ROWS) == (0, False)
    assert (table_f1(rows[1:], ROWS), table_f1([*rows[1:], rows[1]], ROWS), table_f1([], ROWS)) == (1, 0.8, 0)


@pytest.mark.parametrize("task", PROCEDURES)
def test_every_wrong_line_lowers_the_score_and_a_longer_right_part_raises_it(task: str) -> None:
    sample = make_sample(task, kind="pieces")
    assert sample.gold is not None
    strict, published = TASKS[task], TASKS[task].paper_variant
    lines = sample.gold.text.splitlines()
    expected = len(sample.references) if task != "countdown" else len(sample.truth.search)
    for score in (strict.score, published.score):
        assert score(sample, sample.gold.text).value == 1
    for place in range(expected):
        changed = [line if line != lines[place] else line.replace(" ", " 7", 1) for line in lines]
        if task == "countdown":
            changed = changed[:expected]
        assert strict.score(sample, "\n".join(changed)).value < 1, changed
        assert published.score(sample, "\n".join(changed)).value < 1, changed
    parts = [strict.score(sample, "\n".join(lines[:count])).value for count in range(expected + 1)]
    assert parts == sorted(set(parts))


@pytest.mark.parametrize("task", PROCEDURES)
def test_a_right_answer_stays_right_with_an_introduction_and_in_another_layout(task: str) -> None:
    """None of these forms changes a step; LongProc's own scores of a path take all of them for wrong ones."""
    sample, stop = make_sample(task, 2048, kind="pieces"), TASKS[task].stop
    assert sample.gold is not None
    right, closing = sample.gold.text, "" if task == "belief_tracking" else sample.gold.text.splitlines()[-1]
    lines = right.removesuffix(closing).splitlines()
    layouts = {
        "words behind": f"{right}\n\nI hope that this helps.",
        "block": f"```\n{right}\n```",
        "beginning again": f"{sample.answer_prefix}{right}",
        "line ends": right.replace("\n", "\r\n"),
        "indented": "\n".join(f"  {line}" for line in lines),
        "unfinished": "\n".join(lines),
        "blank lines": "\n\n".join(right.splitlines()),
    }
    if task != "table_extraction":
        layouts["introduction"] = f"Sure, this is the answer:\n{right}"
    if task in ("path_traversal", "belief_tracking"):
        layouts["other bullets"] = "\n".join(f"* {line.removeprefix('- ')}" for line in lines)
    cut = {name: min((text.partition(end)[0] for end in stop), key=len, default=text) for name, text in layouts.items()}
    assert {name: TASKS[task].score(sample, text).value for name, text in cut.items()} == dict.fromkeys(layouts, 1.0)


def test_an_introduction_to_a_wrong_path_is_no_step_and_a_wrong_first_step_is_one() -> None:
    sample = make_sample("path_traversal", kind="pieces")
    first, second, *_ = sample.references
    score = TASKS["path_traversal"].score
    assert score(sample, f"The path is this.\n{first}\n{second}\nThere.").value == 2 / len(sample.references)
    assert score(sample, f"{second}\n{first}\n{second}").value == 0


def test_equations_may_be_listed_and_end_in_a_full_stop() -> None:
    sample = make_sample("countdown", kind="pieces")
    listed = "\n".join(f"{number}. {line}." for number, line in enumerate(sample.references, start=1))
    assert TASKS["countdown"].score(sample, f"I see it.\n<Solution>\n{listed}\n</Solution>").value == 1
    assert TASKS["countdown"].paper_variant.score(sample, f"<Solution>\n{listed}\n</Solution>").value == 0


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(st.sampled_from("a-[]<>/=`+*0 17,.\t\n\r\"|tsv'Step"), max_size=80), task=st.sampled_from(PROCEDURES)
)
def test_no_answer_is_an_error(text: str, task: str) -> None:
    sample = make_sample(task, kind="pieces")
    for answer in (text, f"{text}</Route>", f"{sample.references[0]}\n{text}", f"<Solution>{text}</Solution>"):
        assert 0 <= TASKS[task].score(sample, answer).value < 1
        assert 0 <= TASKS[task].paper_variant.score(sample, answer).value < 1
