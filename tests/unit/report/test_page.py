"""The page as a file: nothing in it reaches out, nothing that was said becomes markup, its head tells the verdict."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.records import CaseResult
from plugins.report.details import details
from plugins.report.document import document
from plugins.report.escape import one_line, visible
from plugins.report.html.page import embedded, page
from plugins.report.html.views import headline
from plugins.report.markdown import markdown
from tests.helpers.pages import page_of, read
from tests.helpers.reports import LENGTHS, NASTY, run_summary

ANY_TEXT = st.text(st.characters(), max_size=60) | st.text("<>&/script!-\u2028\ud800\x00", max_size=20)


@pytest.fixture(scope="module")
def nasty() -> str:
    run = run_summary(texts=NASTY, samples=len(NASTY), suite="ruler", lengths=(4096, 8192), model=NASTY[0] + NASTY[3])
    return page_of(run)


def test_nothing_in_the_page_has_an_address_to_load_from(nasty: str) -> None:
    reader = read(nasty)
    for _, attributes in reader.tags:
        assert {"src", "srcset", "data", "action", "poster", "style"}.isdisjoint(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    style = next(text for kind, text in reader.raw if kind == "style")
    assert not re.search(r"url\(|@import|@font-face", style)


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else(nasty: str) -> None:
    reader = read(nasty)
    (policy,) = [each["content"] for tag, each in reader.tags if each.get("http-equiv") == "Content-Security-Policy"]
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in reader.raw
        if kind in ("style", "script")
    }
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes['style']}'; script-src 'sha256-{hashes['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_what_a_model_says_is_never_markup(nasty: str) -> None:
    reader = read(nasty)
    assert [kind for kind, _ in reader.raw] == ["style", "application/json", "script"]
    assert "img" not in {tag for tag, _ in reader.tags}
    rows = json.loads(dict(reader.raw)["application/json"])["rows"]
    longest = max(NASTY, key=len)
    assert {row["got"] for row in rows} == {visible(text, 400 if text == longest else None) for text in NASTY}
    assert {row["end"] for row in rows if "end" in row} == {longest[-200:]}
    assert {row.get("more") for row in rows} == {None, len(longest) - 600}
    nasty.encode("utf-8")
    assert not [sign for sign in nasty if unicodedata.category(sign) in ("Cc", "Cf", "Cs") and sign not in "\n\t"]


@given(ANY_TEXT)
def test_embedded_data_comes_back_and_holds_no_sign_of_markup(text: str) -> None:
    found = str(embedded({"rows": [text]}))
    assert found.isascii()
    assert not set("<>&") & set(found)
    assert json.loads(found) == {"rows": [text]}


@given(ANY_TEXT)
def test_visible_text_can_be_written_and_has_no_hidden_sign(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not [sign for sign in shown if unicodedata.category(sign)[0] == "C" and sign not in "\n\t"]
    assert visible(shown) == shown
    assert "\n" not in one_line(text, 20)
    assert len(one_line(text, 20)) <= 20


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=40))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("changed", "word"),
    [({}, "fail"), ({"claimed": 4096}, "pass")],
)
def test_the_headline_follows_the_exit_code(changed: dict[str, Any], word: str) -> None:
    run = run_summary(samples=20, suite="ruler", lengths=(4096,) if changed else LENGTHS)
    assert headline(document(run), details(run))["word"] == word
    assert f'<p class="verdict {word}">' in page_of(run)


def test_the_headline_names_the_gates_that_decided_it() -> None:
    run = run_summary(samples=20, suite="ruler")
    found = headline(document(run), details(run))
    (gate,) = [gate for gate in document(run)["gates"] if gate["blocking"]]
    assert found["because"] == [("effective length", gate["reason"])]
    head = page_of(run).partition("</header>")[0]
    assert html.escape(gate["reason"]) in head
    passing = run_summary(samples=20, suite="ruler", lengths=(4096,))
    assert headline(document(passing), details(passing))["because"] == []


def test_of_many_deciding_gates_the_headline_names_a_few_and_counts_the_rest() -> None:
    run = run_summary(samples=2, paired=True)
    found = details(run)
    names = tuple(gate["name"] for gate in document(run)["gates"] if gate["blocking"])
    told = headline(document(run), replace(found, failing=names))
    assert len(told["because"]) + told["more"] == len(names) > len(told["because"]) == 4
    assert f"and {told['more']} more</a>" in page(document(run), replace(found, failing=names))


def test_a_case_that_was_hardly_seen_is_marked_as_in_the_terminal() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096,), most=60, full=False)
    rough = [case for case in document(run)["cases"] if 0 < case["samples"] < 10]
    assert rough
    assert page_of(run).count(" rough") == len(rough) == markdown(document(run), holds=True).count("| \\~")
    assert "~ is from fewer than 10 samples" in page_of(run)
    assert "~ is from" not in page_of(run_summary(samples=20, suite="ruler", lengths=(4096,)))


def test_an_error_is_told_and_fails() -> None:
    whole = run_summary(samples=4, suite="ruler", lengths=(4096,))
    results = dict(whole.evaluation.measured.results)
    broken = next(iter(results))
    results[broken] = CaseResult(case=results[broken].case, outcomes=(), seconds=0.0, error="<b>out of memory</b>")
    run = run_summary(samples=4, suite="ruler", lengths=(4096,), results=results)
    found = headline(document(run), details(run))
    assert found["word"] == "fail"
    assert "1 case without a score" in found["said"]
    assert html.escape("<b>out of memory</b>") in page_of(run)


def test_a_run_that_ended_early_shows_how_sure_it_is() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096, 32768), most=400, full=False)
    text = page_of(run)
    assert 'class="band"' in text
    assert "of a full run" in text
    low, high = document(run)["ruler"]["intervals"]["32768"]
    assert high - low > 1
    assert f"{low:.1f} to {high:.1f}" in text
    assert re.search(r"decided at \d+ of 2,600", text)
    assert '<span class="word fail">' in text
