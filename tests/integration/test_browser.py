"""The page as a reader has it: opened from a file, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.report.details import details
from plugins.report.document import document
from plugins.report.history import Report, history
from plugins.report.html.page import page
from plugins.report.html.step_curves import steps_page
from plugins.reports import write
from tests.helpers.browser import CHROMIUM, DRIVER, Browser, browser
from tests.helpers.reports import NASTY, run_summary

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with chromedriver is installed")
ENTER, DOWN, TAB = "\ue007", "\ue015", "\ue004"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = {
        "compared": run_summary(paired=True, samples=10),
        "nasty": run_summary(texts=NASTY, samples=len(NASTY), suite="ruler", lengths=(4096, 8192)),
    }
    for name, run in runs.items():
        write(folder / f"{name}.html", page(document(run), details(run)))
    reports = [Report(step=step, path=folder, document=document(runs["nasty"])) for step in (1, 2)]
    write(folder / "history.html", steps_page(history(reports)))
    return {path.stem: path for path in folder.iterdir()}


def chosen(browser: Browser, **filters: str) -> int:
    """How many samples are found after these fields were set, as the page says."""
    browser.run(
        f"""const form = document.getElementById("filters"), wanted = {json.dumps(filters)};
        for (const name in wanted) form.elements.namedItem(name).value = wanted[name];
        form.dispatchEvent(new Event("change"));"""
    )
    return int(browser.run("return document.getElementById('count').textContent").split()[0].replace(",", ""))


def data(page: Path) -> list[dict[str, Any]]:
    """The rows that the page carries."""
    text = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["compared", "nasty", "history"])
def test_a_page_asks_for_nothing_and_complains_of_nothing(
    name: str, scheme: str, width: int, opened: Browser, pages: dict[str, Path]
) -> None:
    opened.requests(), opened.console()
    opened.show(pages[name], width=width, scheme=scheme)
    assert opened.requests() == [pages[name].resolve().as_uri()]
    assert opened.console() == []
    # Wide tables scroll within themselves.
    assert opened.run("return document.documentElement.scrollWidth") <= width


def test_filters_find_what_they_say(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["compared"])
    rows = data(pages["compared"])
    assert chosen(opened) == len(rows)
    assert chosen(opened, task="vt") == sum(row["task"] == "vt" for row in rows)
    assert chosen(opened, length="32768") == sum((row["task"], row["length"]) == ("vt", 32768) for row in rows)
    opened.run("document.querySelector('#filters [type=reset]').click()")
    assert chosen(opened, failure="distractor") == sum(row.get("failure") == "distractor" for row in rows)
    assert chosen(opened, failure="-") == sum(row["score"] == 100 for row in rows)
    assert chosen(opened, failure="*") == sum(row["score"] < 100 for row in rows)
    for word, worse in (("worse", True), ("better", False)):
        flipped = [row for row in rows if "flip" in row and (row["score"] < row["flip"]["score"]) == worse]
        assert chosen(opened, failure="", flip=word) == len(flipped) > 0


def test_a_cell_of_the_heatmap_leads_to_its_samples(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["compared"])
    opened.run("document.querySelector('#tasks a[data-task=cwe][data-length=\"32768\"]').click()")
    found = opened.run(
        "return new Promise(done => setTimeout(() => done("
        "[...document.querySelectorAll('#rows button')].map(each => each.innerText)), 50))"
    )
    assert found
    assert all("cwe 32K" in name for name in found)


def test_a_sample_opens_by_keyboard_and_shows_what_was_asked(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["compared"])
    chosen(opened, task="vt", failure="*")
    opened.run("document.querySelector('#rows button').focus()")
    opened.type(DOWN + ENTER)
    told = opened.run("return document.querySelector('#rows .detail').innerText")
    assert opened.run("return [...document.querySelectorAll('#rows button')].indexOf(document.activeElement)") == 1
    for part in ("Question", "What is the value of key", "Expected", "Answer", "Place of the needle", "There and back"):
        assert part in told
    assert opened.run("return document.querySelectorAll('#rows .detail mark').length") >= 1
    opened.type(ENTER)
    assert opened.run("return document.querySelector('#rows .detail')") is None


def test_everything_can_be_reached_by_keyboard(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["nasty"])
    opened.type(TAB)
    assert opened.run("return document.activeElement.textContent") == "Skip to the results"
    wanted = {"A nav", "A heat", "SUMMARY gate", "SELECT filters", "BUTTON filters", "BUTTON rows", "BUTTON more"}
    places = {"nav": "nav", "heat": ".heat", "gate": ".gate", "filters": "#filters", "rows": "#rows", "more": "#more"}
    script = f"""const at = document.activeElement, places = {json.dumps(places)};
        return Object.keys(places).filter(name => at.closest(places[name])).map(name => `${{at.tagName}} ${{name}}`)"""
    for _ in range(250):
        opened.type(TAB)
        wanted -= set(opened.run(script))
        if not wanted:
            break
    assert not wanted


def test_matches_are_marked_as_words_and_what_was_left_out_is_told(opened: Browser, pages: dict[str, Path]) -> None:
    """A short reference stands in many words: only where none is it, it is marked within one."""
    row = {
        "task": "vt", "length": 4096, "index": 0, "score": 50, "expected": ["a", "44"], "found": [1, 0],
        "got": "a banana, a 1444", "more": 1000, "end": "the end a", "rest": 2000, "depth": 0.1, "depths": [0.1, 0.9],
    }  # fmt: skip
    within = row | {"index": 1, "expected": ["44"], "found": [0], "got": "only 1444", "end": "", "more": 0, "rest": 0}
    text = pages["nasty"].read_text(encoding="utf-8")
    start = text.index('id="data">') + len('id="data">')
    changed = pages["nasty"].with_name("marked.html")
    end = text.index("</script>", start)
    changed.write_text(f"{text[:start]}{json.dumps({'rows': [row, within]})}{text[end:]}", encoding="utf-8")
    opened.show(changed)
    opened.run("document.querySelectorAll('#rows button').forEach(each => each.click())")
    marks = "return [...document.querySelectorAll('#rows .detail')].map(each => [...each.querySelectorAll('mark')]"
    assert opened.run(f"{marks}.map(mark => mark.textContent))") == [["a", "a", "a"], ["44"]]
    told = opened.run("return document.querySelector('#rows .detail').innerText")
    assert "a banana, a 1444 … 1,000 characters … the end a … 2,000 characters …" in told
    assert "10.0 %, 90.0 % (missed) of the context" in told


def test_a_dark_page_is_printed_dark_on_light(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["compared"], scheme="dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    colour = "return getComputedStyle(document.querySelector('.word.pass')).color"
    on_screen = opened.run(colour)
    opened.command("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    try:
        assert opened.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert opened.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
        assert opened.run(colour) == "rgb(0, 102, 79)" != on_screen
    finally:
        opened.command("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("name", ["compared", "nasty"])
def test_an_opened_sample_fits_a_narrow_window(name: str, opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages[name], width=390)
    opened.run("document.querySelectorAll('#rows button').forEach(each => each.click())")
    table, room = opened.run(
        "const table = document.querySelector('.samples'); return [table.scrollWidth, table.parentElement.clientWidth]"
    )
    assert table <= room


def test_the_comparison_shows_both_answers_of_a_flip(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["compared"])
    assert "shown to be worse" in opened.run("return document.getElementById('comparison').innerText")
    chosen(opened, flip="worse")
    opened.run("document.querySelector('#rows button').click()")
    told = opened.run("return document.querySelector('#rows .detail').innerText")
    assert "Baseline, 100" in told
    assert "I say value-" in told
    assert "I believe" in told


def test_nothing_that_a_model_says_runs(opened: Browser, pages: dict[str, Path]) -> None:
    opened.show(pages["nasty"])
    title = opened.run("return document.title")
    opened.run("document.querySelectorAll('#rows button').forEach(each => each.click())")
    told = opened.run("return document.getElementById('rows').textContent")
    for sign in ("<script>document.title='run'</script>", "</script><img", "&lt;b&gt;", "⟨U+202E⟩", "⟨U+D800⟩", "a␀b"):
        assert sign in told
    assert opened.run("return document.title") == title
    assert opened.run("return document.querySelectorAll('img').length") == 0
    assert opened.run("return document.scripts.length") == 2
    assert opened.console() == []


def test_everything_but_the_samples_is_there_without_a_script(opened: Browser, pages: dict[str, Path]) -> None:
    opened.command("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        opened.show(pages["compared"])
    finally:
        opened.command("Emulation.setScriptExecutionDisabled", {"value": False})
    assert opened.run("return document.querySelectorAll('svg').length") > 20
    assert "Browsing samples needs JavaScript" in opened.run("return document.getElementById('samples').innerText")
