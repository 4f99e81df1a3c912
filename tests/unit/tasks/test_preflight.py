"""The instrument tested before the model: sound samples pass, every planted fault is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from fixtures.preflight import fill, inspect_case, problems_of, uneven_depths
from fixtures.records import Case, Sample, Score
from fixtures.tasks import TASKS
from fixtures.tokenization.prompts import PromptFormatter
from tests.helpers.tiny_tokenizers import BOS, GENERATED, RULER, drafts, formatter, sample, samples

NEEDLE = "niah_single_2"
# HELMET's samples are held to the same rules in test_helmet_tasks.py, at lengths that they fit.
every_task = pytest.mark.parametrize("task", RULER)


def case_of(found: Sample, count: int) -> Case:
    task = TASKS[found.task]
    return Case(
        id=f"test_ruler[{task.name}-4k]",
        suite="ruler",
        category=task.category,
        task=task.name,
        length=found.length,
        samples=count,
        source="archive",
        generation_tokens=task.generation_tokens,
    )


def problems(found: Sample) -> str:
    return "\n".join(problems_of(found, TASKS[found.task], formatter()))


def always(value: float) -> Callable[[Sample, str], Score]:
    return lambda sample, text: Score(value=value)


def with_template(template: str) -> PromptFormatter:
    tokenizer = deepcopy(formatter().tokenizer)
    tokenizer.chat_template = template
    return PromptFormatter(tokenizer)


def chat_problems(template: str) -> list[str]:
    chat = with_template(template)
    found = TASKS[NEEDLE].sample(2048, 0, seed=0, tokenizer=chat, corpora=GENERATED)
    return problems_of(found, TASKS[NEEDLE], chat)


# --- sound samples ---


@every_task
@pytest.mark.parametrize("length", [1024, 4096])
def test_sound_samples_have_no_problems(task: str, length: int) -> None:
    found = samples(task, 8, length)
    inspection = inspect_case(case_of(found[0], 8), found, TASKS[task], formatter())
    assert inspection.problems == ()
    assert inspection.samples == 8
    assert inspection.least_fill == min(map(fill, found))
    assert inspection.mean_fill == pytest.approx(sum(map(fill, found)) / 8)
    assert 0 < inspection.least_fill <= inspection.mean_fill <= 1


@pytest.mark.parametrize("task", ["niah_single_1", "niah_multikey_1", "niah_multikey_2"])
def test_sixty_sound_samples_have_even_depths(task: str) -> None:
    found = (sample(task, 1024, index) for index in range(60))
    assert inspect_case(case_of(sample(task, 1024), 60), found, TASKS[task], formatter()).problems == ()


def test_an_inspection_adds_up_the_problems_of_all_samples() -> None:
    sound, short = samples(NEEDLE, 2)
    broken = replace(short, prompt=replace(short.prompt, length_tokens=100))
    inspection = inspect_case(case_of(sound, 2), [sound, broken], TASKS[NEEDLE], formatter())
    assert inspection.problems == ("sample 1: prompt and answer fill only 228 tokens of 4096",)
    assert inspection.least_fill == pytest.approx(228 / 4096)


# --- planted faults in the prompt ---


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0]['content'][:2000] }}",
        "{{ messages[0]['content'][-2000:] }}",
        "{{ messages[0]['content'] | replace('One of', 'Some of') }}",
        "{{ messages[0]['content'] | upper }}",
        "hello",
    ],
)
def test_a_template_that_changes_or_cuts_the_text_is_found(template: str) -> None:
    assert "the chat template changed or cut the text; try --chat off" in chat_problems(template)


def test_a_template_that_only_trims_the_text_is_sound() -> None:
    assert chat_problems("{{ bos_token }}{{ messages[0]['content'] | trim }}\n") == []


def test_a_second_bos_is_found() -> None:
    lines = chat_problems("{{ bos_token }}system\n{{ bos_token }}{{ messages[0]['content'] }}\n")
    assert lines == ["the prompt holds 2 BOS tokens instead of one at its start"]


@pytest.mark.parametrize("change", ["none", "late", "twice"])
def test_ids_without_one_bos_in_front_are_found(change: str) -> None:
    found = sample(NEEDLE)
    bos, *rest = found.prompt.token_ids
    ids = {"none": rest, "late": [*rest, bos], "twice": [bos, bos, *rest]}[change]
    count = {"none": 0, "late": 1, "twice": 2}[change]
    broken = replace(found, prompt=replace(found.prompt, token_ids=tuple(ids)))
    assert problems(broken) == f"the prompt holds {count} BOS tokens instead of one at its start"


def test_a_prompt_without_its_answer_prefix_is_found() -> None:
    found = sample(NEEDLE)
    broken = replace(found, prompt=replace(found.prompt, text=found.prompt.text.removesuffix(" is")))
    assert "changed or cut the text" in problems(broken)


def test_an_overlong_prompt_is_found() -> None:
    found = sample(NEEDLE)
    broken = replace(found, prompt=replace(found.prompt, length_tokens=4096 - 127))
    assert problems(broken) == "prompt and answer take 4097 tokens of 4096"
    assert problems(replace(found, prompt=replace(found.prompt, length_tokens=4096 - 128))) == ""


@pytest.mark.parametrize(
    ("task", "length", "enough"),
    [(NEEDLE, 4096, 0.97), ("cwe", 4096, 0.93), (NEEDLE, 2048, 0.94), ("qa_1", 1024, 0.72)],
)
def test_an_underfilled_prompt_is_found(task: str, length: int, settled_by: float) -> None:
    found = sample(task, length)
    least = round(settled_by * length) + 1 - found.prompt.generation_tokens
    assert problems(replace(found, prompt=replace(found.prompt, length_tokens=least))) == ""
    broken = replace(found, prompt=replace(found.prompt, length_tokens=least - 3))
    assert f"fill only {least - 3 + found.prompt.generation_tokens} tokens of {length}" in problems(broken)


# --- planted faults in the answer ---


@every_task
def test_an_answer_in_the_question_or_prefix_is_found(task: str) -> None:
    found = sample(task)
    told = f"Is it {found.references[0]}?"
    for broken in (replace(found, question=told), replace(found, answer_prefix=told)):
        assert f"the answer {found.references[0]!r} stands in the question" in problems(broken)


@every_task
def test_a_missing_answer_is_found(task: str) -> None:
    found = sample(task)
    context = found.context
    for reference in found.references:
        context = re.sub(re.escape(reference), "nothing", context, flags=re.IGNORECASE)
    broken = replace(found, context=context, prompt=replace(found.prompt, text=found.prompt.text + context))
    assert "the answer is not in the context" in problems(broken)


@pytest.mark.parametrize("task", [task for task in TASKS if TASKS[task].metric == "string_match_all"])
def test_one_missing_answer_of_several_is_found(task: str) -> None:
    found = sample(task)
    assert "the answer is not in the context" in problems(
        replace(found, context=found.context.replace(found.references[-1], "nothing"))
    )


@pytest.mark.parametrize("task", [task for task in TASKS if task.startswith("niah_")])
def test_a_value_that_stands_twice_is_found(task: str) -> None:
    found = sample(task)
    value = found.references[-1]
    assert f"the answer {value!r} stands 2 times in the context" in problems(
        replace(found, context=f"{found.context} {value}")
    )


def test_a_reference_that_occurs_twice_is_found() -> None:
    found = sample("niah_multivalue")
    broken = replace(found, references=(*found.references[:3], found.references[0]))
    assert "a reference occurs twice" in problems(broken)


def test_a_score_that_the_right_answer_does_not_reach_is_found() -> None:
    found = sample(NEEDLE)
    said = "the right answer does not score 100, or an empty one does not score 0"
    for value, more in ((0.0, []), (1.0, ["the question scores as an answer"])):
        deaf = replace(TASKS[NEEDLE], grade=always(value))
        assert problems_of(found, deaf, formatter()) == [*more, said]


# --- depths ---


def drawn(places: int, count: int, seed: int) -> list[tuple[int, int]]:
    random = Random(seed)
    return [(random.randrange(places), places) for _ in range(count)]


@pytest.mark.parametrize("places", [2, 3, 6, 7, 11, 40, 1000])
def test_even_depths_pass_however_few_places_there_are(places: int) -> None:
    """Six documents cannot fill five fifths alike, in hundreds of samples either."""
    for seed in range(20):
        assert uneven_depths(drawn(places, 500, seed)) == []


def test_the_ranks_of_few_paragraphs_pass() -> None:
    ranks = [found.rank for found in drafts("qa_1", 120, room=600) if found.rank is not None]
    assert max(places for _, places in ranks) < 12
    assert uneven_depths(ranks) == []


def test_even_depths_over_changing_numbers_of_places_pass() -> None:
    assert uneven_depths([rank for places in range(1, 30) for rank in drawn(places, 20, places)]) == []


@pytest.mark.parametrize(
    ("ranks", "counts"),
    [
        ([(0, 40)] * 50, "[50, 0, 0, 0, 0]"),
        ([(39, 40)] * 60, "[0, 0, 0, 0, 60]"),
        ([(3, 7)] * 60, "[0, 0, 60, 0, 0]"),
        ([(index % 32, 40) for index in range(128)], "[32, 32, 32, 32, 0]"),
        ([(0, 2)] * 60, "[60, 0, 0, 0, 0]"),
    ],
)
def test_skewed_depths_are_found(ranks: list[tuple[int, int]], counts: str) -> None:
    assert uneven_depths(ranks) == [f"depths are not uniform: {counts} in fifths"]


def test_few_samples_or_samples_without_a_choice_say_nothing_of_depths() -> None:
    assert uneven_depths([(0, 40)] * 49) == []
    assert uneven_depths([(0, 1)] * 500 + [(0, 40)] * 49) == []
    assert uneven_depths([]) == []


def test_a_case_whose_needle_never_moves_is_found() -> None:
    one = sample(NEEDLE)
    stuck = [replace(one, index=index, rank=(0, 40)) for index in range(50)]
    found = inspect_case(case_of(one, 50), stuck, TASKS[NEEDLE], formatter())
    assert found.problems == ("depths are not uniform: [50, 0, 0, 0, 0] in fifths",)


def test_the_bos_of_these_tests_is_a_token() -> None:
    assert formatter().tokenizer(BOS, add_special_tokens=False, verbose=False)["input_ids"] == [
        formatter().tokenizer.bos_token_id
    ]
