"""Wrong answers that are right for other samples show a server that mixes up its requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from longctx.fixtures.records import Case, CaseResult, Generation, Outcome, Score
from longctx.plugins.verdicts.mixed_answers import mixed_up_cases, mixed_up_note

SAMPLES = 12


def case_of(answer: Callable[[int], str], references: Callable[[int], str]) -> CaseResult:
    """Return a case whose sample i has these references and this answer."""
    case = Case(
        id="test_ruler[x-1k]", suite="ruler", category="x", task="x", length=1024, samples=SAMPLES, source="archive",
        generation_tokens=9,
    )  # fmt: skip
    outcomes = tuple(
        Outcome(
            index=index,
            score=Score(value=float(all(each in answer(index) for each in references(index).split()))),
            generation=Generation(
                text=answer(index), prompt_tokens=9, generated_tokens=9, computed_tokens=9, reused_tokens=0,
                finish="stop", seconds=0,
            ),
            references=tuple(references(index).split()),
            depths=(),
        )
        for index in range(SAMPLES)
    )  # fmt: skip
    return CaseResult(case=case, outcomes=outcomes, seconds=0)


def number(index: int) -> str:
    return f"{7919 * (index + 200)}"


WORDS = (
    "anchor", "barley", "candle", "dragon", "engine", "falcon", "garden", "hammer", "island", "jacket", "kettle",
    "ladder", "marble", "needle",
)  # fmt: skip


def colour(index: int) -> str:
    return ("crimson", "turquoise", "magenta")[index % 3]


WRONG: dict[str, tuple[Callable[[int], str], Callable[[int], str], bool]] = {
    "the previous answer": (lambda index: f" {number(index - 1)}.", number, True),
    "pairs of answers swapped": (lambda index: number(index ^ 1) if index < 6 else number(index), number, True),
    "one answer to all": (lambda _: number(3), number, True),
    "all right": (number, number, False),
    "all wrong": (lambda index: f"{number(index)}1"[1:], number, False),
    "empty": (lambda _: "", number, False),
    "one swapped": (lambda index: number(2 if index == 1 else index), number, False),
    "one of several references of the previous sample": (
        lambda index: number(index - 1),
        lambda index: f"{number(index)} {number(index + 50)}",
        True,
    ),
    "one of several words of the previous sample": (
        lambda index: WORDS[index - 1],
        lambda index: f"{WORDS[index]} {WORDS[-index]}",
        False,
    ),
    "classes that many samples share": (lambda index: colour(index + 1), colour, False),
}


@pytest.mark.parametrize("name", WRONG)
def test_answers_that_belong_to_other_samples_are_an_error(name: str) -> None:
    answer, references, is_mixed = WRONG[name]
    errors = mixed_up_cases([case_of(answer, references)])
    assert bool(errors) == is_mixed
    assert all("wrong answers are the right answers to other samples" in error for error in errors.values())


@pytest.mark.parametrize(("moved", "is_error"), [(1, True), (0, False)])
def test_a_few_random_numbers_of_other_samples_are_an_error_of_all_cases_together(moved: int, is_error: bool) -> None:
    """Two cases with one such answer each, which alone would prove nothing."""

    def case(name: str, first: int) -> CaseResult:
        def code(index: int) -> str:
            return f"{7919 * (index + first)}"

        def answer(index: int) -> str:
            return code(index + moved) if index == 3 else "" if index < 3 else code(index)

        result = case_of(answer, code)
        return replace(result, case=replace(result.case, id=name))

    one, other = case("x", 200_000), case("y", 300_000)
    assert mixed_up_cases([one]) == {}
    assert set(mixed_up_cases([one, other])) == ({"x", "y"} if is_error else set())


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        (lambda index: number(2 if index == 1 else index), True),
        (lambda index: "9999999" if index == 1 else number(index), False),
        (number, False),
        # Right answers that have them too show that samples share their numbers.
        (lambda index: number(2 if index == 1 else index) + (f" {number(5)}" if index == 8 else ""), False),
    ],
    ids=["one of another", "one of none", "all right", "one of another, one right"],
)
def test_a_single_number_of_another_sample_is_told_of(answer: Callable[[int], str], is_told: bool) -> None:
    note = mixed_up_note([case_of(answer, number)])
    assert (note is not None) == is_told
    assert note is None or note.startswith("has in 1 of 1 wrong answers a number that was drawn for another sample")


def test_many_samples_may_share_a_number_by_chance() -> None:
    def all_wrong(number_of_case: int) -> CaseResult:
        result = case_of(lambda _: "?", lambda index: number(20 * number_of_case + index))
        return replace(result, case=replace(result.case, id=f"test_ruler[y{number_of_case}-1k]"))

    def cases(count: int) -> list[CaseResult]:
        """A case whose second answer is the third's, and others whose answers are all wrong."""
        first = case_of(lambda index: number(2 if index == 1 else index), number)
        return [first, *map(all_wrong, range(1, count))]

    assert mixed_up_note(cases(2)) is not None
    assert mixed_up_note(cases(12)) is None
