"""The words of the terminal for cases and gates: their statuses, the last line, and the percentage under -v."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from longctx.plugins.config.run import Run
from longctx.plugins.gate_tests import passed_reports
from longctx.plugins.stash import GATE_WORD, RUN
from longctx.plugins.status_words import INTERRUPTION, pytest_configure, pytest_report_teststatus

PYTESTS_PARTS: list[tuple[str, dict[str, bool]]] = [("3 measured", {"yellow": True}), ("2 warnings", {"yellow": True})]


def config(*, verbosity: int = 0, preflight: bool = False) -> Any:
    option = SimpleNamespace(collectonly=False, plan=False)
    stash, run = pytest.Stash(), SimpleNamespace(options=SimpleNamespace(preflight=preflight))
    stash[RUN] = cast(Run, run)
    return SimpleNamespace(option=option, stash=stash, get_verbosity=lambda: verbosity)


def gate_report(word: str, outcome: str) -> pytest.TestReport:
    report = passed_reports("gate[g]", "thresholds.toml")[0]
    report.outcome = outcome  # type: ignore[assignment]  # a word of pytest's
    setattr(report, GATE_WORD, word)
    return report


@pytest.mark.parametrize(
    ("word", "outcome", "key", "colour"),
    [
        ("pass", "passed", "gates: pass", "green"),
        ("fail", "failed", "gates: fail", "red"),
        ("undecided", "failed", "gates: undecided", "red"),
        ("not measured", "skipped", "gates: not measured", "yellow"),
        ("reported (fail)", "skipped", "gates: reported", "yellow"),
    ],
)
def test_a_gate_is_counted_by_its_verdict_and_has_a_line_under_v_only(
    word: str, outcome: str, key: str, colour: str
) -> None:
    report = gate_report(word, outcome)
    assert pytest_report_teststatus(report, config()) == (key, "", "")
    assert pytest_report_teststatus(report, config(verbosity=1)) == (key, "", (word.upper(), {colour: True}))


@pytest.mark.parametrize(
    ("outcome", "preflight", "status"),
    [
        ("passed", False, ("measured", ".", "MEASURED")),
        ("passed", True, ("checked", ".", "CHECKED")),
        ("failed", False, ("without a score", "E", "ERROR")),
        ("failed", True, ("with problems", "P", "PROBLEMS")),
        ("skipped", False, ("not measured", "-", "NOT MEASURED")),
    ],
)
def test_a_case_is_measured_and_not_passed(outcome: str, preflight: bool, status: tuple[str, str, str]) -> None:
    report = gate_report("pass", outcome)
    delattr(report, GATE_WORD)
    report.longctx = "{}"  # type: ignore[attr-defined]  # reports take any attribute
    assert pytest_report_teststatus(report, config(preflight=preflight)) == status
    report.longctx_unexpected = True  # type: ignore[attr-defined]  # as above
    if outcome == "failed":
        assert pytest_report_teststatus(report, config()) is None, "pytest shows the traceback"


def test_other_tests_keep_the_words_of_pytest() -> None:
    assert pytest_report_teststatus(passed_reports("test_a", "test_a.py")[0], config()) is None


def line_of(stats: dict[str, list[Any]], given: Any) -> tuple[str, str]:
    reporter = SimpleNamespace(config=given, stats=stats, build_summary_stats_line=lambda: (PYTESTS_PARTS, "yellow"))
    given.pluginmanager = SimpleNamespace(get_plugin=lambda name: reporter)
    pytest_configure(given)
    parts, colour = reporter.build_summary_stats_line()
    return ", ".join(text for text, _ in parts), colour


def test_the_last_line_counts_cases_then_gates() -> None:
    passed, failed = gate_report("pass", "passed"), gate_report("fail", "failed")
    stats = {"gates: pass": [passed], "measured": [passed] * 3, "without a score": [failed], "gates: fail": [failed]}
    assert line_of(stats, config()) == ("3 measured, 1 without a score, 2 warnings, gates: 1 pass, 1 fail", "red")
    del stats["without a score"], stats["gates: fail"]
    assert line_of(stats, config()) == ("3 measured, 2 warnings, gates: 1 pass", "green")


def test_an_interrupted_run_says_so_first() -> None:
    given = config()
    given.stash[INTERRUPTION] = "interrupted: 68 of 650 samples kept; the same command continues"
    line, _ = line_of({"measured": [gate_report("pass", "passed")] * 3}, given)
    assert line.startswith("interrupted: 68 of 650 samples kept; the same command continues, 3 measured")
