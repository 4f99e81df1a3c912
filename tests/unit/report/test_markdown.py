"""The Markdown report: its content, and that no text of a model is Markdown or HTML in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from longctx.plugins.report.document import document
from longctx.plugins.report.markdown import markdown, markdown_text
from longctx.plugins.report.sections.gates import MOST_GATES
from tests.helpers.reports import NASTY, run_summary


def rendered(text: str) -> str:
    """Return the HTML of Markdown in GitHub's dialect, with tables and raw HTML."""
    return str(MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(text))


def text_of(markup: str) -> str:
    """Return the text of HTML, without its tags."""
    for sign, code in (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("&", "&amp;")):
        markup = re.sub(r"<[^>]*>", "", markup).replace(code, sign) if sign == "<" else markup.replace(code, sign)
    return markup


@given(st.text(st.characters(), max_size=40) | st.text("|`*_[]()<>&#@~\\!-\n$:/w.", max_size=20))
def test_plain_text_has_no_markup(text: str) -> None:
    html = rendered(f"| a | b |\n| --- | --- |\n| {markdown_text(text, 60)} | end |\n")
    assert html.count("<td>") == 2
    assert re.sub(r"</?(table|thead|tbody|tr|th|td)>", "", html).count("<") == 0
    words = " ".join(text.split())
    if text.isascii() and text.isprintable():
        assert " ".join(text_of(html.split("<td>")[1].split("</td>")[0]).split()) == words


@pytest.mark.parametrize("answer", NASTY, ids=range(len(NASTY)))
def test_no_answer_breaks_a_table(answer: str) -> None:
    run = run_summary(texts=(answer,), samples=4, suite="ruler", lengths=(4096, 32768), model=answer[:50])
    written = document(run)
    text = markdown(written, holds=False)
    text.encode("utf-8")
    page = rendered(text)
    assert not re.search(r"<(script|img|a |b>|em>|del>)", page)
    for table in re.findall(r"<table>.*?</table>", page, re.DOTALL):
        widths = {row.count("<td>") + row.count("<th>") for row in table.split("</tr>")[:-1]}
        assert len(widths) == 1
    assert page.count("<table>") == 4
    assert len(text) < 10_000


@pytest.mark.parametrize("holds", [True, False])
def test_the_first_line_states_the_verdict(holds: bool) -> None:
    written = document(run_summary(samples=4, suite="ruler", lengths=(4096,)))
    first = markdown(written, holds=holds).splitlines()[0]
    assert first == f"### {'✅' if holds else '❌'} Long context: /models/run/step\\_1000, step 1000"


def test_a_run_of_helmet_alone_shows_its_means_and_no_effective_length() -> None:
    text = markdown(document(run_summary(samples=4, suite="helmet", lengths=(8192,))), holds=True)
    assert "HELMET average" in text
    assert "Effective length" not in text


def test_failing_gates_come_first_and_the_rest_are_counted() -> None:
    written = document(run_summary(samples=20, paired=True))
    text = markdown(written, holds=False)
    rows = [line for line in text.partition("blocking gate")[2].partition("Against")[0].splitlines()[2:] if line]
    blocking = [gate for gate in written.gates if gate.blocking]
    assert len(blocking) > MOST_GATES
    assert "fail" in rows[0]
    left = sum(int(count) for count in re.findall(r"\| (\d+) more \|", "\n".join(rows)))
    assert left + sum(" more |" not in row for row in rows) == len(blocking)
    assert re.search(r"Against runs/step\\_500: \d+ worse, \d+ better of 2720 pairs", text)
    # GitHub refuses a comment that is longer.
    assert len(text) < 65_536
