"""Wrong answers that end within a right word show a server that limits answers without saying so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from longctx.plugins.report.sections.server import cut_answers
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
