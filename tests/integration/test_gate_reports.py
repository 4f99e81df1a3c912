"""Verdicts reported as tests: the verdicts that fail a run, and the outcome shown for every verdict."""

from dataclasses import replace

import pytest
from msgspec import structs

from longctx.fixtures.records import Reason, UndecidedReason, Verdict, VerdictWord
from longctx.fixtures.records.report import CaseComparison
from longctx.fixtures.records.report_parts import GateKind
from longctx.plugins.gate_tests import REPORTED_ONLY, _case_reports, _gate_reports
from longctx.plugins.thresholds.records import RegressionSettings
from longctx.plugins.verdicts.diagnoses import Diagnosis
from longctx.plugins.verdicts.evaluate import blocks
from tests.helpers.queues import thresholds

BAD = Diagnosis(
    score=61.5, interval=(50.0, 70.0), floor=90.0, below=True, haystacks=8, correlation=None,
    comparison=CaseComparison(
        difference=-12.25, interval=(-20.0, -4.0), worse=9, better=2, haystacks_worse=4, haystacks_better=1, pairs=57,
        dropped=True,
    ),
)  # fmt: skip


def verdict(
    word: VerdictWord, *, blocking: bool = True, kind: GateKind = "level", because: Reason = "too few samples"
) -> Verdict:
    measured = 50.0 if word in ("pass", "fail") else None
    reason: Reason | None = "error" if word == "error" else None if measured else because
    return Verdict(
        name="g", kind=kind, length=1024, measured=measured, interval=(40.0, 60.0), confidence=0.99, required=80.0,
        samples=1, of=1, verdict=word, blocking=blocking, because=reason, detail="out of memory",
    )  # fmt: skip


@pytest.mark.parametrize("narrowed", [True, False])
@pytest.mark.parametrize(
    ("kind", "because", "default"),
    [
        ("level", "too few samples", "fail"),
        ("level", "not shown", "pass"),
        ("effective_length", "too few samples", "fail"),
        ("likelihood", "no recovery", "fail"),
        ("regression", "too few samples", "pass"),
        ("regression", "not shown", "pass"),
        ("regression", "short baseline", "fail"),
    ],
)
def test_an_undecided_verdict_has_the_effect_that_its_gate_configures(
    kind: GateKind, because: UndecidedReason, default: str, narrowed: bool
) -> None:
    undecided = verdict("undecided", kind=kind, because=because)
    assert blocks(undecided, narrowed=narrowed) == (default == "fail")
    assert blocks(structs.replace(undecided, undecided="fail"), narrowed=narrowed)
    assert not blocks(structs.replace(undecided, undecided="pass"), narrowed=narrowed)
    assert not blocks(structs.replace(undecided, undecided="fail", blocking=False), narrowed=narrowed)


@pytest.mark.parametrize(
    ("word", "blocking", "narrowed", "outcome"),
    [
        ("pass", True, False, "passed"),
        ("fail", True, False, "failed"),
        ("fail", True, True, "failed"),
        ("error", True, True, "failed"),
        ("fail", False, False, "xfailed"),
        ("error", False, False, "xfailed"),
        ("undecided", True, False, "failed"),
        ("undecided", True, True, "failed"),
        ("undecided", False, False, "skipped"),
        ("not measured", True, True, "skipped"),
        ("not measured", True, False, "failed"),
        ("not measured", False, False, "skipped"),
    ],
)
def test_a_gate_is_reported_as_a_test(word: VerdictWord, blocking: bool, narrowed: bool, outcome: str) -> None:
    report, teardown = _gate_reports(verdict(word, blocking=blocking), place="thresholds.toml", narrowed=narrowed)
    shown_outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
    assert shown_outcome == outcome
    assert (report.nodeid, report.when) == ("thresholds.toml::gate[g]", "call")
    assert (teardown.outcome, teardown.when) == ("passed", "teardown")
    for phase in (report, teardown):
        assert {("verdict", word), ("interval", "40.0 60.0"), ("samples", 1)} <= set(phase.user_properties)
    assert str(dict(report.user_properties)["reason"]) in report.longreprtext or outcome == "passed"


def test_an_undecided_verdict_that_counts_as_a_pass_is_shown_as_skipped() -> None:
    report, _ = _gate_reports(structs.replace(verdict("undecided"), undecided="pass"), place="t.toml", narrowed=False)
    assert report.outcome == "skipped"
    assert "Skipped: cases without a sample: out of memory; " in str(report.longrepr)


@pytest.mark.parametrize(
    ("below", "dropped", "message"),
    [
        (True, False, "61.5 is below its floor of 90"),
        (False, True, "-12.2 against the baseline (9 worse, 2 better of 57 pairs)"),
        (
            True,
            True,
            "61.5 is below its floor of 90; -12.2 against the baseline (9 worse, 2 better of 57 pairs)",
        ),
    ],
)
def test_a_regressed_case_is_a_failed_test_with_its_reason(below: bool, dropped: bool, message: str) -> None:
    diagnosis = replace(BAD, below=below, comparison=structs.replace(BAD.comparison, dropped=dropped))
    strict = replace(thresholds(), regression=RegressionSettings(cases="fail"))
    report, teardown = _case_reports("test_ruler[vt-4k]", diagnosis, strict, place="t.toml")
    assert (report.nodeid, report.outcome, report.when) == ("t.toml::case[vt-4k]", "failed", "call")
    assert report.longreprtext == f"test_ruler[vt-4k]: fail: {message}"
    assert (teardown.outcome, teardown.when) == ("passed", "teardown")


def test_a_regressed_case_is_reported_without_failing_unless_it_is_below_its_floor() -> None:
    report, _ = _case_reports("test_ruler[vt-4k]", replace(BAD, below=False), thresholds(), place="t.toml")
    assert report.outcome == "skipped"
    assert report.wasxfail == f"{REPORTED_ONLY}-12.2 against the baseline (9 worse, 2 better of 57 pairs)"
    report, _ = _case_reports("test_ruler[vt-4k]", BAD, thresholds(), place="t.toml")
    assert report.outcome == "failed"
