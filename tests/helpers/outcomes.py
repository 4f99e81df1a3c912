"""Cases, answers and scored samples for tests that measure nothing."""

from collections.abc import Mapping
from typing import Any

from longctx.fixtures.records import Case, Generation, Outcome, Score
from longctx.fixtures.tasks import TASKS


def case_of(task: str, length: int, samples: int, **changes: Any) -> Case:
    """Return a case of a task of the suite."""
    known = TASKS[task]
    plain: Mapping[str, Any] = {
        "id": f"test_{known.family}[{task}-{length}]", "suite": known.suite, "category": known.category,
        "source": "archive", "generation_tokens": known.generation_tokens,
    }  # fmt: skip
    return Case(task=task, length=length, samples=samples, **{**plain, **changes})


def generation_of(text: str = "", prompt_tokens: int = 1, generated_tokens: int = 1, **changes: Any) -> Generation:
    """Return an answer whose prompt was read anew."""
    plain: Mapping[str, Any] = {
        "prompt_tokens": prompt_tokens, "generated_tokens": generated_tokens, "computed_tokens": prompt_tokens,
        "reused_tokens": 0, "finish": "stop", "seconds": 0.0,
    }  # fmt: skip
    return Generation(text=text, **{**plain, **changes})


def outcome_of(index: int, score: Score | float, **changes: Any) -> Outcome:
    """Return a scored sample with an empty answer."""
    given = score if isinstance(score, Score) else Score(value=score)
    plain: Mapping[str, Any] = {"generation": generation_of(), "references": ("r",), "depths": ()}
    return Outcome(index=index, score=given, **{**plain, **changes})
