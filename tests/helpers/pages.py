"""Report pages of invented runs, and parsers for them."""

import html
import json
import re
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
    tables = {}
    for attributes, table in re.findall(r"<table\b([^>]*)>(.*?)</table>", text, re.DOTALL):
        (name,) = (
            re.findall(r'\bid="?([^" ]+)', attributes) or re.findall(r"<caption[^>]*>(.*?)</caption>", table) or [""]
        )
        rows = re.findall(r"<tr\b[^>]*>(.*?)</tr>", table, re.DOTALL)
        tables[name] = [
            [_text(cell) for cell in re.findall(r"<(?:td|th)\b[^>]*>(.*?)</t[dh]>", row, re.DOTALL)] for row in rows
        ]
    return tables


def _text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def rows_of(text: str) -> list[dict[str, Any]]:
    """Return the samples that a page embeds for its script."""
    rows: list[dict[str, Any]] = json.loads(text.partition('id="data">')[2].partition("</script>")[0])["rows"]
    return rows
