"""The correlations of a history: ranks with intervals, data sets, and changes from step to step."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from longctx.cli import main
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.document import document
from longctx.plugins.report.history import correlation, ranking
from longctx.plugins.thresholds.records import CATEGORIES
from tests.helpers.pages import tables_of
from tests.helpers.report_records import report_data, report_of
from tests.helpers.reports import run_summary

SCORES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=12)


@settings(deadline=None)
@given(SCORES)
def test_a_rank_correlation_depends_on_ranks_only_and_lies_in_its_interval(pairs: Sequence[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    assume(len(set(first)) > 1 and len(set(second)) > 1)
    value, low, high = correlation(first, second)
    # A perfect correlation of few pairs has the interval of one with two neighbours swapped.
    most = 1 - 12 / (len(pairs) * (len(pairs) ** 2 - 1))
    assert -1 <= low <= max(-most, min(most, value)) <= high <= 1
    assert correlation([a**3 for a in first], second)[0] == pytest.approx(value)
    assert correlation([-a for a in first], second) == pytest.approx((-value, -high, -low))


@pytest.mark.parametrize(("first", "second", "value"), [
    # Ranks 1 to 5 against 2, 1, 4, 3, 5: 1 - 6 * 4 / 120.
    ([1, 2, 3, 4, 5], [20, 10, 40, 30, 50], 0.8), (range(20), range(20), 1.0),
])  # fmt: skip
def test_known_correlations(first: Sequence[int], second: Sequence[int], value: float) -> None:
    assert correlation(first, second)[0] == pytest.approx(value)


def report(step: int, ruler: float, categories: Mapping[str, float]) -> dict[str, Any]:
    data = report_data(document(run_summary(samples=2, lengths=(4096,), step=step)))
    data["model"] |= {"name": f"run/step_{step}", "fingerprint": f"f{step}"}
    data["run"]["started"] = f"2026-01-01T00:00:{step:02}"
    data["ruler"]["scores"] = {"4096": ruler, "8192": None}
    data["helmet"] |= {
        "categories": {name: {"8192": score} for name, score in categories.items()},
        "average": {"8192": sum(categories.values()) / len(categories)},
    }
    return data | {"cases": [data["cases"][0]]}


def page_of(folder: Path) -> str:
    assert main(["history", str(folder)]) == 0
    return (folder / "history.html").read_text(encoding="utf-8")


def test_the_page_shows_what_goes_together(tmp_path: Path) -> None:
    for step in range(1, 13):
        zigzag = 10.0 * (step % 3)
        categories = {name: 50.0 + place for place, name in enumerate(CATEGORIES)}
        categories |= {"rag": 40 + step + zigzag, "cite": 30 + step + zigzag, "icl": 80.0 - step}
        written = report(step, 50 + step, categories)
        # One data set rises as another one falls.
        written["cases"] = [written["cases"][0] | {"task": name, "score": score, "length": 4096} for name, score in
                            (("vt", 50.0 + step), ("cwe", 90.0 - step), ("fwe", 70.0))]  # fmt: skip
        (tmp_path / f"{step}.json").write_text(json.dumps(written))
    page = page_of(tmp_path)
    assert "Rank correlation over 12 checkpoints" in page
    tables = tables_of(page)
    # Five measures vary, and two data sets.
    head, *rows = tables["correlated"]
    assert head == [
        "scores",
        "ruler mean",
        *(f"helmet {name}" for name in ("rag", "cite", "icl", "average")),
        "vt",
        "cwe",
    ]
    icl = dict(zip(head, {row[0]: row for row in rows}["helmet icl"], strict=True))
    assert re.fullmatch(r"-1\.00 -1\.00 to -0\.\d\d", icl["ruler mean"])
    assert icl["helmet icl"].strip() == ""
    assert rows[-1][-2].startswith("-1.00 ")


def test_reports_of_parts_of_the_suites_say_what_is_left_out(tmp_path: Path) -> None:
    for step in range(1, 6):
        written = report(step, 50 + step, {"rag": 40.0 + step})
        written["ruler"]["scores"] = {"4096": None}
        written["helmet"]["average"] = {"8192": None}
        # Correlations need no steps.
        written["run"]["step"] = None
        # The same weights with another configuration are another model.
        written["model"]["fingerprint"] = "f"
        written["run"]["options"]["config_override"] = [f"rope_parameters.rope_theta={step}e6"]
        (tmp_path / f"{step}.json").write_text(json.dumps(written))
    page = page_of(tmp_path)
    assert "Rank correlation over 5 checkpoints" in page
    assert "two scores that all reports have" in page


def ruler_report(name: str, scores: Mapping[str, float], half: float) -> JsonReport:
    """Return a report of one task of RULER, whose intervals reach so far on each side."""
    cases = []
    for length, score in scores.items():
        interval = (max(0.0, score - half), min(100.0, score + half))
        case = {"id": f"test_ruler[vt-{length}]", "suite": "ruler", "task": "vt", "length": int(length)}
        cases.append({**case, "score": score, "interval": interval})
    return report_of({"model": {"name": name}, "cases": cases})


@pytest.mark.parametrize(("half", "ranks"), [
    (1.0, ["1", "2", "3"]),
    # 90 and 85 are 5 apart, and the difference of two intervals of 4 reaches 5.7; 60 is below both.
    (4.0, ["1 to 2", "1 to 2", "3"]),
    (60.0, ["1 to 3", "1 to 3", "1 to 3"]),
])  # fmt: skip
def test_models_are_ranked_where_their_intervals_tell_them_apart(half: float, ranks: list[str]) -> None:
    # Only 4096 tokens are common to all.
    scores = {"b": {"4096": 85.0}, "c": {"4096": 60.0, "8192": 100.0}, "a": {"4096": 90.0, "8192": 0.0}}
    reports = [ruler_report(name, own, half) for name, own in scores.items()]
    (table,) = ranking(reports)
    assert table.corner == "RULER"
    assert table.columns == ("4K", "average", "rank")
    assert [row.name for row in table.rows] == ["a", "b", "c"]
    assert [row.cells[-1].text for row in table.rows] == ranks


def test_a_ranking_leaves_out_a_length_without_some_of_the_tasks() -> None:
    reports = []
    for name in ("a", "b"):
        places = [("vt", 512), ("vt", 1024), ("cwe", 1024)]
        cases = [
            {"id": f"test_ruler[{task}-{length}]", "suite": "ruler", "task": task, "length": length, "score": 50.0}
            for task, length in places
        ]
        reports.append(report_of({"model": {"name": name}, "cases": cases}))
    (table,) = ranking(reports)
    assert table.columns == ("1K", "average", "rank")


def test_reports_without_a_common_case_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for length in ("4096", "8192"):
        files.append(str(tmp_path / f"{length}.json"))
        report = report_data(ruler_report("m", {length: 50.0}, 1.0))
        report["run"]["options"] = {"journal": "j"}
        Path(files[-1]).write_text(json.dumps(report))
    assert main(["history", "--models", *files]) == 4
    assert "no case with a score in common" in capsys.readouterr().err
    assert main(["history", "--models", files[0], files[0]]) == 0
    assert "| m | 50.0 | 50.0 (49.0 to 51.0) | 1 to 2 |" in capsys.readouterr().out
    assert main(["history", "--models", files[0], str(tmp_path)]) == 4
    assert f"{tmp_path} is no report (" in capsys.readouterr().err
