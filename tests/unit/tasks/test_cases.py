"""Which cases cannot fit is told from a few of their samples, and is what all of them would say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases import misfits
from fixtures.records import Case, Source
from fixtures.tasks import TASKS
from fixtures.tasks.task import CannotFit, Draft, SampleSpec, Task
from tests.helpers.tiny_tokenizers import GENERATED, formatter

LENGTH = 1000
SAMPLES = 18


def case(task: Task, length: int, samples: int, source: Source = "archive") -> Case:
    return Case(
        id=f"test_{task.family}[{task.name}-{length}]",
        suite=task.suite,
        category=task.category,
        task=task.name,
        length=length,
        samples=samples,
        source=source,
        generation_tokens=task.generation_tokens,
        group=task.group,
    )


def needed(task: Task, length: int, index: int, kind: str) -> int:
    try:
        _, prompt = task.shortest(length, index, seed=3, tokenizer=formatter(kind), corpora=GENERATED)
    except CannotFit as error:
        return error.needed_tokens
    return prompt.length_tokens + prompt.generation_tokens


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in ("cwe", "infbench_sum") for kind in ("pieces", "byte level", "llama like")),
        ("json_kv", "byte level"), ("hotpotqa", "pieces"), ("qampari", "pieces"), ("infbench_mc", "llama like"),
    ],
)  # fmt: skip
def test_what_a_few_samples_tell_is_what_all_of_them_say(name: str, kind: str) -> None:
    """At lengths that all but the longest one or two fit, and at some that are much shorter and longer."""
    task = TASKS[name]
    usual = needed(task, 6000, 0, kind)
    *_, second, longest = sorted(needed(task, usual, index, kind) for index in range(SAMPLES))
    lengths = sorted({usual // 8, second - 1, longest - 1, longest * 21 // 20, 2 * longest})
    cases = [case(task, length, SAMPLES) for length in lengths]
    found = misfits(cases, TASKS, seed=3, formatter=formatter(kind), corpora=GENERATED)
    assert list(found) == [
        each.id for each in cases if any(needed(task, each.length, n, kind) > each.length for n in range(SAMPLES))
    ]
    assert 0 < len(found) < len(cases)


def looked_at(needed: Sequence[int], *, source: Source = "archive", group: int = 1) -> tuple[bool, int]:
    """Of a case of LENGTH whose samples take so many tokens: whether it fits, and how many were looked at."""
    seen: list[int] = []

    def compose(spec: SampleSpec) -> Callable[[int], Draft]:
        seen.append(spec.index)
        # A word is a token, and the text's BOS another one.
        text = " ".join(["a"] * (needed[spec.index] - task.generation_tokens - 1))
        return lambda room: Draft(context="", question="", user_text=text, answer_prefix="", references=("a",))

    task = replace(TASKS["vt"], compose=compose, group=group, separator="")
    cases = [case(task, LENGTH, len(needed), source)]
    found = misfits(cases, {task.name: task}, seed=0, formatter=formatter("pieces"), corpora=GENERATED)
    assert len(set(seen)) == len(seen)
    return not found, len(seen)


@given(
    near=st.lists(st.integers(890, 910), min_size=1, max_size=40),
    beyond=st.lists(st.integers(LENGTH + 1, 1200), max_size=1),
    data=st.data(),
)
def test_published_texts_near_their_length_are_looked_at_to_the_last(
    near: list[int], beyond: list[int], data: st.DataObject
) -> None:
    """How far they differ is nobody's to know."""
    needed = data.draw(st.permutations([*near, *beyond]))
    is_fit, seen = looked_at(needed, source="published")
    assert is_fit == (not beyond)
    assert seen == (len(near) if is_fit else needed.index(beyond[0]) + 1)


def test_generated_texts_that_differ_little_are_not_all_looked_at() -> None:
    """Ten samples with a mean of 900 and a deviation of 10 leave room for ten deviations."""
    assert looked_at([890, 910] * 50) == (True, 10)


def test_generated_texts_that_differ_much_are_looked_at_to_the_last() -> None:
    assert looked_at([700, 950] * 30) == (True, 60)
    assert looked_at([*[700, 950] * 30, LENGTH + 1]) == (False, 61)


def test_the_longest_of_those_seen_decides_how_many_are_looked_at() -> None:
    assert looked_at([200] * 9) == (True, 1)
    assert looked_at([400, *[200] * 8]) == (True, 2)
    assert looked_at([750, *[200] * 8]) == (True, 5)
    assert looked_at([*[700] * 3, 799, 700, LENGTH + 1]) == (True, 5)


@given(of_groups=st.lists(st.sampled_from((700, LENGTH + 1)), min_size=1, max_size=5))
def test_groups_are_looked_at_one_sample_each_before_any_twice(of_groups: list[int]) -> None:
    """Samples of one group ask the same of the same, so five of them would be one."""
    needed = [tokens for tokens in of_groups for _ in range(6)]
    is_fit, seen = looked_at(needed, group=6)
    assert is_fit == (max(of_groups) <= LENGTH)
    assert is_fit or seen <= len(of_groups)
