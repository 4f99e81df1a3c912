"""Verdicts as tests: what fails a run, and how each word is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.records import Verdict, VerdictWord
from plugins.gate_tests import REPORTED_ONLY, case_reports, gate_reports
from plugins.gates.evaluate import blocks
from plugins.gates.regression import Diagnosis
from plugins.gates.thresholds import RegressionSettings, Thresholds, VerdictSettings
from tests.helpers.queues import thresholds

WORDS: tuple[VerdictWord, ...] = ("pass", "fail", "inconclusive", "error", "not measured")
BAD = Diagnosis(
    score=61.5, interval=(50.0, 70.0), floor=90.0, below=True, difference=-12.25, difference_interval=(-20.0, -4.0),
    flips=(9, 2), pairs=57, dropped=True,
)  # fmt: skip


def verdict(word: VerdictWord, *, blocking: bool = True, kind: str = "level") -> Verdict:
    measured = 50.0 if word in ("pass", "fail") else None
    return Verdict(
        name="g", kind=kind, length=1024, measured=measured, interval=(40.0, 60.0), confidence=0.99, required=80.0,
        samples=1, of=1, verdict=word, blocking=blocking, reason="because",
    )  # fmt: skip


def counting(level: str, regression: str) -> Thresholds:
    return replace(
        thresholds(),
        verdict=VerdictSettings(inconclusive=level),  # type: ignore[arg-type]  # parametrized words
        regression=RegressionSettings(inconclusive=regression),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("kind", ["level", "effective_length", "weighted_average", "regression"])
@pytest.mark.parametrize("word", WORDS)
def test_what_fails_a_run(word: VerdictWord, kind: str) -> None:
    usual = thresholds()
    open_ = word == "inconclusive" and kind != "regression"
    assert blocks(verdict(word, kind=kind), usual, narrowed=True) == (word in ("fail", "error") or open_)
    assert blocks(verdict(word, kind=kind), usual, narrowed=False) == (
        word in ("fail", "error", "not measured") or open_
    )
    assert not blocks(verdict(word, kind=kind, blocking=False), usual, narrowed=False)


@pytest.mark.parametrize("narrowed", [True, False])
@pytest.mark.parametrize("kind", ["level", "effective_length", "weighted_average", "regression"])
def test_an_open_verdict_counts_as_the_file_says(kind: str, narrowed: bool) -> None:
    """Each kind by its own table."""
    strict, lax = counting("fail", "pass"), counting("pass", "fail")
    if kind == "regression":
        strict, lax = lax, strict
    found = verdict("inconclusive", kind=kind)
    assert blocks(found, strict, narrowed=narrowed)
    assert not blocks(found, lax, narrowed=narrowed)
    assert not blocks(replace(found, blocking=False), strict, narrowed=narrowed)


@pytest.mark.parametrize(
    ("word", "blocking", "narrowed", "outcome"),
    [
        ("pass", True, False, "passed"),
        ("fail", True, False, "failed"),
        ("error", True, True, "failed"),
        ("fail", False, False, "xfailed"),
        ("error", False, False, "xfailed"),
        ("inconclusive", True, False, "failed"),
        ("inconclusive", True, True, "failed"),
        ("inconclusive", False, False, "skipped"),
        ("not measured", True, True, "skipped"),
        ("not measured", True, False, "failed"),
        ("not measured", False, False, "skipped"),
    ],
)
def test_a_gate_is_reported_as_a_test(word: VerdictWord, blocking: bool, narrowed: bool, outcome: str) -> None:
    report, teardown = gate_reports(
        verdict(word, blocking=blocking), thresholds(), place="thresholds.toml", narrowed=narrowed
    )
    told = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    assert told == outcome
    assert (report.nodeid, report.when) == ("thresholds.toml::gate[g]", "call")
    assert (teardown.outcome, teardown.when) == ("passed", "teardown")
    for each in (report, teardown):
        assert {("verdict", word), ("interval", "40.0 60.0"), ("samples", 1)} <= set(each.user_properties)
    assert "because" in report.longreprtext or outcome == "passed"


def test_an_open_verdict_that_counts_as_a_pass_is_not_shown_as_one() -> None:
    report, _ = gate_reports(verdict("inconclusive"), counting("pass", "pass"), place="t.toml", narrowed=False)
    assert report.outcome == "skipped"
    assert report.longrepr == ("t.toml", 1, "Skipped: because")


@pytest.mark.parametrize(
    ("below", "dropped", "said"),
    [
        (True, False, "61.5 is below its floor of 90"),
        (False, True, "-12.2 against the baseline (9 worse, 2 better of 57 pairs)"),
        (True, True, "61.5 is below its floor of 90; -12.2 against the baseline (9 worse, 2 better of 57 pairs)"),
    ],
)
def test_a_bad_case_is_a_failed_test_that_says_why(below: bool, dropped: bool, said: str) -> None:
    diagnosis = replace(BAD, below=below, dropped=dropped)
    report, teardown = case_reports("test_ruler[vt-4k]", diagnosis, thresholds(), place="t.toml")
    assert (report.nodeid, report.outcome, report.when) == ("t.toml::case[vt-4k]", "failed", "call")
    assert report.longreprtext == f"test_ruler[vt-4k]: {said}"
    assert (teardown.outcome, teardown.when) == ("passed", "teardown")


def test_a_bad_case_can_be_reported_only() -> None:
    lax = replace(thresholds(), regression=RegressionSettings(cases="report"))
    report, _ = case_reports("test_ruler[vt-4k]", replace(BAD, dropped=False), lax, place="t.toml")
    assert report.outcome == "skipped"
    assert report.wasxfail == f"{REPORTED_ONLY}61.5 is below its floor of 90"
