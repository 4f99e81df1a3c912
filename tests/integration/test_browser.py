"""The page in a real browser, opened from a file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from longctx.plugins.report.document import document
from longctx.plugins.report.history import write_history
from longctx.plugins.report.html.page import page
from longctx.plugins.report.texts import report_text
from longctx.plugins.reports import write
from tests.helpers.browser import CHROMIUM, DRIVER, Browser, browser
from tests.helpers.pages import rows_of
from tests.helpers.reports import NASTY, run_summary

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with chromedriver is installed")
ENTER, DOWN, TAB = "\ue007", "\ue015", "\ue004"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {
        "compared": run_summary(paired=True, samples=10),
        "nasty": run_summary(texts=NASTY, samples=len(NASTY), suite="ruler", lengths=(4096, 8192)),
    }
    for name, run in runs.items():
        write(folder / f"{name}.html", page(document(run), run))
    (folder / "steps").mkdir()
    for step in (1, 2):
        run = run_summary(texts=NASTY, samples=len(NASTY), suite="ruler", lengths=(4096, 8192), step=step)
        write(folder / "steps" / f"{step}.json", report_text("--report-json", run, document(run)))
    write_history(folder / "steps", folder / "history.html")
    return {path.stem: path for path in folder.iterdir()}


def set_filters(tab: Browser, **filters: str) -> int:
    """Set these fields of the filter form and return the number of matching samples that the page shows."""
    tab.run(
        f"""const form = document.getElementById("filters"), filters = {json.dumps(filters)};
        for (const name in filters) form.elements.namedItem(name).value = filters[name];
        form.dispatchEvent(new Event("change"));"""
    )
    return int(tab.run("return document.getElementById('count').textContent").split()[0].replace(",", ""))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["compared", "nasty", "history"])
def test_a_page_requests_nothing_and_logs_nothing(
    name: str, scheme: str, width: int, tab: Browser, pages: dict[str, Path]
) -> None:
    tab.requests(), tab.console()
    tab.show(pages[name], width=width, scheme=scheme)
    assert tab.requests() == [pages[name].resolve().as_uri()]
    assert tab.console() == []
    # Wide tables scroll within themselves.
    assert tab.run("return document.documentElement.scrollWidth") <= width


def test_filters_select_the_matching_samples(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["compared"])
    rows = rows_of(pages["compared"].read_text(encoding="utf-8"))
    assert set_filters(tab) == len(rows)
    assert set_filters(tab, task="vt") == sum(row["task"] == "vt" for row in rows)
    assert set_filters(tab, length="32768") == sum((row["task"], row["length"]) == ("vt", 32768) for row in rows)
    tab.run("document.querySelector('#filters [type=reset]').click()")
    assert set_filters(tab, failure="distractor") == sum(row.get("failure") == "distractor" for row in rows)
    assert set_filters(tab, failure="-") == sum(row["score"] == 100 for row in rows)
    assert set_filters(tab, failure="*") == sum(row["score"] < 100 for row in rows)
    for word, worse in (("worse", True), ("better", False)):
        flipped = [row for row in rows if "flip" in row and (row["score"] < row["flip"]["score"]) == worse]
        assert set_filters(tab, failure="", flip=word) == len(flipped) > 0


def test_a_cell_of_the_heatmap_links_to_its_samples(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["compared"])
    tab.run("document.querySelector('#tasks a[data-task=cwe][data-length=\"32768\"]').click()")
    names = tab.run(
        "return new Promise(done => setTimeout(() => done("
        "[...document.querySelectorAll('#rows button')].map(button => button.innerText)), 50))"
    )
    assert names
    assert all("cwe 32K" in name for name in names)


def test_a_sample_opens_by_keyboard_with_its_question_and_needle(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["compared"])
    set_filters(tab, task="vt", failure="*")
    tab.run("document.querySelector('#rows button').focus()")
    tab.type(DOWN + ENTER)
    text = tab.run("return document.querySelector('#rows .detail').innerText")
    assert tab.run("return [...document.querySelectorAll('#rows button')].indexOf(document.activeElement)") == 1
    for part in ("Question", "What is the value of key", "Expected", "Answer", "Depth of the needle", "There and back"):
        assert part in text
    assert tab.run("return document.querySelectorAll('#rows .detail mark').length") >= 1
    tab.type(ENTER)
    assert tab.run("return document.querySelector('#rows .detail')") is None


def test_every_control_can_be_reached_by_keyboard(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["nasty"])
    tab.type(TAB)
    assert tab.run("return document.activeElement.textContent") == "Skip to the results"
    unreached = {"A nav", "A heat", "SUMMARY gate", "SELECT filters", "BUTTON filters", "BUTTON rows", "BUTTON more"}
    places = {"nav": "nav", "heat": ".heat", "gate": ".gate", "filters": "#filters", "rows": "#rows", "more": "#more"}
    script = f"""const at = document.activeElement, places = {json.dumps(places)};
        return Object.keys(places).filter(name => at.closest(places[name])).map(name => `${{at.tagName}} ${{name}}`)"""
    for _ in range(250):
        tab.type(TAB)
        unreached -= set(tab.run(script))
        if not unreached:
            break
    assert not unreached


def test_references_are_marked_and_omitted_characters_counted(tab: Browser, pages: dict[str, Path]) -> None:
    """A short reference occurs within many words, so it is marked there only if no whole word matches."""
    row = {
        "task": "vt", "length": 4096, "index": 0, "score": 50, "expected": ["a", "44"], "credits": [1, 0],
        "answer": "a banana, a 1444", "omitted": 1000, "ending": "the end a",
        "depth": 0.1, "depths": [0.1, 0.9],
    }  # fmt: skip
    within = row | {"index": 1, "expected": ["44"], "credits": [0], "answer": "only 1444"}
    within |= {"omitted": 0, "ending": ""}
    text = pages["nasty"].read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    changed = pages["nasty"].with_name("marked.html")
    end = text.index("</script>", start)
    changed.write_text(f"{text[:start]}{json.dumps({'rows': [row, within]})}{text[end:]}", encoding="utf-8")
    tab.show(changed)
    tab.run("document.querySelectorAll('#rows button').forEach(button => button.click())")
    marks = "return [...document.querySelectorAll('#rows .detail')].map(row => [...row.querySelectorAll('mark')]"
    assert tab.run(f"{marks}.map(mark => mark.textContent))") == [["a", "a", "a"], ["44"]]
    detail = tab.run("return document.querySelector('#rows .detail').innerText")
    assert "a banana, a 1444 … 1,000 characters … the end a" in detail
    assert "10.0 %, 90.0 % (missed) of the context" in detail


def test_a_dark_page_is_printed_in_dark_text_on_white(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["compared"], scheme="dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    colour = "return getComputedStyle(document.querySelector('.tag.pass')).color"
    on_screen = tab.run(colour)
    tab.command("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    try:
        assert tab.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
        assert tab.run(colour) == "rgb(0, 102, 79)" != on_screen
    finally:
        tab.command("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("name", ["compared", "nasty"])
def test_an_open_sample_fits_a_narrow_window(name: str, tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages[name], width=390)
    tab.run("document.querySelectorAll('#rows button').forEach(button => button.click())")
    table_width, available = tab.run(
        "const table = document.querySelector('.samples'); return [table.scrollWidth, table.parentElement.clientWidth]"
    )
    assert table_width <= available


def test_a_flipped_sample_shows_both_answers(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["compared"])
    assert "shown to be worse" in tab.run("return document.getElementById('comparison').innerText")
    set_filters(tab, flip="worse")
    tab.run("document.querySelector('#rows button').click()")
    text = tab.run("return document.querySelector('#rows .detail').innerText")
    assert "Baseline, 100" in text
    assert "I say value-" in text
    assert "I believe" in text


def test_no_text_of_a_model_is_executed(tab: Browser, pages: dict[str, Path]) -> None:
    tab.show(pages["nasty"])
    title = tab.run("return document.title")
    tab.run("document.querySelectorAll('#rows button').forEach(button => button.click())")
    text = tab.run("return document.getElementById('rows').textContent")
    for sign in ("<script>document.title='run'</script>", "</script><img", "&lt;b&gt;", "⟨U+202E⟩", "⟨U+D800⟩", "a␀b"):
        assert sign in text
    assert tab.run("return document.title") == title
    assert tab.run("return document.querySelectorAll('img').length") == 0
    assert tab.run("return document.scripts.length") == 2
    assert tab.console() == []


def test_without_scripts_everything_but_the_samples_is_shown(tab: Browser, pages: dict[str, Path]) -> None:
    tab.command("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        tab.show(pages["compared"])
    finally:
        tab.command("Emulation.setScriptExecutionDisabled", {"value": False})
    assert tab.run("return document.querySelectorAll('svg').length") > 20
    assert "Browsing samples needs JavaScript" in tab.run("return document.getElementById('samples').innerText")
