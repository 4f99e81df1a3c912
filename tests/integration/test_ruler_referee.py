"""The comparison with NVIDIA's package of RULER: other scores and other means fail."""

from typing import Any

import pytest

from benchmarks import ruler_referee


def samples(scores: list[float], prompt_tokens: int) -> list[dict[str, Any]]:
    return [{"task": "vt", "length": 1024, "score": score, "prompt_tokens": prompt_tokens} for score in scores]


@pytest.mark.parametrize(
    ("ours", "judged", "code"),
    [([80.0] * 12, [80.0] * 12, 0), ([0.0] * 12, [80.0] * 12, 1), ([80.0] * 12, [80.0] * 11 + [60.0], 1)],
)
def test_other_scores_and_other_means_fail(
    ours: list[float], judged: list[float], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = [60.0, 100.0] * 6
    again = [one + other - 80 for one, other in zip(theirs, judged, strict=True)]
    assert ruler_referee.compare(samples(theirs, 482), samples(ours, 994), again) == code
    heading, row, _ = capsys.readouterr().out.splitlines()
    assert heading.split()[:4] == ["length", "task", "samples,", "theirs"]
    # With 30 tokens for the answer.
    assert row.split()[-2:] == ["50", "100"]


def test_a_single_sample_shows_no_difference() -> None:
    assert ruler_referee.probability([1.0], [0.0, 1.0]) == 1.0
    assert ruler_referee.probability([1.0] * 9, [0.0] * 9) < 0.01
