"""A model that no longer ends its answers is named, whatever its scores are; an unchanged one is not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from longctx.fixtures.records import CaseResult
from longctx.fixtures.records.report import ReportEndings
from longctx.plugins.verdicts.diagnoses import compare_endings
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured
from longctx.plugins.verdicts.hypotheses import shared_error
from tests.helpers.queues import case, result, scope_of, thresholds

Pair = tuple[str, str]
"""The finish reasons of a model's answer and its baseline's."""
ENDED = {"stop": True, "length": False}


def case_of(task: str, finishes: Sequence[Pair]) -> CaseResult:
    scores = (1.0,) * len(finishes)
    whole = result(case(task, 1024, len(finishes)), *scores, baseline=scores)
    outcomes = []
    for outcome, (finish, _) in zip(whole.outcomes, finishes, strict=True):
        outcomes.append(structs.replace(outcome, generation=structs.replace(outcome.generation, finish=finish)))
    others = tuple(ENDED.get(other) for _, other in finishes)
    return replace(whole, outcomes=tuple(outcomes), baseline_endings=others)


def endings_of(*results: CaseResult) -> ReportEndings | None:
    scope = scope_of([one.case for one in results], lengths=(1024,))
    measured = Measured(scope=scope, results={one.case.id: one for one in results})
    return compare_endings(GateEvaluator(thresholds(), measured))


@pytest.mark.parametrize(
    ("finishes", "counts", "is_lost"),
    [
        # 100 pairs, of which only the answers that are decoded to their end show it.
        ([("length", "stop")] * 8 + [("decided", "decided")] * 92, (8, 0, 8), True),
        ([("length", "stop")] * 4 + [("decided", "decided")] * 96, (4, 0, 4), False),
        ([("length", "length")] * 100, (100, 0, 0), False),
        ([("stop", "length")] * 20, (20, 20, 0), False),
        ([("length", "stop"), ("stop", "length")] * 20, (40, 20, 20), False),
        ([("length", "stop")] * 9 + [("stop", "stop")] * 30, (39, 30, 39), True),
        ([("length", "decided"), ("thinking", "stop")] * 20, None, False),
    ],
)
def test_the_loss_of_endings_is_shown_by_the_pairs_where_both_are_known(
    finishes: list[Pair], counts: tuple[int, int, int] | None, is_lost: bool
) -> None:
    endings = endings_of(case_of("t01", finishes))
    if counts is None:
        assert endings is None
    else:
        assert endings is not None
        assert (endings.pairs, endings.model, endings.baseline, endings.lost) == (*counts, is_lost)


def test_endings_of_a_few_answers_of_every_case_are_added_up() -> None:
    endings = endings_of(*(case_of(f"t{number:02}", [("length", "stop")]) for number in range(10)))
    assert endings is not None
    assert endings.lost


@pytest.mark.parametrize(("pairs", "is_lost"), [(8, True), (7, False)])
def test_endings_that_fail_the_run_have_a_part_of_its_error(pairs: int, is_lost: bool) -> None:
    """At 1 % one sided loss of 7 pairs, 0.8 %, is shown alone; half of 1 % needs 8."""
    one = case_of("t01", [("length", "stop")] * pairs)
    measured = Measured(scope=scope_of([one.case], lengths=(1024,)), results={one.case.id: one})
    failing = replace(thresholds(), regression=structs.replace(thresholds().regression, endings="fail"))
    shown, alone = (compare_endings(GateEvaluator(given, measured)) for given in (failing, thresholds()))
    assert shown is not None
    assert alone is not None
    assert (shown.lost, alone.lost) == (is_lost, True)
    assert shared_error(failing, measured.scope) == shared_error(thresholds(), measured.scope) / 2
