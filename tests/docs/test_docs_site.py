"""The site has every page, its how-to pages are short, and its check finds broken links."""

import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs import site
from tests.helpers.page_commands import DOCS
from tests.helpers.paths import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))["project"]
MOST_WORDS = 1700


def pages_below(entry: Any) -> Iterator[str]:
    """Yield the pages of an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_below(inner)


def test_the_navigation_has_every_page_once(tmp_path: Path) -> None:
    site.write_sources(tmp_path / "pages")
    assert sorted(pages_below(PROJECT["nav"])) == sorted(page.name for page in (tmp_path / "pages").glob("*.md"))


def test_no_how_to_page_is_long() -> None:
    (how_to,) = (entry["How-to"] for entry in PROJECT["nav"] if "How-to" in entry)
    words = {page: len((DOCS / page).read_text(encoding="utf-8").split()) for page in pages_below(how_to)}
    assert len(words) > 8
    assert {page: count for page, count in words.items() if count > MOST_WORDS} == {}


def test_broken_links_and_foreign_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h2 id="here">A</h2><a href="#here">1</a><a href="b.html#there">2</a><a href="c.html">3</a>'
        '<a href="b.html#nowhere">4</a><a href="https://example.com/">5</a><script src="https://example.com/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<h2 id="there">B</h2><img src="picture.png">')
    assert sorted(site.broken_links(tmp_path)) == [
        "a.html: b.html#nowhere: no such heading",
        "a.html: c.html: no such file",
        "a.html: loads https://example.com/x.js",
        "b.html: picture.png: no such file",
    ]


@pytest.mark.slow
@pytest.mark.skipif(not Path(sys.executable).with_name("zensical").exists(), reason="`make site` installs zensical")
def test_the_site_builds_without_a_broken_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "zensical.toml", tmp_path)
    for name in ("SOURCES", "SITE", "PACKAGED"):
        monkeypatch.setattr(site, name, tmp_path / getattr(site, name).relative_to(REPOSITORY))
    monkeypatch.setattr(site, "ROOT", tmp_path)
    assert site.main() == 0
    assert "worker.js" in (tmp_path / "longctx" / "site" / "index.html").read_text()
