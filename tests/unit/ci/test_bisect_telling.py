"""The choice of the samples that tell good steps from bad ones, and the probability that the result shows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longctx.ci.bisect import measurements
from longctx.ci.bisect.compare import EndpointsError
from longctx.ci.bisect.journal_stats import Flip
from longctx.ci.bisect.measurements import telling_samples
from longctx.ci.bisect.posterior import EndpointVotes
from longctx.ci.bisect.report import percent
from longctx.ci.checkpoint_dirs import Step


def flip(index: int, before: float, after: float, case: str = "a") -> Flip:
    return Flip(
        case=case, index=index, expected=(), depth=None, before=before, after=after, answer_before="", answer_after=""
    )


def test_samples_that_became_worse_tell_and_those_that_became_better_only_vote() -> None:
    telling = telling_samples([flip(3, 1, 0), flip(5, 0, 1), flip(9, 1, 0)], {"a": 1})
    assert {place for place, _ in telling.contexts} == {("a", 3), ("a", 9)}
    assert telling.votes == EndpointVotes(worse=2, better=1)
    assert telling.values(2) == ("a:3,9",)


def test_more_samples_of_the_endpoints_keep_the_order_of_those_before() -> None:
    flips = [flip(index, 1, 0) for index in range(40)]
    few = telling_samples(flips[:15], {"a": 1})
    more = telling_samples(flips, {"a": 1}, few)
    assert more.contexts[:15] == few.contexts
    assert len(set(more.contexts)) == 40


def test_samples_of_a_context_come_together_and_their_losses_add_up() -> None:
    telling = telling_samples([flip(4, 1, 0), flip(6, 1, 0.5), flip(8, 0.0, 1.0)], {"a": 4})
    ((place, loss),) = telling.contexts
    assert (place, loss) == (("a", 1), 1.5)
    assert telling.values(1) == ("a:4,5,6,7",)
    good = {("a", index): 1.0 for index in range(4, 8)}
    reading = telling.reading(good, good | {("a", 4): 0.25}, 1)
    assert reading == (0.5,)


def test_small_differences_of_fractional_scores_do_not_tell() -> None:
    flips = [flip(0, 1.0, 0.0), flip(1, 1.0, 0.95), flip(2, 0.9, 1.0)]
    telling = telling_samples(flips, {"a": 1})
    assert telling.values(9) == ("a:0",)
    assert telling.votes == EndpointVotes(worse=1, better=0)


def test_a_reading_ends_at_the_first_unanswered_context() -> None:
    telling = telling_samples([flip(index, 1, 0) for index in range(3)], {"a": 1})
    first, second, _ = (place for place, _ in telling.contexts)
    good = {("a", index): 1.0 for index in range(3)}
    assert telling.reading(good, {first: 0.0}, 3) == (1.0,)
    assert telling.reading(good, {second: 0.0}, 3) == ()


def test_a_search_whose_journal_lost_the_endpoints_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no sample to ask for, every step would be measured on all of them."""
    monkeypatch.setattr(measurements, "stored_answers", lambda *_: {})
    suite: Any = SimpleNamespace(journal_fingerprint=str, samples=8)
    endpoints: Any = SimpleNamespace(report=SimpleNamespace(cases=[]), cases=("a",))
    steps = [Step(number=number, path=Path(f"step-{number}")) for number in range(3)]
    with pytest.raises(EndpointsError, match=r"^--journal: the answers of --good and --bad are gone"):
        measurements.Bisection(suite, steps, endpoints, confidence=0.99)


@pytest.mark.parametrize(
    ("probability", "text"), [(0.98999, "98.9 %"), (0.99, "99 %"), (0.9999, "99.9 %"), (1.0, "99.9 %")]
)
def test_a_probability_is_rounded_down_and_never_certain(probability: float, text: str) -> None:
    assert percent(probability) == text
