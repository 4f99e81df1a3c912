"""Panels with any questions, and what their sides would score."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from plugins.gates.panels import ModelRole, Panel
from plugins.gates.sequential import Hypothesis, NonInferiority
from tests.helpers.queues import Scores, Work, case, drawn

TASKS = ("a", "b", "c", "d")
SEEDS = st.integers(0, 1000)
THRESHOLDS = st.sampled_from([None, 0.3, 0.5, 0.85])
SHARES = st.sampled_from([0.0, 0.4, 0.8, 0.95, 1.0])
PAIRING = NonInferiority(drop=0.3, clear=0.1, alpha=0.01)
quickly = settings(deadline=None, derandomize=True, max_examples=50)


def ids(*tasks: str) -> frozenset[str]:
    return frozenset(case(task).id for task in tasks)


def panel_of(
    samples: int, *rules: Hypothesis, tasks: tuple[str, ...] = TASKS, seed: int = 0, full: bool = False
) -> Panel:
    return Panel("ruler", 1024, [case(task, 1024, samples) for task in tasks], seed=seed, hypotheses=rules, full=full)


@st.composite
def works(draw: st.DrawFn) -> Work:
    """A panel with any questions, what its sides would score, and nothing done yet."""
    tasks = TASKS[: draw(st.integers(1, 4))]
    rules = draw(
        st.lists(
            st.builds(
                Hypothesis,
                case_ids=st.sets(st.sampled_from(tasks), min_size=1).map(lambda some: ids(*some)),
                threshold=THRESHOLDS,
                indifference_zone=st.sampled_from([0.0, 0.05]),
                drives_sampling=st.sampled_from([True, True, True, False]),
            ),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    panel = panel_of(draw(st.integers(3, 45)), *rules, tasks=tasks, full=draw(st.integers(0, 4)) == 0)
    shares = {name: draw(SHARES) for name in panel.cases}
    truth: dict[ModelRole, Scores] = {"model": drawn(panel, shares, draw(SEEDS))}
    control = None
    if draw(st.booleans()):
        panel.non_inferiority = PAIRING
        baseline = drawn(panel, {name: draw(SHARES) for name in shares}, draw(SEEDS))
        if draw(st.booleans()):
            truth["baseline"] = baseline
        else:
            gap = draw(st.integers(0, len(baseline)))
            control = {element: score for at, (element, score) in enumerate(baseline.items()) if at != gap}
    return Work(panel, truth, control)


def without(failing: str, scores: Scores) -> Scores:
    return {element: score for element, score in scores.items() if element.case_id != failing}


def again(work: Work) -> Work:
    """The same work, with nothing done."""
    return Work(work.panel, work.truth, work.control)
