"""Every task at every length: a sample fits, is full, and is a pure function of its identity."""

import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from longctx.fixtures.cases import cases_that_cannot_fit
from longctx.fixtures.corpora import load_corpora
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.sample_spec import Draft
from longctx.fixtures.tasks.task import CannotFit
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.runner.samples import fill_ratio
from tests.helpers.outcomes import case_of
from tests.helpers.paths import REPOSITORY
from tests.helpers.tiny_tokenizers import GENERATED, KINDS, RULER, Pieces, formatter, make_sample

QA = ("qa_1", "qa_2")
# Their smallest unit is a word in all its repetitions, or a paragraph.
COARSE = ("cwe", "fwe", *QA)

every_task = pytest.mark.parametrize("task", RULER)
# Lengths between those that every kind of tokenizer is tested at.
PLAIN_LENGTHS = (("byte level", 2048), ("byte level", 4096))


def ids_of(kind: str, text: str) -> tuple[int, ...]:
    """Return the tokenizer's own ids of a text, with its BOS."""
    return tuple(formatter(kind).tokenizer(text, add_special_tokens=True, verbose=False)["input_ids"])


# --- length and fill ---


@every_task
@pytest.mark.parametrize(
    ("kind", "length"), [*((kind, length) for kind in KINDS for length in (1024, 5000)), *PLAIN_LENGTHS]
)
def test_a_sample_fits_its_length_and_fills_it(task: str, kind: str, length: int) -> None:
    for index in range(2):
        sample = make_sample(task, length, index, kind=kind)
        assert sample.prompt.length_tokens == len(sample.prompt.token_ids)
        assert sample.prompt.token_ids == ids_of(kind, sample.prompt.text)
        assert sample.prompt.token_ids.count(formatter(kind).tokenizer.bos_token_id) == 1
        assert sample.prompt.generation_tokens == RULER[task].generation_tokens
        assert fill_ratio(sample) <= 1
        if length >= 4096:
            assert fill_ratio(sample) >= (0.93 if task in COARSE else 0.97)


class Spanning(Pieces):
    """Its tokens reach over the ends of sentences, so that counts by addition are too high."""

    pattern = rf" ?[a-z]+\.\s+[A-Z]?[a-z]*|{Pieces.pattern}"


class Blocks(Pieces):
    """Cuts at every fifth character, so that counts by addition are off in both directions."""

    pattern = ".{1,5}"


@pytest.mark.parametrize(
    "tokenizer", [PromptFormatter(Spanning()), PromptFormatter(Blocks())], ids=["spanning", "blocks"]
)
@pytest.mark.parametrize("task", ["niah_single_1", "niah_single_2", "niah_multikey_2", "vt", "cwe", "fwe", "qa_1"])
def test_a_sample_is_full_where_counts_do_not_add_up(task: str, tokenizer: PromptFormatter) -> None:
    for index in range(3):
        sample = RULER[task].sample(4096, index, seed=0, tokenizer=tokenizer, corpora=GENERATED)
        assert RULER[task].least_fill <= fill_ratio(sample) <= 1


def test_a_sample_of_large_units_is_full_where_small_steps_change_nothing() -> None:
    """The second attempt is one unit too long, and only a large step back from there changes anything."""
    task = replace(TASKS["vt"], compose=lambda spec: partial(stepped, spec.input_tokens - 2))
    sample = task.sample(4096, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
    assert sample.prompt.length_tokens == 4096 - task.generation_tokens - 40


def test_essays_begin_again_behind_their_end(tmp_path: Path) -> None:
    (tmp_path / "PaulGrahamEssays.json").write_text('{"text": "One here. Two here. Three here."}')
    corpora = load_corpora(tmp_path)
    sample = RULER["niah_single_2"].sample(2048, 0, seed=0, tokenizer=formatter(), corpora=corpora)
    assert sample.context.count("Three here. One here.") > 20


def stepped(most: int, token_budget: int) -> Draft:
    """Return a prompt that is 150 tokens short for the whole budget, 40 for a larger one, and too long beyond that."""
    short = 150 if token_budget < most + 70 else 40 if token_budget < most + 110 else -1
    text = " a" * (most - short if token_budget else 1)
    return Draft(context=text, question="", user_text=text, answer_prefix="", references=("a",))


# --- samples that cannot fit ---


@every_task
@pytest.mark.parametrize("length", [1, 64, 150])
def test_a_prompt_that_cannot_fit_is_an_error_with_the_length_it_takes(task: str, length: int) -> None:
    with pytest.raises(CannotFit) as caught:
        RULER[task].sample(length, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
    needed = caught.value.needed_tokens
    assert needed > length
    assert str(caught.value).startswith(f"{task} at {length} tokens cannot fit: ")
    assert f"--lengths {needed}" in str(caught.value)
    # Another length draws other words, which may take a few tokens more.
    sample = RULER[task].sample(needed + needed // 5, 0, seed=0, tokenizer=formatter(), corpora=GENERATED)
    assert sample.prompt.length_tokens + sample.prompt.generation_tokens <= sample.length


def test_cases_that_cannot_fit_are_known_before_the_run() -> None:
    cases = [case_of(name, length, 2) for name in RULER for length in (150, 2048)]
    reasons = cases_that_cannot_fit(cases, RULER, seed=0, formatter=formatter(), corpora=GENERATED)
    assert list(reasons) == [case.id for case in cases if case.length == 150]
    assert all(
        line.startswith(f"{name} at 150 tokens cannot fit") for name, line in zip(RULER, reasons.values(), strict=True)
    )


# --- identity ---


@pytest.mark.parametrize("task", TASKS)
def test_a_sample_depends_on_its_identity_alone(task: str) -> None:
    length = 2048 if task in RULER else 5003

    def drawn(order: list[int], used: PromptFormatter) -> list[Sample]:
        return [TASKS[task].sample(length, index, seed=7, tokenizer=used, corpora=GENERATED) for index in order]

    first, second, third = drawn([0, TASKS[task].group, 7], PromptFormatter(Pieces()))
    assert drawn([7, 0], formatter("pieces")) == [third, first]
    of_other_seed = TASKS[task].sample(length, 0, seed=1, tokenizer=formatter("pieces"), corpora=GENERATED)
    assert len({sample.context for sample in (first, second, of_other_seed)}) == 3


@pytest.mark.parametrize("task", QA)
def test_every_length_asks_the_same_questions(task: str) -> None:
    """So that scores at two lengths differ by the length alone."""
    assert len({make_sample(task, length, kind="pieces").question for length in (2048, 4096, 16384)}) == 1


def test_every_suite_and_category_is_a_marker_of_the_project() -> None:
    """pytest refuses to collect a case with a marker that is not declared."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    declared = {line.partition(":")[0] for line in settings["tool"]["pytest"]["markers"]}
    assert {name for task in TASKS.values() for name in (task.suite, task.category)} <= declared
