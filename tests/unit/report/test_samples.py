"""The samples that a page carries: their selection, the parts of a long answer, the excerpts, and the size limit."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.records import Prompt, Sample
from longctx.fixtures.scoring.failures import excerpt_of
from longctx.plugins.report.document import document
from longctx.plugins.report.html.page import (
    ANSWER_CHARACTERS,
    BUDGET_BYTES,
    RIGHT_PER_CASE,
    embedded,
    page,
    sample_rows,
)
from tests.helpers.reports import LENGTHS, cases_of, options_of, result_of, run_summary


def row_of(text: str, *references: str, depths: tuple[float, ...] = ()) -> dict[str, Any]:
    """Return the page's row of a wrong sample with this answer."""
    options = options_of(samples=1, suite="ruler", lengths=(4096,))
    case = cases_of(options)[0]
    result = result_of(case, options.lengths, (text,), paired=False)
    outcome = msgspec.structs.replace(
        result.outcomes[0],
        references=references,
        depths=depths,
        score=msgspec.structs.replace(
            result.outcomes[0].score, value=0.5, parts=dict.fromkeys(references[:1], 1.0), failure="wrong"
        ),
    )
    (row,) = sample_rows([case], {case.id: replace(result, outcomes=(outcome,))}, BUDGET_BYTES)
    return row


@given(st.text("ab .", max_size=2000))
def test_all_characters_of_an_answer_are_shown_or_counted(text: str) -> None:
    row = row_of(text, "a")
    shown = row["answer"] + row.get("ending", "")
    assert len(shown) + row.get("omitted", 0) == len(text)
    assert len(shown) <= ANSWER_CHARACTERS
    assert text.startswith(row["answer"])
    assert text.endswith(row.get("ending", ""))


def test_all_depths_are_given_if_there_are_several() -> None:
    assert row_of("x", "a", "b", depths=(0.1, 0.9))["depths"] == [0.1, 0.9]
    assert "depths" not in row_of("x", "a", depths=(0.1,))


def test_every_case_gets_its_share_of_a_small_budget() -> None:
    options = options_of(samples=40)
    cases = cases_of(options)
    results = {case.id: result_of(case, LENGTHS, ("wrong " * 80, "<&>" * 200), paired=True) for case in cases}
    rows = sample_rows(cases, results, 400_000)
    assert 350_000 < len(embedded(rows)) <= 400_000 + 200
    assert {(row["task"], row["length"]) for row in rows} == {(case.task, case.length) for case in cases}
    assert [row["score"] == 100 for row in rows] == sorted(row["score"] == 100 for row in rows)


def test_a_run_within_the_budget_shows_all_wrong_samples_and_few_right_ones() -> None:
    run = run_summary(samples=12, paired=True)
    results = run.evaluation.measured.results
    shown = sample_rows(run.run.cases, results, BUDGET_BYTES)
    outcomes = [outcome for result in results.values() for outcome in result.outcomes]
    assert sum(row["score"] < 100 for row in shown) == sum(outcome.score.value < 1 for outcome in outcomes)
    flips = sum(
        score != outcome.score.value
        for result in results.values()
        for outcome, score in zip(result.outcomes, result.baseline, strict=True)
    )
    assert sum("flip" in row for row in shown) == flips > 0
    for case in run.evaluation.measured.scope.cases:
        rows = [row for row in shown if (row["task"], row["length"]) == (case.task, case.length)]
        assert sum(row["score"] == 100 and "flip" not in row for row in rows) <= RIGHT_PER_CASE
        assert all("question" in row["excerpt"] for row in rows if row["score"] < 100)


def test_the_page_states_how_many_samples_it_has() -> None:
    run = run_summary(samples=20, suite="ruler")
    rows = sample_rows(run.run.cases, run.evaluation.measured.results, 60_000)
    text = page(document(run), run, budget_bytes=60_000)
    assert f"This file holds {len(rows)} of 1,040 samples: " in text
    assert "The journal holds all of them." in text


def sample(context: str, references: tuple[str, ...], depths: tuple[float, ...]) -> Sample:
    text = f"Read this.\n{context}\nWhat is the value of k?\nAnswer:"
    return Sample(
        task="t", length=1024, index=0, seed=0, source="archive", context=context, question="k",
        answer_prefix="Answer:", references=references, depths=depths, rank=None, distractors=(),
        prompt=Prompt(text=text, token_ids=(), length_tokens=0, generation_tokens=1),
    )  # fmt: skip


def test_an_excerpt_shows_the_needle_of_the_question_and_not_a_needle_with_the_same_value() -> None:
    filler = "All work and no play. " * 2000
    context = f"The value is 77 early. {filler}The value is 77 late. {filler}End."
    depth = context.index("77 late") / len(context)
    excerpt = excerpt_of(sample(context, ("77",), (depth,)))
    assert excerpt.question == "What is the value of k?\nAnswer:"
    assert (excerpt.needle, excerpt.after[:5]) == ("77", " late")
    assert excerpt.before.endswith("The value is ")
    assert (excerpt.head, excerpt.tail) == (context[:160], context[-160:])


@pytest.mark.parametrize(("references", "depths"), [((), ()), (("gone",), (0.5,)), (("x",), ())])
def test_an_excerpt_without_a_known_depth_and_a_long_reference_has_no_needle(
    references: tuple[str, ...], depths: tuple[float, ...]
) -> None:
    excerpt = excerpt_of(sample("one x two", references, depths))
    assert (excerpt.before, excerpt.needle, excerpt.after) == ("", "", "")
    assert excerpt.head == "one x two"


def test_an_excerpt_without_a_depth_is_centred_on_the_first_reference_in_the_text() -> None:
    context = "Flats. " * 100 + "The lease ends on 28 May 2032. " + "Rents. " * 100
    excerpt = excerpt_of(sample(context, ("2032-05-28", "28 May 2032"), ()))
    assert excerpt.before.endswith("The lease ends on ")
    assert (excerpt.needle, excerpt.after[:2]) == ("28 May 2032", ". ")
