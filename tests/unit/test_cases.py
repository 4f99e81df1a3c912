"""Cases that cannot fit their length: a few samples decide, with the same result as all of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.cases import cases_that_cannot_fit
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tasks.sample_spec import Draft, SampleSpec
from longctx.fixtures.tasks.task import CannotFit, Task
from tests.helpers.outcomes import case_of
from tests.helpers.tiny_tokenizers import GENERATED, formatter

LENGTH = 1000
SAMPLES = 18


def needed_tokens(task: Task, length: int, index: int, kind: str) -> int:
    try:
        _, prompt = task.shortest_draft(length, index, seed=3, tokenizer=formatter(kind), corpora=GENERATED)
    except CannotFit as error:
        return error.needed_tokens
    return prompt.length_tokens + prompt.generation_tokens


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("cwe", kind) for kind in ("pieces", "byte level", "llama like")),
        ("infbench_sum", "byte level"), ("infbench_mc", "llama like"), ("json_kv", "byte level"),
        ("hotpotqa", "pieces"), ("qampari", "pieces"), ("niah_multikey_2", "pieces"), ("qa_1", "pieces"),
    ],
)  # fmt: skip
def test_a_few_samples_give_the_same_result_as_all_of_them(name: str, kind: str) -> None:
    """Test lengths that all but the longest one or two samples fit, and some that are much shorter and longer."""
    task = TASKS[name]
    usual = needed_tokens(task, 6000, 0, kind)
    *_, second, longest = sorted(needed_tokens(task, usual, index, kind) for index in range(SAMPLES))
    lengths = sorted({usual // 8, second - 1, longest - 1, longest * 21 // 20, 2 * longest})
    cases = [case_of(name, length, SAMPLES, group=task.group) for length in lengths]
    oversized = cases_that_cannot_fit(cases, TASKS, seed=3, formatter=formatter(kind), corpora=GENERATED)
    assert list(oversized) == [
        case.id
        for case in cases
        if any(needed_tokens(task, case.length, n, kind) > case.length for n in range(SAMPLES))
    ]
    assert 0 < len(oversized) < len(cases)


def fit_and_count(needed: Sequence[int], *, group: int = 1) -> tuple[bool, int]:
    """Return whether a case of LENGTH whose samples need these tokens fits, and how many samples were composed."""
    composed: list[int] = []

    def compose(spec: SampleSpec) -> Callable[[int], Draft]:
        composed.append(spec.index)
        # Every word is one token, and the text's BOS another one.
        text = " ".join(["a"] * (needed[spec.index] - task.generation_tokens - 1))
        return lambda room: Draft(context="", question="", user_text=text, answer_prefix="", references=("a",))

    task = replace(TASKS["vt"], compose=compose, group=group, separator="")
    cases = [case_of("vt", LENGTH, len(needed), group=group)]
    oversized = cases_that_cannot_fit(
        cases, {task.name: task}, seed=0, formatter=formatter("pieces"), corpora=GENERATED
    )
    assert len(set(composed)) == len(composed)
    return not oversized, len(composed)


@given(
    near=st.lists(st.integers(890, 910), min_size=1, max_size=40),
    beyond=st.lists(st.integers(LENGTH + 1, 1200), max_size=1),
    data=st.data(),
)
def test_texts_near_their_length_are_all_tested(near: list[int], beyond: list[int], data: st.DataObject) -> None:
    """Texts may differ by any amount, so a few of them say nothing about the others."""
    needed = data.draw(st.permutations([*near, *beyond]))
    is_fit, tested_count = fit_and_count(needed)
    assert is_fit == (not beyond)
    assert tested_count == (len(near) if is_fit else needed.index(beyond[0]) + 1)


def test_the_longest_sample_so_far_decides_how_many_are_tested() -> None:
    assert fit_and_count([200] * 9) == (True, 1)
    assert fit_and_count([400, *[200] * 8]) == (True, 2)
    assert fit_and_count([750, *[200] * 8]) == (True, 5)
    assert fit_and_count([*[700] * 3, 799, 700, LENGTH + 1]) == (True, 5)


@given(of_groups=st.lists(st.sampled_from((700, LENGTH + 1)), min_size=1, max_size=5))
def test_one_sample_of_every_group_is_tested_before_a_second_one(of_groups: list[int]) -> None:
    """The samples of a group share their text, so five of one group say no more than one."""
    needed = [tokens for tokens in of_groups for _ in range(6)]
    is_fit, tested_count = fit_and_count(needed, group=6)
    assert is_fit == (max(of_groups) <= LENGTH)
    assert is_fit or tested_count <= len(of_groups)
