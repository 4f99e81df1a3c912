"""Cases of different sizes are drawn equally often at first, in an order that leaving out others does not change."""

from collections import Counter
from itertools import takewhile

from longctx.plugins.evidence.sequential import Hypothesis
from longctx.plugins.verdicts.panels import Panel
from tests.helpers.panels import TASKS
from tests.helpers.queues import case

SIZES = dict(zip(TASKS, (400, 200, 100, 100), strict=True))
CASES = [case(task, 1024, size) for task, size in SIZES.items()]


def panel_of_sizes(seed: int = 0, threshold: float = 0.5) -> Panel:
    hypothesis = Hypothesis(case_ids=frozenset(each.id for each in CASES), threshold=threshold)
    return Panel("ruler", 1024, CASES, seed=seed, hypotheses=[hypothesis])


def test_cases_of_different_sizes_are_drawn_equally_often_at_first() -> None:
    drawn = Counter(ref.case_id for seed in range(20) for ref in panel_of_sizes(seed).order[:40])
    assert all(0.2 < count / drawn.total() < 0.3 for count in drawn.values()), drawn


def test_cases_of_one_size_keep_the_uniform_order() -> None:
    panel = Panel("ruler", 1024, [case(task, 1024, 50) for task in TASKS], seed=3, hypotheses=())
    assert panel.order == panel.queue(panel.cases, is_uniform=True).refs


def test_leaving_out_a_case_keeps_the_order_of_the_others() -> None:
    whole = panel_of_sizes()
    for left_out in CASES:
        part = Panel("ruler", 1024, [each for each in CASES if each is not left_out], seed=0, hypotheses=())
        assert part.order == tuple(ref for ref in whole.order if ref.case_id in part.cases)


def test_the_uniform_queue_begins_with_finished_samples() -> None:
    panel = panel_of_sizes()
    finished = set(panel.order[:300])
    uniform = panel.queue(panel.cases, is_uniform=True).refs
    begins = list(takewhile(finished.__contains__, uniform))
    assert 100 < len(begins) < 300
    for name in panel.cases:
        assert [ref for ref in panel.order if ref.case_id == name] == [ref for ref in uniform if ref.case_id == name]
