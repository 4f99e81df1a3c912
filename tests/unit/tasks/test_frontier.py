"""Every frontier task: samples fit and fill, answers are exact, and answers without reading score their floor."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from statistics import mean

import pytest

from longctx.fixtures.cases import samples_fingerprint
from longctx.fixtures.corpora.published.ruler import vocabulary
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import load_tasks
from longctx.plugins.runner.samples import fill_ratio, sample_problems
from tests.helpers.tiny_tokenizers import FRONTIER, GENERATED, drafts, formatter

LENGTH = 4096
SAMPLES = 8
ANSWER_WORDS = 40
every_task = pytest.mark.parametrize("task", FRONTIER)


@cache
def samples(task: str) -> tuple[Sample, ...]:
    used = formatter("pieces")
    return tuple(
        FRONTIER[task].sample(LENGTH, index, seed=0, tokenizer=used, corpora=GENERATED) for index in range(SAMPLES)
    )


GUESSES: dict[str, Callable[[Sample], str]] = {
    "nothing": lambda sample: "",
    "blanks": lambda sample: " \n\t",
    "first words of the context": lambda sample: " ".join(sample.context.split()[:ANSWER_WORDS]),
    "last words of the prompt": lambda sample: " ".join(sample.prompt.text.split()[-ANSWER_WORDS:]),
    "the question": lambda sample: f"{sample.question} {sample.answer_prefix}",
    "random words": lambda sample: " ".join(Random(sample.index).choices(vocabulary(), k=30)),
}


@every_task
def test_a_sample_fits_fills_its_length_and_passes_preflight(task: str) -> None:
    for sample in samples(task)[:4]:
        assert FRONTIER[task].least_fill * (not sample.capped) <= fill_ratio(sample) <= 1
        assert sample_problems(sample, FRONTIER[task], formatter("pieces")) == []


@every_task
def test_the_perfect_answer_scores_1_and_its_likelihood_form_too(task: str) -> None:
    for sample in samples(task):
        assert FRONTIER[task].score(sample, FRONTIER[task].perfect_answer(sample)).value == 1
        assert sample.gold is not None
        assert FRONTIER[task].score(sample, sample.gold.text).value == 1
        assert len(sample.gold.query_text) < len(sample.gold.evidence_text) < len(sample.prompt.text)
        if sample.gold.foil is not None:
            assert FRONTIER[task].score(sample, sample.gold.foil).value < 1


@every_task
@pytest.mark.parametrize("guess", GUESSES)
def test_an_answer_without_reading_scores_no_more_than_the_floor(task: str, guess: str) -> None:
    scores = [FRONTIER[task].score(sample, GUESSES[guess](sample)) for sample in samples(task)]
    assert mean(score.value for score in scores) <= 0.05
    assert all(score.failure is not None for score in scores if score.value < 1)


def test_a_run_without_a_suite_has_no_frontier_case_and_keeps_its_keys() -> None:
    tasks = load_tasks()
    others = {name: task for name, task in tasks.items() if name not in FRONTIER}
    used = formatter("pieces")
    assert samples_fingerprint(tasks, GENERATED, used) == samples_fingerprint(others, GENERATED, used)


CONSTANTS = {
    "count_labels": ("11", 0.33), "count_users": ("10000", 0.0), "world_one_fact": ("kitchen", 0.125),
    "world_two_arguments": ("kitchen", 0.125), "not_in_text": ("B", 0.25), "latent_list": ("5", 0.06),
}  # fmt: skip


@pytest.mark.parametrize("task", CONSTANTS)
def test_the_same_answer_to_every_question_scores_what_the_page_says(task: str) -> None:
    answer, floor = CONSTANTS[task]
    bare = samples(task)[0]
    scores = [
        FRONTIER[task].score(
            replace(bare, references=draft.references, question=draft.question, truth=draft.truth), answer
        )
        for draft in drafts(task, 150, token_budget=0)
    ]
    assert mean(score.value for score in scores) == pytest.approx(floor, abs=0.1)
