"""Pages of made-up runs, and a reader of what is in them."""

from __future__ import annotations

from html.parser import HTMLParser

from plugins.report.details import details
from plugins.report.document import RunSummary, document
from plugins.report.html.page import page


class Reader(HTMLParser):
    """Tags with their attributes, and the content of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
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


def page_of(run: RunSummary) -> str:
    return page(document(run), details(run))


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader
