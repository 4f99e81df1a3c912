"""Outputs that stored results depend on change together with their versions in `fixtures/versions.py`."""

import pytest

from longctx.fixtures import versions
from longctx.fixtures.tasks import TASKS
from tests.golden.output import difference, read_recorded
from tests.golden.outputs import OUTPUTS


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind == "engines" else ()) for kind in OUTPUTS]
)
def test_outputs_are_as_recorded_for_their_version(kind: str) -> None:
    recorded, current = read_recorded(kind), list(OUTPUTS[kind]())
    assert [problem for output in current if (problem := difference(output, recorded))] == []
    assert recorded.keys() == {output.name for output in current}


def test_every_task_and_metric_has_a_version() -> None:
    assert versions.TASKS.keys() == TASKS.keys()
    assert versions.SCORING.keys() == {task.metric for task in TASKS.values()}
