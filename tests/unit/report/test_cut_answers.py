"""Wrong answers that end within a right word, or are all one text, show a server that does not say what it does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from longctx.plugins.report.sections.server import _repeated_texts, cut_answers
from tests.helpers.queues import case, outcome, result


@pytest.mark.parametrize(
    ("texts", "tokens", "is_told"),
    [
        (["is 4815"] * 4, [5] * 4, True),
        (["is 4815"] * 3, [5] * 3, False),
        # A stop string of the server.
        (["is 48", "is 4815162, 48", "is 481", "is 48, 481"], [5, 6, 7, 8], False),
        (["is 48", "is 4815162, 48", "48", "is 48, 48"], [5, 6, 7, 8], True),
        (["is 9999"] * 4, [5] * 4, False),
        (["is 4815"] * 4 + ["is 9999"] * 5, [5] * 9, False),
        (["4815162 and"] * 4, [5] * 4, False),
    ],
)
def test_wrong_answers_that_end_within_a_right_word_after_one_number_of_tokens_show_a_limit(
    texts: list[str], tokens: list[int], is_told: bool
) -> None:
    outcomes = []
    for index, (text, number) in enumerate(zip(texts, tokens, strict=True)):
        answered = outcome(index, 0.0)
        generation = structs.replace(answered.generation, text=text, generated_tokens=number, finish="stop")
        outcomes.append(structs.replace(answered, generation=generation, references=("4815162",)))
    measured = result(case("niah_single_2", samples=len(texts)))
    note = cut_answers([replace(measured, outcomes=tuple(outcomes))])
    assert (note is not None) == is_told


@pytest.mark.parametrize(
    ("text", "finish", "characters"),
    [("is 48", "stop", ("8", "1")), ("is 48", "length", None), ("is 4815162", "stop", None), ("", "stop", None)],
)
def test_an_answer_ends_between_two_characters_of_a_right_word(
    text: str, finish: str, characters: tuple[str, str] | None
) -> None:
    answered = outcome(0, 0.0)
    generation = structs.replace(answered.generation, text=text, finish=finish)
    assert structs.replace(answered, generation=generation, references=("4815162",)).cut_between == characters


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["the same"] * 12, "12 of 12 questions of all cases: 'the same'"),
        (["the same"] * 6 + [f"other {index}" for index in range(6)], None),
        ([""] * 12, None),
    ],
)
def test_one_text_for_the_questions_of_several_small_cases_is_told_of(texts: list[str], said: str | None) -> None:
    results = []
    for number, name in enumerate(("niah_single_2", "niah_multikey_1")):
        outcomes = []
        for index in range(6):
            at = 6 * number + index
            answered = outcome(index, 0.0)
            generation = structs.replace(answered.generation, text=texts[at])
            outcomes.append(structs.replace(answered, generation=generation, references=(str(4815162 + at),)))
        results.append(replace(result(case(name, samples=6)), outcomes=tuple(outcomes)))
    notes = _repeated_texts(results)
    assert notes == ([] if said is None else [f"gave the same text to {said}"])
