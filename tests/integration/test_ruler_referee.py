"""The comparison with NVIDIA's package of RULER, with a stand-in for the package's generator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import ruler_referee

GENERATOR = """#!/bin/sh
echo run >> "$0.runs"
while [ $# -gt 0 ]; do
    case "$1" in
        --save_dir) folder=$2 ;;
        --task) task=$2 ;;
        --num_samples) count=$2 ;;
    esac
    shift
done
[ "$task" = qa_1 ] && sleep 60
mkdir -p "$folder/$task"
seq "$count" > "$folder/$task/validation.jsonl"
"""


@pytest.fixture
def referee(tmp_path: Path) -> Path:
    """Return an environment whose package writes a numbered line for each sample, and never ends for `qa_1`."""
    program = tmp_path / "referee/bin/python"
    (tmp_path / "referee/lib/python3/site-packages/long_context_eval/data").mkdir(parents=True)
    program.parent.mkdir()
    program.write_text(GENERATOR)
    program.chmod(0o755)
    return tmp_path / "referee"


def test_prepared_samples_stay_until_more_are_wanted(referee: Path, tmp_path: Path) -> None:
    file, runs = tmp_path / "out/1024/vt/validation.jsonl", referee / "bin/python.runs"
    for samples, expected, calls in ((2, 2, 1), (2, 2, 1), (1, 2, 1), (4, 4, 2)):
        assert ruler_referee.prepare(referee, "ckpt", "vt", 1024, samples, tmp_path / "out") == ""
        assert (len(file.read_text().splitlines()), len(runs.read_text().splitlines())) == (expected, calls)


def test_a_generator_that_never_ends_is_started_once(
    referee: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ruler_referee, "GENERATOR_SECONDS", 0.2)
    for _ in range(2):
        problem = ruler_referee.prepare(referee, "ckpt", "qa_1", 1024, 2, tmp_path / "out")
        assert problem == "the package's generator did not end within 0.2 s"
    assert len((referee / "bin/python.runs").read_text().splitlines()) == 1


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
