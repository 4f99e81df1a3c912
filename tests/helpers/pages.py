"""Report pages of invented runs, and parsers for them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from longctx.fixtures.shown_text import visible_data
from longctx.plugins.report.document import RunSummary, document
from longctx.plugins.report.html.page import page


class PageParser(HTMLParser):
    """Collect the tags of a page with their attributes, and the contents of its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        """Pairs of type and content, one for every script and style."""
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.raw.append((dict(attributes).get("type") or tag, ""))
            self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside:
            kind, text = self.raw[-1]
            self.raw[-1] = (kind, text + data)


class TableParser(HTMLParser):
    """Collect the text of a page's tables, row by row, under the table's id or its caption."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.rows: list[list[str]] = []
        self.name = ""
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.rows, self.name = [], dict(attributes).get("id") or ""
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td") and self.rows:
            self.rows[-1].append("")
        self.inside = tag if tag in ("th", "td", "caption") else self.inside

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.tables[self.name] = self.rows
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside == "caption" and not self.name:
            self.name = data
        elif self.inside in ("th", "td") and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def page_of(summary: RunSummary) -> str:
    """Return the HTML page of a run."""
    return page(visible_data(document(summary)), summary)


def parse(text: str) -> PageParser:
    """Return a parser that has read the page."""
    parser = PageParser()
    parser.feed(text)
    return parser


def tables_of(text: str) -> dict[str, list[list[str]]]:
    """Return the tables of a page by id or caption, as rows of cell texts with the header first."""
    parser = TableParser()
    parser.feed(text)
    return parser.tables


def rows_of(text: str) -> list[dict[str, Any]]:
    """Return the samples that a page embeds for its script."""
    rows: list[dict[str, Any]] = json.loads(text.partition('id="data">')[2].partition("</script>")[0])["rows"]
    return rows
