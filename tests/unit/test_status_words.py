"""The words of the terminal for cases and gates, under -v and without it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from longctx.plugins.config.run import Run
from longctx.plugins.gate_tests import passed_reports
from longctx.plugins.stash import GATE_WORD, RUN
from longctx.plugins.status_words import pytest_report_teststatus


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
