"""The page as a file: it loads nothing, and no text of a model is markup in it."""

import base64
import hashlib
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.fixtures.shown_text import visible
from longctx.plugins.report.document import document
from longctx.plugins.report.html.page import embedded
from longctx.plugins.report.markdown import markdown
from tests.helpers.pages import page_of, parse, rows_of
from tests.helpers.reports import NASTY, run_summary

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


@given(st.text(st.characters(exclude_categories=["C", "Z"]), max_size=40))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_case_with_few_samples_is_marked_in_the_page_and_in_markdown() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096,), most=60, full=False)
    rough = [case for case in document(run).cases if 0 < case.samples < 10]
    assert rough
    assert page_of(run).count(" rough") == len(rough) == markdown(document(run)).count("| \\~")
    assert "~ from fewer than 10 samples" in page_of(run)
    assert "~ from" not in page_of(run_summary(samples=20, suite="ruler", lengths=(4096,)))


def test_a_run_that_ended_early_shows_its_intervals_and_where_it_was_decided() -> None:
    run = run_summary(samples=200, suite="ruler", lengths=(4096, 32768), most=400, full=False)
    text = page_of(run)
    assert 'class="interval"' in text
    assert "of a full run" in text
    low, high = document(run).ruler.intervals["32768"] or (0, 0)
    assert high - low > 1
    assert f"{low:.1f} to {high:.1f}" in text
    assert '<td class="tag fail">' in text
