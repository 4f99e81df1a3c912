"""The verdict of a run: one list of reasons explains the exit code, and every report shows it in the same words."""

import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from _pytest.junitxml import LogXML
from msgspec import structs

from longctx.ci.suite_process import SuiteRun
from longctx.ci.watch.history import ACCEPTED
from longctx.ci.watch.measure import verdict_of
from longctx.fixtures.records import CaseResult, PairedChange, PropertyFinding, Verdict, VerdictWord
from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.html.page import page
from longctx.plugins.report.markdown import SIGNS, markdown
from longctx.plugins.report.sections.gates import NO_GATE, OTHER_TESTS, REMEDIES, reason_text, run_verdict
from longctx.plugins.report.sections.summary import MOST_PASSING
from longctx.plugins.report.terminal import terminal_summary, verdict_lines
from longctx.plugins.reports import describe_in_junit
from tests.helpers.reports import run_summary

RUN = run_summary(samples=20, suite="ruler", lengths=(4096,))
REPORT = document(RUN)
(GATE,) = [gate for gate in REPORT.gates if gate.blocking]
OLD_WORDS = re.compile(r"\b(near|lost here|suspected|inconclusive|underpowered|no verdict|skipped)\b", re.IGNORECASE)


def with_gate(word: VerdictWord, fails: bool = True, **fields: Any) -> Callable[[JsonReport], JsonReport]:
    def changed(report: JsonReport) -> JsonReport:
        gate = structs.replace(GATE, verdict=word, fails=fails, reason=f"the reason of {word}", **fields)
        return structs.replace(report, gates=(gate, *(one for one in report.gates if not one.blocking)))

    return changed


def with_case(**fields: Any) -> Callable[[JsonReport], JsonReport]:
    return lambda report: structs.replace(report, cases=(structs.replace(report.cases[0], **fields), *report.cases[1:]))


def after_undecided(report: JsonReport) -> JsonReport:
    gates = [with_gate(word)(report).gates[0] for word in ("undecided", "fail")]
    return structs.replace(report, gates=tuple(gates))


def with_property(report: JsonReport) -> JsonReport:
    finding = PropertyFinding(
        name="warm", verdict="fail", reason="differs", sample="question", token=1, expected="a", got="b"
    )
    batch, seeds = (PropertyFinding(name="batch", verdict=word, reason="r") for word in ("pass", "skipped"))
    return structs.replace(report, invariance=(finding, batch, seeds))


def interrupted(report: JsonReport) -> JsonReport:
    report = with_gate("not measured", fails=False)(report)
    return structs.replace(report, run=structs.replace(report.run, interrupted=True))


WAYS: dict[str, tuple[Callable[[JsonReport], JsonReport], str, str]] = {
    "pass": (lambda report: report, "pass", ""),
    "fail": (with_gate("fail"), "fail", f"{GATE.name}: fail: the reason of fail"),
    "regression": (
        with_gate("fail", name="regression at 4k", kind="regression"),
        "fail",
        "regression at 4k: fail: the reason",
    ),
    "gate error": (with_gate("error"), "fail", f"{GATE.name}: error: the reason of error"),
    "gate not measured": (with_gate("not measured"), "fail", f"{GATE.name}: not measured: the reason of not measured"),
    "undecided fails": (with_gate("undecided"), "fail", f"{GATE.name}: undecided: the reason of undecided"),
    "undecided and fail": (after_undecided, "fail", f"{GATE.name}: fail: the reason of fail"),
    "undecided": (with_gate("undecided", fails=False), "undecided", f"{GATE.name}: undecided: the reason of undecided"),
    "deselected": (
        with_gate("not measured", fails=False),
        "not measured",
        f"{GATE.name}: not measured: the reason of not measured",
    ),
    "no gate": (lambda report: structs.replace(report, gates=()), "not measured", NO_GATE),
    "case error": (
        with_case(verdict="error", error="out of memory; give --dtype", score=None, fails=True),
        "fail",
        f"{REPORT.cases[0].id}: error: out of memory; give --dtype",
    ),
    "lost case": (
        with_case(verdict="error", error="no result came back", score=None, samples=0, fails=True),
        "fail",
        f"{REPORT.cases[0].id}: error: no result came back",
    ),
    "floor": (
        with_case(verdict="fail", decided_by="40.0 is below its floor of 50", fails=True),
        "fail",
        f"{REPORT.cases[0].id}: fail: 40.0 is below its floor of 50",
    ),
    "property": (with_property, "fail", "invariance: warm: question: differs: 'b' instead of 'a'"),
    "interrupted": (interrupted, "not measured", "interrupted: scores from 260 of 260 samples"),
    "interrupted after a pass": (
        lambda report: structs.replace(report, run=structs.replace(report.run, interrupted=True)),
        "not measured",
        "interrupted: scores from 260 of 260 samples",
    ),
    "other test": (lambda report: report, "fail", OTHER_TESTS),
}


def reports_of(report: JsonReport, run: RunSummary = RUN) -> dict[str, str]:
    """Return the text of every report, with single spaces."""
    assert report.verdict is not None
    lines = [*terminal_summary(report), *verdict_lines(report.verdict)]
    text = re.sub(r"<(style|script).*?</\1>", "", page(report, run), flags=re.DOTALL)
    shown = {
        "terminal": " ".join(line for line, _ in lines),
        "Markdown": html.unescape(re.sub(r"\\(.)", r"\1", markdown(report))),
        "page": html.unescape(re.sub(r"<[^>]*>", "", text)),
        "JSON": " ".join([report.verdict.word, *report.verdict.reasons]),
    }
    return {name: " ".join(text.split()) for name, text in shown.items()}


def junit_of(report: JsonReport, folder: Path) -> ElementTree.Element:
    """Return the JUnit file of a run without tests of its own."""
    xml = LogXML(str(folder / "junit.xml"), None)
    xml.pytest_sessionstart()
    describe_in_junit(xml, report)
    xml.pytest_sessionfinish()
    return ElementTree.parse(folder / "junit.xml").getroot()


@pytest.mark.parametrize("way", WAYS)
def test_every_report_gives_the_reasons_of_the_exit_code_in_the_same_words(way: str, tmp_path: Path) -> None:
    change, word, reason = WAYS[way]
    changed = change(REPORT)
    verdict = run_verdict(changed, exit_code=1 if way == "other test" else None)
    changed = structs.replace(changed, verdict=verdict)
    assert (verdict.word, verdict.exit_code) == (word, 2 if way.startswith("interrupted") else int(word == "fail"))
    assert bool(verdict.reasons) == (word != "pass")
    assert not reason or verdict.reasons[0].startswith(reason)
    for name, text in reports_of(changed).items():
        assert all(" ".join(shown.split()) in text for shown in verdict.reasons), name
        assert name == "JSON" or f"{word} (exit code {verdict.exit_code})" in text.replace("**", ""), name
    assert markdown(changed).startswith(f"### {SIGNS[word]} ")
    junit = junit_of(changed, tmp_path)
    properties = [(one.get("name"), one.get("value")) for one in junit.iter("property")]
    assert [value for name, value in properties if name == "run.reason"] == [*verdict.reasons]
    assert ("run.verdict", word) in properties
    # CI shows a run as passed unless one of its tests fails.
    assert [test.get("message") for test in junit.iter("failure")] == [*verdict.reasons[:1]] * bool(verdict.exit_code)


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("interrupted")])
def test_a_watch_gives_the_reasons_of_the_exit_code_in_the_same_words(way: str) -> None:
    changed = WAYS[way][0](REPORT)
    verdict = run_verdict(changed, exit_code=1 if way == "other test" else None)
    report = structs.replace(changed, verdict=verdict)
    word, reasons = verdict_of(SuiteRun(exit_code=verdict.exit_code, report=report))
    assert (word in ACCEPTED) == (verdict.exit_code == 0)
    assert reasons == (verdict.reasons if verdict.word in ("fail", "undecided") else ())
    assert (word == "error") == (way in ("gate error", "case error", "lost case"))


def test_a_watch_takes_no_fault_of_a_run_for_one_of_the_checkpoint() -> None:
    """Another program may stop a run, and a full disk may refuse a report whose verdict is a pass."""
    unwritten = SuiteRun(exit_code=1, report=structs.replace(REPORT, verdict=run_verdict(REPORT)))
    stopped = SuiteRun(exit_code=2, report=None, reason="pytest ended with code 2")
    for run in (unwritten, stopped):
        word, reasons = verdict_of(run)
        assert (word, len(reasons)) == ("error", 1)
        assert f"pytest ended with code {run.exit_code}" in reasons[0]


@pytest.mark.parametrize("way", WAYS)
def test_the_terminal_ends_with_what_why_and_what_next(way: str) -> None:
    changed = WAYS[way][0](REPORT)
    verdict = run_verdict(changed, exit_code=1 if way == "other test" else None)
    names = [line[:11].strip() for line, _ in verdict_lines(verdict)]
    assert max(len(line) for line, _ in verdict_lines(verdict, 80)) <= 80
    assert names[0] == "verdict"
    assert len(names) <= 4
    assert ("why" in names, "next" in names) == (bool(verdict.reasons), bool(verdict.next_step))
    if way in ("fail", "gate error", "gate not measured", "undecided", "case error", "property", "interrupted"):
        assert verdict.next_step


def test_a_passing_run_needs_few_lines_below_its_table() -> None:
    assert REPORT.verdict is not None
    lines = [line for line, _ in [*terminal_summary(REPORT), *verdict_lines(REPORT.verdict)]]
    table_end = next(place for place, line in enumerate(lines) if line.startswith("  interval"))
    # pytest's own last line and the names of three reports come besides.
    assert len(lines) - table_end - 1 <= 10


def test_the_worst_gates_stand_first_and_most_that_pass_take_one_line() -> None:
    gates = [structs.replace(GATE, name=f"g{number}") for number in range(MOST_PASSING + 1)]
    bad = [structs.replace(GATE, name=name, verdict=name) for name in ("undecided", "fail")]
    text = [line for line, _ in terminal_summary(structs.replace(REPORT, gates=(*gates, *bad), verdict=None))]
    shown = [line.split(":")[0].removeprefix("gate").strip() for line in text if line.startswith("gate ")]
    assert shown == ["fail", "undecided", *(f"g{number}" for number in range(MOST_PASSING - 2))]
    assert any(line.strip() == "more: 3 pass" for line in text)


@pytest.mark.parametrize(("p_value", "often"), [
    (1e-9, "fewer than 1 of 1,000,000"), (1e-6, "1 of 1,000,000"), (0.01, "1 of 100"), (0.9, "most"),
])  # fmt: skip
def test_a_loss_says_in_how_many_runs_an_unchanged_model_loses_as_much(p_value: float, often: str) -> None:
    verdict = Verdict(
        name="g", kind="regression", length=1024, measured=-5.0, interval=(-6.0, -4.0), confidence=0.99, required=-2.0,
        samples=9, of=9, verdict="fail", blocking=True, p_value=p_value,
        change=PairedChange(worse=5, better=0, pairs=9, limit=2.0, comparisons=1),
    )  # fmt: skip
    assert reason_text(verdict).endswith(f"; unchanged models lose as much in {often} runs")


def test_a_gate_without_a_baseline_asks_for_one() -> None:
    alone = with_gate("not measured", kind="regression")(REPORT)
    assert run_verdict(alone).next_step.startswith("give --baseline; or leave it out: ")
    assert run_verdict(with_gate("not measured")(REPORT)).next_step.startswith("measure what it lacks (")


def test_a_page_that_is_written_is_where_the_answers_are() -> None:
    changed = with_gate("fail")(REPORT)
    assert run_verdict(changed, page=Path("a/r.html")).next_step.startswith("look at the answers in a/r.html; ")
    assert "--report-html" in run_verdict(changed).next_step


@pytest.mark.parametrize("changed", [
    {"samples": 6}, {"samples": 10, "paired": True}, {"samples": 120, "paired": True, "suite": "ruler"},
    {"samples": 200, "suite": "ruler", "lengths": (4096, 32768), "most": 60, "full": False},
])  # fmt: skip
def test_results_are_given_in_five_words_in_every_report(changed: dict[str, Any]) -> None:
    run = run_summary(**changed)
    report = document(run)
    words = {"pass", "fail", "undecided", "error", "not measured"}
    assert set(get_args(VerdictWord)) == words >= {gate.verdict for gate in report.gates}
    for name, text in reports_of(report, run).items():
        assert not OLD_WORDS.findall(text), name
    for gate in report.gates:
        remedy = gate.reason.rpartition("; ")[2]
        assert not OLD_WORDS.findall(gate.reason)
        assert gate.verdict != "undecided" or remedy in REMEDIES.values()


def test_a_case_without_a_score_fails_the_run_with_its_error() -> None:
    results = dict(RUN.evaluation.measured.results)
    broken = next(iter(results))
    results[broken] = CaseResult(case=results[broken].case, outcomes=(), seconds=0.0, error="<b>out of memory</b>")
    run = run_summary(samples=20, suite="ruler", lengths=(4096,), results=results)
    report = document(replace(run, exit_code=1))
    assert [case.id for case in report.cases if case.fails] == [broken]
    assert report.verdict is not None
    assert report.verdict.reasons[0] == f"{broken}: error: <b>out of memory</b>"
    assert "cases: 1 error" in report.verdict.counts
    assert html.escape(report.verdict.reasons[0]) in page(report, run)
