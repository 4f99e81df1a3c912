"""GraphWalks: answers recounted from the text, and wrong answers by kind."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest

from fixtures.records import Sample
from fixtures.tasks import TASKS
from tests.helpers.tiny_tokenizers import drafts, make_sample

GRAPHS = [name for name, task in TASKS.items() if task.category == "graphs"]


def edges_of(context: str) -> list[tuple[str, str]]:
    return [(source, target) for source, target in re.findall(r"^(\w{10}) -> (\w{10})$", context, re.MULTILINE)]


def at_distance(edges: list[tuple[str, str]], start: str, depth: int) -> set[str]:
    reached, last = {start}, {start}
    for _ in range(depth):
        last = {target for source, target in edges if source in last} - reached
        reached |= last
    return last


@pytest.mark.parametrize("task", GRAPHS)
def test_an_answer_is_what_the_edges_of_the_text_say(task: str) -> None:
    sizes = Counter[int]()
    for draft in drafts(task, 25, token_budget=1200):
        edges = edges_of(draft.context)
        assert len(edges) == draft.context.count("\n") + 1
        node = re.findall(r"\w{10}", draft.question)[0]
        if "parents" in task:
            expected = {source for source, target in edges if target == node}
        else:
            expected = at_distance(edges, node, int(re.findall(r"exactly (\d)", draft.question)[0]))
        assert set(draft.references) == expected
        assert node not in expected
        assert expected.isdisjoint(draft.distractors)
        for answer, depth in zip(draft.references, draft.depths, strict=True):
            assert answer in edges[round(depth * (len(edges) - 1))]
        sizes[len(expected)] += 1
    assert len(sizes) > 3
    assert 1 <= min(sizes) <= 3
    assert 6 < max(sizes) <= 20


def test_only_the_shuffled_graphs_list_edges_out_of_order() -> None:
    for task in GRAPHS:
        sources = [source for source, _ in edges_of(drafts(task, 1, token_budget=2500)[0].context)]
        runs = sum(one != other for one, other in pairwise(sources)) + 1
        assert (runs == len(set(sources))) is not task.endswith("_shuffled")


def scored(sample: Sample, text: str) -> tuple[float, str | None]:
    score = TASKS[sample.task].score(sample, text)
    return round(score.value, 3), score.failure


def test_a_wrong_list_is_named_by_its_kind() -> None:
    sample = next(
        one for index in range(20) if len((one := make_sample("graph_bfs", 1024, index, kind="pieces")).references) == 4
    )
    first, *others = sample.references
    assert scored(sample, f"[{first}, {', '.join(others)}]") == (1, None)
    assert scored(sample, f"[{first}]") == (0.4, "incomplete")
    assert scored(sample, f"[{sample.distractors[0]}]") == (0, "distractor")
    assert scored(sample, "[]") == (0, "empty")
    assert scored(sample, " ".join(sample.context.split()[:12])) == (0, "copied")
    assert scored(sample, "[abc, def]") == (0, "wrong")
