"""Build the site from the pages, the README, CONTRIBUTING and the changelog, and check every link of it.

make site
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from longctx.fixtures.cli import print_line
from tests.helpers.page_commands import DOCS
from tests.helpers.paths import REPOSITORY

# The folder of `zensical.toml`, which names the next two.
ROOT = REPOSITORY
SOURCES, SITE = ROOT / "build" / "pages", ROOT / "build" / "site"
# The wheel carries this copy, and `longctx docs` prints where it is.
PACKAGED = ROOT / "longctx" / "site"
TOP_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(\]\(|src=\"|srcset=\"|href=\")docs/")
# The theme would load this from another server, so that search works on pages opened from files.
FOREIGN_SCRIPT, OWN_SCRIPT = "https://unpkg.com/iframe-worker/shim", "site/worker.js"


def main() -> int:
    """Return 0, or 1 after one line for each broken link."""
    write_sources(SOURCES)
    built = subprocess.run(
        [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"], cwd=ROOT, check=False
    )
    if built.returncode != 0:
        return 1
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(FOREIGN_SCRIPT, OWN_SCRIPT), encoding="utf-8")
    problems = sorted(broken_links(SITE))
    for problem in problems:
        print_line(problem)
    if not problems:
        shutil.rmtree(PACKAGED, ignore_errors=True)
        shutil.copytree(SITE, PACKAGED)
        print_line(f"{SITE.relative_to(ROOT)}/index.html")
    return 1 if problems else 0


def write_sources(folder: Path) -> None:
    """Write the pages of the site to a folder: docs/, and the top pages with links that start beside them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for name, page in TOP_PAGES.items():
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        text = LINK.sub(r"\1", text)
        for other, its_page in TOP_PAGES.items():
            text = text.replace(f"]({other})", f"]({its_page})")
        (folder / page).write_text(text.replace("](LICENSE)", "](https://www.apache.org/licenses/LICENSE-2.0)"))


class _Page(HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        is_loaded = tag in ("script", "img", "iframe", "source") or (tag == "link" and values.get("rel") != "canonical")
        for name in ("href", "src", "srcset"):
            if values.get(name):
                (self.loaded if is_loaded else self.targets).append(values[name])


def broken_links(site: Path) -> Iterator[str]:
    """Yield a line for each link to a file or heading that is not there, and for each file of another server."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: loads {target}" for target in page.loaded if urlsplit(target).scheme in ("http", "https"))
        # The theme's page for a missing address has links from the root of a server.
        for target in [] if name.name == "404.html" else (*page.targets, *page.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file():
                yield f"{name}: {target}: no such file"
            # The script of a watch's index reads `#compare-STEP`.
            elif "examples" in name.parts and parts.fragment.startswith("compare-"):
                continue
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].ids:
                yield f"{name}: {target}: no such heading"


if __name__ == "__main__":
    sys.exit(main())
