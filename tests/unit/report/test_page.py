"""The page as a file: it loads nothing, no text of a model is markup in it, and its headline states the verdict."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from msgspec import structs

from longctx.fixtures.records import CaseResult, PropertyFinding, VerdictWord
from longctx.fixtures.shown_text import one_line, visible
from longctx.plugins.report.document import document
from longctx.plugins.report.html.page import details, embedded, page
from longctx.plugins.report.markdown import markdown
from longctx.plugins.report.sections.gates import headline
from longctx.plugins.report.terminal import terminal_summary
from tests.helpers.pages import page_of, parse, rows_of
from tests.helpers.reports import LENGTHS, NASTY, run_summary

ANY_TEXT = st.text(st.characters(), max_size=60) | st.text("<>&/script!-\u2028\ud800\x00", max_size=20)


@pytest.fixture(scope="module")
def nasty_page() -> str:
    run = run_summary(
        texts=NASTY, samples=len(NASTY), suite="ruler", lengths=(4096, 8192), model=NASTY[0] + NASTY[3]
    )  # fmt: skip
    return page_of(run)


def test_nothing_in_the_page_has_an_address_to_load_from(nasty_page: str) -> None:
    parsed = parse(nasty_page)
    for _, attributes in parsed.tags:
        assert {"src", "srcset", "data", "action", "poster", "style"}.isdisjoint(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    style = next(text for kind, text in parsed.raw if kind == "style")
    assert not re.search(r"url\(|@import|@font-face", style)


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(nasty_page: str) -> None:
    parsed = parse(nasty_page)
    (policy,) = [
        attributes["content"]
        for _, attributes in parsed.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in parsed.raw
        if kind in ("style", "script")
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_text_of_a_model_is_never_markup(nasty_page: str) -> None:
    parsed = parse(nasty_page)
    assert [kind for kind, _ in parsed.raw] == ["style", "application/json", "script"]
    assert "img" not in {tag for tag, _ in parsed.tags}
    rows = rows_of(nasty_page)
    longest = max(NASTY, key=len)
    assert {row["answer"] for row in rows} == {visible(text, 400 if text == longest else None) for text in NASTY}
    assert {row["ending"] for row in rows if "ending" in row} == {longest[-200:]}
    assert {row.get("omitted") for row in rows} == {None, len(longest) - 600}
    nasty_page.encode("utf-8")
    hidden = ("Cc", "Cf", "Cs")
    assert not [sign for sign in nasty_page if unicodedata.category(sign) in hidden and sign not in "\n\t"]


@given(ANY_TEXT)
def test_embedded_data_comes_back_and_contains_no_markup(text: str) -> None:
    written = str(embedded({"rows": [text]}))
    assert written.isascii()
    assert not set("<>&") & set(written)
    assert json.loads(written) == {"rows": [text]}


@given(ANY_TEXT)
def test_visible_text_can_be_encoded_and_has_no_hidden_character(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not [sign for sign in shown if unicodedata.category(sign)[0] == "C" and sign not in "\n\t"]
    assert visible(shown) == shown
    assert "\n" not in one_line(text, 20)
    assert len(one_line(text, 20)) <= 20


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=40))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(("changed", "verdict"), [({}, "fail"), ({"claimed": 4096}, "pass")])
def test_the_headline_agrees_with_the_exit_code(changed: dict[str, Any], verdict: str) -> None:
    run = run_summary(samples=20, suite="ruler", lengths=(4096,) if changed else LENGTHS)
    shown, text = headline(document(run)), page_of(run)
    title = {"fail": "Failed (exit code 1)", "pass": "Passed (exit code 0)"}[verdict]
    assert shown.verdict == verdict
    assert f'<p class="verdict {verdict}"><b>' in text
    assert f"{title}</b>" in text


@pytest.mark.parametrize(
    ("word", "fails", "interrupted", "title", "exit_code"),
    [
        ("undecided", True, False, "Failed", 1),
        ("undecided", False, False, "Undecided", 0),
        ("not measured", False, False, "No verdict", 0),
        ("not measured", False, True, "Interrupted", 2),
        ("fail", True, True, "Failed", 2),
    ],
)
def test_the_headline_of_an_open_gate_says_what_the_run_ended_with(
    word: VerdictWord, fails: bool, interrupted: bool, title: str, exit_code: int
) -> None:
    run = run_summary(samples=20, suite="ruler", lengths=(4096,))
    written = document(run)
    (gate,) = [gate for gate in written.gates if gate.blocking]
    changed = structs.replace(
        written,
        gates=(structs.replace(gate, verdict=word, fails=fails),),
        run=structs.replace(written.run, interrupted=interrupted),
    )
    shown = headline(changed)
    assert (shown.title, shown.exit_code, shown.counts) == (title, exit_code, f"blocking gates: 1 {word}")
    assert "".join(line for line, _ in terminal_summary(changed)[-1:]) == f"verdict    {title}: {shown.counts}"


@pytest.mark.parametrize(
    ("changed", "count"),
    # Of 20 samples a task, the losses against the baseline are not shown for the model.
    [({"lengths": (4096,)}, 0), ({}, 1), ({"paired": True}, 1), ({"paired": True, "samples": 120}, 2)],
)
def test_gates_of_the_report_say_whether_they_fail_the_run(changed: dict[str, Any], count: int) -> None:
    options: dict[str, Any] = {"samples": 20, "suite": "ruler"} | changed
    run = run_summary(**options)
    assert sum(gate.fails for gate in document(run).gates) == count


def test_a_failed_property_of_the_engine_fails_a_run_whose_gates_pass() -> None:
    warm = PropertyFinding(
        name="warm", verdict="fail", reason="differs", sample="question", token=1, expected="a", got="a"
    )
    batch = PropertyFinding(name="batch", verdict="pass", reason="differs by 0")
    run = replace(run_summary(samples=20, suite="ruler", lengths=(4096,)), invariance=(warm, batch))
    shown = headline(document(run))
    assert (shown.verdict, shown.reasons) == ("fail", (("invariance: warm", "differs"),))
    assert shown.counts.endswith("; 1 of 2 checked properties of the engine hold")
    page = page_of(run)
    assert "differs: both answers are &#39;a&#39;" in page
    assert '<a href="#invariance">' in page
    (_, checked) = document(run).invariance or ()
    only_checked = structs.replace(document(run), cases=(), gates=(), invariance=(checked,))
    assert headline(only_checked).verdict == "pass"


def test_the_headline_names_the_gates_that_decided_it() -> None:
    run = run_summary(samples=20, suite="ruler")
    (gate,) = [gate for gate in document(run).gates if gate.blocking]
    assert headline(document(run)).reasons == (("effective length", f"fail: {gate.reason}"),)
    head = page_of(run).partition("</header>")[0]
    assert escape(gate.reason) in head
    passing = run_summary(samples=20, suite="ruler", lengths=(4096,))
    assert headline(document(passing)).reasons == ()


def test_gates_that_are_only_reported_and_were_not_measured_take_one_line() -> None:
    run = run_summary(samples=20, suite="ruler", lengths=(4096,))
    written = document(run)
    gates = [gate if gate.blocking else structs.replace(gate, verdict="not measured") for gate in written.gates]
    text = page(structs.replace(written, gates=tuple(gates)), details(run))
    assert text.count('<details class="gate"') == 1
    assert "Not measured, reported only: mean, retrieval, tracing" in text


def test_of_many_deciding_gates_the_headline_names_a_few_and_counts_the_rest() -> None:
    run = run_summary(samples=2, paired=True)
    written = document(run)
    written = structs.replace(
        written, gates=tuple(structs.replace(gate, fails=gate.blocking) for gate in written.gates)
    )
    count = sum(gate.fails for gate in written.gates)
    shown = headline(written)
    assert len(shown.reasons) + shown.more == count > len(shown.reasons) == 4
    assert f"and {shown.more} more</a>" in page(written, details(run))


def test_a_case_with_few_samples_is_marked_in_the_page_and_in_markdown() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096,), most=60, full=False)
    rough = [case for case in document(run).cases if 0 < case.samples < 10]
    assert rough
    assert page_of(run).count(" rough") == len(rough) == markdown(document(run), holds=True).count("| \\~")
    assert "~ from fewer than 10 samples" in page_of(run)
    assert "~ from" not in page_of(run_summary(samples=20, suite="ruler", lengths=(4096,)))


def test_an_error_of_a_case_is_shown_and_fails_the_run() -> None:
    whole = run_summary(samples=4, suite="ruler", lengths=(4096,))
    results = dict(whole.evaluation.measured.results)
    broken = next(iter(results))
    results[broken] = CaseResult(case=results[broken].case, outcomes=(), seconds=0.0, error="<b>out of memory</b>")
    run = run_summary(samples=4, suite="ruler", lengths=(4096,), results=results)
    assert [case.id for case in document(run).cases if case.fails] == [broken]
    shown = headline(document(run))
    assert shown.verdict == "fail"
    assert "1 case without a score" in shown.counts
    assert escape("<b>out of memory</b>") in page_of(run)


def test_a_run_that_ended_early_shows_its_intervals_and_where_it_was_decided() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096, 32768), most=400, full=False)
    text = page_of(run)
    assert 'class="band"' in text
    assert "of a full run" in text
    low, high = document(run).ruler.intervals["32768"] or (0, 0)
    assert high - low > 1
    assert f"{low:.1f} to {high:.1f}" in text
    assert re.search(r"decided after \d+ of 2,600 samples", text)
    assert '<span class="tag fail">' in text
