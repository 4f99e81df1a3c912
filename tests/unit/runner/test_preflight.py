"""The instrument tested before the model: sound samples pass, every planted fault is sound."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tokenizers import processors

from longctx.fixtures.records import Sample, Score
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import fill_ratio, inspect_case, sample_problems
from tests.helpers.outcomes import case_of
from tests.helpers.tiny_tokenizers import (
    GENERATED,
    RULER,
    formatter,
    make_sample,
    make_samples,
    with_template,
)

NEEDLE = "niah_single_2"
# test_helmet_tasks.py checks HELMET's samples in the same way, at lengths that they fit.
every_ruler_task = pytest.mark.parametrize("task", RULER)


def problems(sound: Sample) -> str:
    return "\n".join(sample_problems(sound, TASKS[sound.task], formatter()))


def always(value: float) -> Callable[[Sample, str], Score]:
    return lambda sample, text: Score(value=value)


def chat_problems(template: str) -> list[str]:
    chat = PromptFormatter(with_template(template))
    sound = TASKS[NEEDLE].sample(2048, 0, seed=0, tokenizer=chat, corpora=GENERATED)
    return sample_problems(sound, TASKS[NEEDLE], chat)


# --- sound samples ---


@every_ruler_task
@pytest.mark.parametrize("length", [1024, 4096])
def test_sound_samples_have_no_problems(task: str, length: int) -> None:
    tested = make_samples(task, 8, length)
    inspection = inspect_case(case_of(task, tested[0].length, 8), tested, TASKS[task], formatter())
    assert inspection.problems == ()
    assert inspection.samples == 8
    assert inspection.min_fill == min(map(fill_ratio, tested))


def test_an_inspection_collects_the_problems_of_all_samples() -> None:
    sound, short = make_samples(NEEDLE, 2)
    broken = replace(short, prompt=replace(short.prompt, length_tokens=100))
    inspection = inspect_case(case_of(NEEDLE, sound.length, 2), [sound, broken], TASKS[NEEDLE], formatter())
    assert inspection.problems == ("sample 1: prompt and answer fill only 228 tokens of 4096",)
    assert inspection.min_fill == pytest.approx(228 / 4096)


# --- planted faults in the prompt ---


@pytest.mark.parametrize(
    ("template", "found"),
    [
        (
            "{{ bos_token }}system\n{{ bos_token }}{{ messages[0]['content'] }}\n",
            ["the prompt holds 2 BOS tokens instead of one at its start"],
        ),
        ("{{ bos_token }}{{ messages[0]['content'] | trim }}\n", []),
    ],
)
def test_a_template_with_a_second_bos_is_reported_and_one_that_trims_is_not(template: str, found: list[str]) -> None:
    """One that changes the text itself makes no prompt (tests/unit/tokenization/test_bounded.py)."""
    assert chat_problems(template) == found


@pytest.mark.parametrize(("opening", "count"), [("", 1), ("{{ bos_token }}", 2)])
def test_a_second_bos_is_reported_where_every_turn_begins_with_one(opening: str, count: int) -> None:
    """The tokenizer itself adds none, as that of a model whose BOS marks the start of a turn."""
    turns = "{{ bos_token }}system\n{{ bos_token }}user\n{{ messages[0]['content'] }}\n"
    chat = PromptFormatter(with_template(opening + turns, post_processor=processors.ByteLevel()))
    sample = TASKS[NEEDLE].sample(2048, 0, seed=0, tokenizer=chat, corpora=GENERATED)
    expected = ["the prompt begins with two BOS tokens; correct the chat template"] if count == 2 else []
    assert sample_problems(sample, TASKS[NEEDLE], chat) == expected


@pytest.mark.parametrize("change", ["none", "late", "twice"])
def test_ids_without_exactly_one_bos_at_their_start_are_reported(change: str) -> None:
    sound = make_sample(NEEDLE)
    bos, *rest = sound.prompt.token_ids
    ids = {"none": rest, "late": [*rest, bos], "twice": [bos, bos, *rest]}[change]
    count = {"none": 0, "late": 1, "twice": 2}[change]
    broken = replace(sound, prompt=replace(sound.prompt, token_ids=tuple(ids)))
    assert problems(broken) == f"the prompt holds {count} BOS tokens instead of one at its start"


def test_a_prompt_without_its_answer_prefix_is_reported() -> None:
    sound = make_sample(NEEDLE)
    broken = replace(sound, prompt=replace(sound.prompt, text=sound.prompt.text.removesuffix(" is")))
    assert "changed or cut the text" in problems(broken)


def test_an_overlong_prompt_is_reported() -> None:
    sound = make_sample(NEEDLE)
    broken = replace(sound, prompt=replace(sound.prompt, length_tokens=4096 - 127))
    assert problems(broken) == "prompt and answer take 4097 tokens of 4096"
    assert problems(replace(sound, prompt=replace(sound.prompt, length_tokens=4096 - 128))) == ""


@pytest.mark.parametrize(
    ("task", "length", "fill_share"),
    [(NEEDLE, 4096, 0.97), ("cwe", 4096, 0.93), (NEEDLE, 2048, 0.94), ("qa_1", 1024, 0.72)],
)
def test_an_underfilled_prompt_is_reported(task: str, length: int, fill_share: float) -> None:
    sound = make_sample(task, length)
    least = round(fill_share * length) + 1 - sound.prompt.generation_tokens
    assert problems(replace(sound, prompt=replace(sound.prompt, length_tokens=least))) == ""
    broken = replace(sound, prompt=replace(sound.prompt, length_tokens=least - 3))
    assert f"fill only {least - 3 + sound.prompt.generation_tokens} tokens of {length}" in problems(broken)


# --- planted faults in the answer ---


@every_ruler_task
def test_a_missing_answer_is_reported(task: str) -> None:
    sound = make_sample(task)
    context = sound.context
    for reference in sound.references:
        context = re.sub(re.escape(reference), "nothing", context, flags=re.IGNORECASE)
    broken = replace(sound, context=context, prompt=replace(sound.prompt, text=sound.prompt.text + context))
    assert "the reference is not in the context" in problems(broken)


@pytest.mark.parametrize("task", [task for task in TASKS if TASKS[task].metric == "string_match_all"])
def test_one_missing_answer_of_several_is_reported(task: str) -> None:
    sound = make_sample(task)
    assert "the reference is not in the context" in problems(
        replace(sound, context=sound.context.replace(sound.references[-1], "nothing"))
    )


@pytest.mark.parametrize("task", [task for task in TASKS if task.startswith("niah_")])
def test_a_value_that_occurs_twice_is_reported(task: str) -> None:
    sound = make_sample(task)
    value = sound.references[-1]
    assert f"the reference {value!r} occurs 2 times in the context" in problems(
        replace(sound, context=f"{sound.context} {value}")
    )


def test_a_reference_that_occurs_twice_is_reported() -> None:
    sound = make_sample("niah_multivalue")
    broken = replace(sound, references=(*sound.references[:3], sound.references[0]))
    assert "a reference occurs twice" in problems(broken)


@pytest.mark.parametrize(
    ("value", "problem"),
    [(0.0, "right answer '{}' scores 0 and not 100"), (1.0, "empty answer '' scores 100 and not 0")],
)
def test_a_metric_that_does_not_reward_the_right_answer_is_reported(value: float, problem: str) -> None:
    sound = make_sample(NEEDLE)
    constant = replace(TASKS[NEEDLE], grade=always(value))
    assert sample_problems(sound, constant, formatter())[-1] == f"the {problem.format(sound.references[0])}"
