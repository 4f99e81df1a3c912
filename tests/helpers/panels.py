"""Random panels, with the scores that the models would reach on them."""

from hypothesis import settings
from hypothesis import strategies as st

from longctx.plugins.evidence.sequential import Hypothesis, NonInferiority
from longctx.plugins.verdicts.panels import Comparison, ModelRole, Panel
from tests.helpers.queues import Scores, SimulatedRun, case, draw_scores

TASKS = ("a", "b", "c", "d")
SEEDS = st.integers(0, 1000)
THRESHOLDS = st.sampled_from([None, 0.3, 0.5, 0.85])
SHARES = st.sampled_from([0.0, 0.4, 0.8, 0.95, 1.0])
PAIRING = NonInferiority(drop=0.3, alpha=0.01)
fast_settings = settings(deadline=None, derandomize=True, max_examples=12)


def ids(*tasks: str) -> frozenset[str]:
    """Return the ids of the tasks' cases at the length of `panel_of`."""
    return frozenset(case(task).id for task in tasks)


def panel_of(
    samples: int, *hypotheses: Hypothesis, tasks: tuple[str, ...] = TASKS, seed: int = 0, full: bool = False
) -> Panel:
    return Panel(
        "ruler", 1024, [case(task, 1024, samples) for task in tasks], seed=seed, hypotheses=hypotheses, full=full
    )


@st.composite
def simulated_runs(draw: st.DrawFn) -> SimulatedRun:
    """Draw a panel with random hypotheses and scores, before any sample is measured."""
    tasks = TASKS[: draw(st.integers(1, 4))]
    hypotheses = draw(
        st.lists(
            st.builds(
                Hypothesis,
                case_ids=st.sets(st.sampled_from(tasks), min_size=1).map(lambda chosen: ids(*chosen)),
                threshold=THRESHOLDS,
                indifference_zone=st.sampled_from([0.0, 0.05]),
                drives_sampling=st.sampled_from([True, True, True, False]),
            ),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    panel = panel_of(draw(st.integers(3, 45)), *hypotheses, tasks=tasks, full=draw(st.integers(0, 4)) == 0)
    shares = {name: draw(SHARES) for name in panel.cases}
    truth: dict[ModelRole, Scores] = {"model": draw_scores(panel, shares, draw(SEEDS))}
    final_baseline = None
    if draw(st.booleans()):
        panel.comparisons = (Comparison(hypothesis=PAIRING),)
        baseline = draw_scores(panel, {name: draw(SHARES) for name in shares}, draw(SEEDS))
        if draw(st.booleans()):
            truth["baseline"] = baseline
        else:
            gap = draw(st.integers(0, len(baseline)))
            final_baseline = {ref: score for position, (ref, score) in enumerate(baseline.items()) if position != gap}
    return SimulatedRun(panel, truth, final_baseline)


def without_case(failing: str, scores: Scores) -> Scores:
    """Return the scores of all cases but `failing`, which is a case id."""
    return {ref: score for ref, score in scores.items() if ref.case_id != failing}


def unmeasured_copy(run: SimulatedRun) -> SimulatedRun:
    """Return the same run before any sample is measured."""
    return SimulatedRun(run.panel, run.truth, run.final_baseline)
