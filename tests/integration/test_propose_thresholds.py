"""Thresholds proposed from accepted runs: the file is valid, and the accepted runs would pass it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from longctx.ci import propose_thresholds
from longctx.fixtures.tasks import FAMILIES
from longctx.plugins.thresholds.records import Thresholds, load_thresholds
from tests.helpers.report_records import report_of


def report(
    name: str, score: float, *, width: float = 1.0, paired: float | None = None, **changed: Any
) -> dict[str, Any]:
    """Return a report with RULER at 4K and, eight points lower, at 8K, one category of HELMET, and one task."""

    def interval(middle: float) -> list[float]:
        return [middle - width / 2, min(100.0, middle + width / 2)]

    scores = {"4096": score, "8192": score - 8}
    case = {
        "id": "test_ruler[vt-8k]", "task": "vt", "length": 8192, "score": score - 20, "interval": interval(score - 20),
    }  # fmt: skip
    gate = {
        "name": "regression at 8k", "kind": "regression", "length": 8192, "measured": paired, "samples": 100,
        "interval": paired if paired is None else [paired - width / 2, paired + width / 2],
    }  # fmt: skip
    return {
        "schema": "longctx-report/1",
        "model": {"name": name, "path": f"/runs/{name}"},
        "run": {"corpora": "c", "options": {"journal": "/journal"}},
        "cases": [case],
        "gates": [] if paired is None else [gate],
        "ruler": {
            "scores": scores, "intervals": {length: interval(value) for length, value in scores.items()},
            "effective_length": 8192,
        },
        "helmet": {
            "categories": {"rag": {"8192": 60.0, "16384": None}},
            "intervals": {"rag": {"8192": [50.2, 70.0], "16384": None}},
        },
    } | changed  # fmt: skip


RUNS = [report("step-1", 92.0), report("step-2", 93.3), report("step-3", 91.9)]


def read(text: str, folder: Path) -> Thresholds:
    (folder / "proposed.toml").write_text(text)
    return load_thresholds(folder / "proposed.toml", known_tasks=FAMILIES)


def propose(reports: list[dict[str, Any]]) -> str:
    return propose_thresholds.propose([report_of(each) for each in reports])


def test_levels_are_the_lowest_ends_of_the_intervals(tmp_path: Path) -> None:
    gates = {gate.name: gate for gate in read(propose(RUNS), tmp_path).gates}
    level = gates["ruler at 8k, as accepted"]
    assert (level.kind, level.above, level.lengths) == ("level", 83.0, (8192,))
    assert gates["ruler at 4k, as accepted"].above == 91.0
    rag = gates["rag at 8k, as accepted"]
    assert (rag.kind, rag.category, rag.above) == ("category", "rag", 50.0)
    assert gates["effective length"].at_least == 8192
    assert len(gates) == 4


def test_the_allowed_drop_is_twice_the_largest_fall(tmp_path: Path) -> None:
    """A gate fails a loss of more than half of `drop`, so the fall of 2.1 points would pass."""
    text = propose([RUNS[0], report("step-2", 93.3, paired=0.4), report("step-3", 91.9, paired=-2.1)])
    assert read(text, tmp_path).regression.drop == 4.5
    assert "2 falls measured, -0.4 to +2.1 points; the largest: regression at 8k, 8k" in text
    assert "# No drop is proposed: no run compares with a --baseline" in propose(RUNS)


def test_differences_that_are_noise_propose_no_drop(tmp_path: Path) -> None:
    """Runs that stop after a few samples differ by many points without any loss."""
    rough = [report(f"step-{number}", 95.0, width=30.0, paired=-5.0) for number in range(3)]
    text = propose(rough)
    assert "[regression]" not in text
    assert "# No drop is proposed: 3 of 3 differences " in text
    assert read(text, tmp_path).regression.drop == 2.0
    text = propose([*rough, report("step-4", 91.9, paired=0.0)])
    assert "# Left out as noise: 3 of 4 differences " in text
    assert read(text, tmp_path).regression.drop == propose_thresholds.MIN_DROP_POINTS


def test_floors_follow_the_weakest_length_with_their_evidence(tmp_path: Path) -> None:
    text = propose(RUNS)
    assert read(text, tmp_path).floors == {"vt": 71.0}
    assert "vt = 71  # lowest end of 3 intervals, at 8k" in text


def test_a_length_that_one_run_lacks_is_not_gated(tmp_path: Path) -> None:
    short = report("step-3", 92.0)
    short["ruler"]["scores"]["8192"] = None
    names = [gate.name for gate in read(propose([*RUNS[:2], short]), tmp_path).gates]
    assert names == ["effective length", "ruler at 4k, as accepted", "rag at 8k, as accepted"]


def test_narrowed_runs_give_floors_of_their_tasks(tmp_path: Path) -> None:
    unmeasured = {"scores": {"4096": None}, "intervals": {"4096": None}, "effective_length": None}
    narrow = [report(f"step-{number}", 90.0, ruler=unmeasured, helmet=None) for number in range(3)]
    thresholds = read(propose(narrow), tmp_path)
    assert (thresholds.gates, thresholds.floors) == ((), {"vt": 69.5})


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        (RUNS[:2], "2 reports do not show how much runs differ; give 3 or more"),
        (
            [*RUNS[:2], report("x", 90, run=RUNS[0]["run"] | {"corpora": "d"})],
            "the reports differ in the texts; measure",
        ),
        (
            [*RUNS, report("x", 90, cases=[RUNS[0]["cases"][0] | {"error": "out of memory"}])],
            "test_ruler[vt-8k] ended in an error (out of memory); give reports without one",
        ),
    ],
)
def test_reports_that_do_not_fit_together_are_refused(
    reports: list[dict[str, Any]], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{number}.json" for number in range(len(reports))]
    for file, written in zip(files, reports, strict=True):
        file.write_bytes(msgspec.json.encode(report_of(written)))
    assert propose_thresholds.main([str(file) for file in files]) == 4
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert line in output.err


def test_one_report_named_three_times_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(report_of(RUNS[0])))
    assert propose_thresholds.main([str(tmp_path / "a.json")] * 3) == 4
    assert "1 reports do not show how much runs differ; give 3 or more" in capsys.readouterr().err
