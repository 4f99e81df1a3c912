"""The number of judged answers is known before the first request to a judge."""

from dataclasses import replace

import pytest

from longctx.fixtures.records import Case, Options
from longctx.plugins.config.materials import judged_samples
from tests.helpers.outcomes import case_of
from tests.helpers.workers import options_of


def published(task: str, samples: int = 10) -> Case:
    return case_of(task, 8192, samples, source="published")


@pytest.fixture
def judged() -> Options:
    return replace(options_of("calibration:full"), judge_model="strict-judge", judge_url="http://127.0.0.1:1/v1")


def test_only_tasks_scored_by_the_judge_count(judged: Options) -> None:
    generated = replace(published("narrativeqa"), source="archive")
    cases = [generated, published("nq"), published("infbench_mc"), published("narrativeqa", 7)]
    assert judged_samples(judged, cases) == 7
    assert judged_samples(replace(judged, judge_model=None, judge_url=None), cases) == 0


def test_a_local_entailment_model_takes_citations_off_the_judge(judged: Options) -> None:
    cases = [published("asqa"), published("narrativeqa", 7)]
    assert judged_samples(judged, cases) == 17
    assert judged_samples(replace(judged, nli_model="/models/nli"), cases) == 7
