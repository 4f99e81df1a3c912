"""The short report: what it says, and that nothing a model says means anything in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from plugins.report.document import document
from plugins.report.markdown import MOST_GATES, markdown, plain
from tests.helpers.reports import NASTY, run_summary


def rendered(text: str) -> str:
    """As GitHub's dialect has it: tables and bare HTML."""
    return str(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))


def seen(markup: str) -> str:
    """The text of a piece of HTML, without its tags."""
    for sign, code in (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("&", "&amp;")):
        markup = re.sub(r"<[^>]*>", "", markup).replace(code, sign) if sign == "<" else markup.replace(code, sign)
    return markup


@given(st.text(st.characters(), max_size=40) | st.text("|`*_[]()<>&#@~\\!-\n$:/w.", max_size=20))
def test_foreign_text_means_nothing(text: str) -> None:
    shown = rendered(f"| a | b |\n| --- | --- |\n| {plain(text, 60)} | end |\n")
    assert shown.count("<td>") == 2
    assert re.sub(r"</?(table|thead|tbody|tr|th|td)>", "", shown).count("<") == 0
    words = " ".join(text.split())
    if text.isascii() and text.isprintable():
        assert " ".join(seen(shown.split("<td>")[1].split("</td>")[0]).split()) == words


@pytest.mark.parametrize("said", NASTY, ids=range(len(NASTY)))
def test_what_models_say_breaks_no_table(said: str) -> None:
    run = run_summary(texts=(said,), samples=4, suite="ruler", lengths=(4096, 32768), model=said[:50])
    found = document(run)
    text = markdown(found, holds=False)
    text.encode("utf-8")
    page = rendered(text)
    assert not re.search(r"<(script|img|a |b>|em>|del>)", page)
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        widths = {row.count("<td>") + row.count("<th>") for row in table.split("</tr>")[:-1]}
        assert len(widths) == 1
    assert page.count("<table>") == 4
    assert len(text) < 10_000


@pytest.mark.parametrize("holds", [True, False])
def test_the_first_line_is_the_verdict(holds: bool) -> None:
    found = document(run_summary(samples=4, suite="ruler", lengths=(4096,)))
    first = markdown(found, holds=holds).splitlines()[0]
    assert first == f"### {'✅' if holds else '❌'} Long context: /models/run/step\\_1000, step 1000"


def test_a_run_of_helmet_alone_has_its_means() -> None:
    text = markdown(document(run_summary(samples=4, suite="helmet", lengths=(8192,))), holds=True)
    assert "HELMET average" in text
    assert "Effective length" not in text


def test_gates_that_fail_come_first_and_the_rest_is_counted() -> None:
    found = document(run_summary(samples=20, paired=True))
    text = markdown(found, holds=False)
    rows = [line for line in text.partition("blocking gate")[2].partition("Against")[0].splitlines()[2:] if line]
    blocking = [gate for gate in found["gates"] if gate["blocking"]]
    assert len(blocking) > MOST_GATES
    assert "fail" in rows[0]
    left = sum(int(each) for each in re.findall(r"\| (\d+) more \|", "\n".join(rows)))
    assert left + sum(" more |" not in row for row in rows) == len(blocking)
    assert re.search(r"Against runs/step\\_500: \d+ worse, \d+ better of 2720 pairs", text)
    # GitHub refuses a comment that is longer.
    assert len(text) < 65_536
