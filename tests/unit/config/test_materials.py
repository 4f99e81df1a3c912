"""The cost of judging is estimated before the first request to a judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longctx.fixtures.records import Case, Options
from longctx.fixtures.tasks import TASKS
from longctx.plugins.config.materials import judge_cost
from tests.helpers.workers import options_of


def published(task: str, samples: int = 10) -> Case:
    of = TASKS[task]
    return Case(
        id=f"test_{of.family}[{task}-8k]", suite=of.suite, category=of.category, task=task, length=8192,
        samples=samples, source="published", generation_tokens=of.generation_tokens,
    )  # fmt: skip


@pytest.fixture
def judged() -> Options:
    return replace(options_of("calibration:full"), judge_model="strict-judge", judge_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(("task", "calls"), [("narrativeqa", 10), ("infbench_sum", 30), ("multi_lexsum", 30)])
def test_an_answer_takes_one_call_and_a_summary_three(judged: Options, task: str, calls: int) -> None:
    cost = judge_cost(judged, [published(task)], TASKS)
    assert cost is not None
    assert cost.calls == calls
    longest = TASKS[task].generation_tokens
    assert cost.prompt_tokens > calls * longest


def test_only_tasks_scored_by_the_judge_cost_anything(judged: Options) -> None:
    generated = replace(published("narrativeqa"), source="archive")
    assert judge_cost(judged, [generated, published("nq"), published("infbench_mc")], TASKS) is None
    assert judge_cost(replace(judged, judge_model=None, judge_url=None), [published("narrativeqa")], TASKS) is None


def test_a_local_entailment_model_takes_citations_off_the_judge(judged: Options) -> None:
    cases = [published("asqa"), published("narrativeqa")]
    both, spared = (judge_cost(options, cases, TASKS) for options in (judged, replace(judged, nli_model="/models/nli")))
    assert both is not None
    assert spared is not None
    assert spared.calls == 10
    assert both.calls > 10 * spared.calls
