"""Scores of procedures: LongProc's without their faults."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.fixtures.scoring.procedures import (
    beliefs,
    lines_before_error,
    solves,
)
from longctx.fixtures.tasks import TASKS
from tests.helpers.tiny_tokenizers import make_sample

PROCEDURES = ("path_traversal", "countdown", "belief_tracking", "table_extraction")


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
    said = beliefs("Ann:\n- Step 3: ANN is in the hall\n\n * Step 4\n- \nno")
    assert said == ["3 ann hall", "4"]
    assert lines_before_error(["x", "b"], ["a", "b"]) == 0
    assert lines_before_error(["a", "b", "c"], ["a", "b"]) == 1
    assert lines_before_error([], ["a", "b"]) == 0


@pytest.mark.parametrize("task", PROCEDURES)
def test_every_wrong_line_lowers_the_score_and_a_longer_right_part_raises_it(task: str) -> None:
    sample = make_sample(task, kind="pieces")
    assert sample.gold is not None
    score = TASKS[task].score
    lines = sample.gold.text.splitlines()
    expected = len(sample.references) if task != "countdown" else len(sample.truth.search)
    assert score(sample, sample.gold.text).value == 1
    for place in range(expected):
        changed = [line if line != lines[place] else line.replace(" ", " 7", 1) for line in lines]
        if task == "countdown":
            changed = changed[:expected]
        assert score(sample, "\n".join(changed)).value < 1, changed
    parts = [score(sample, "\n".join(lines[:count])).value for count in range(expected + 1)]
    assert parts == sorted(set(parts))


@pytest.mark.parametrize("task", PROCEDURES)
def test_a_right_answer_stays_right_with_an_introduction_and_in_another_layout(task: str) -> None:
    """None of these forms changes a step."""
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


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(st.sampled_from("a-[]<>/=`+*0 17,.\t\n\r\"|tsv'Step"), max_size=80), task=st.sampled_from(PROCEDURES)
)
def test_no_answer_is_an_error(text: str, task: str) -> None:
    sample = make_sample(task, kind="pieces")
    for answer in (text, f"{text}</Route>", f"{sample.references[0]}\n{text}", f"<Solution>{text}</Solution>"):
        assert 0 <= TASKS[task].score(sample, answer).value < 1
