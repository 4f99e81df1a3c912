"""`longctx docs` and `longctx recipes`: the pages and the scripts that come with the package."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line, report_wrong_use
from longctx.fixtures.installation import IS_CLONE, SUITE
from longctx.fixtures.shown_text import known_names

PACKAGE = Path(__file__).parent
SITE, PAGES = PACKAGE / "site" / "index.html", PACKAGE / "docs"
FOLDERS = ("ci/recipes", "ci/slurm", "ci/servers")
# What the recipes say and call in a clone, and what holds where the command is installed.
INSTALLED = {
    " In the clone:": "",
    "in the clone": "beside this directory",
    "from the clone": "beside this directory",
    "make .venv/.ready": "command -v longctx",
    "pytest --": "longctx run --",
    '"${LONGCTX_PYTEST:-.venv/bin/pytest}"': "longctx run",
    ".venv/bin/pytest": "longctx run",
    ".venv/bin/longctx": "longctx",
    "../../thresholds.toml": "thresholds.toml",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; return 0, or 4 after one line."""
    name, *words = sys.argv[1:] if arguments is None else arguments
    return _docs(words) if name == "docs" else _recipes(words)


def _docs(words: Sequence[str]) -> int:
    parser = CommandParser(prog="longctx docs", description="Print where the pages are, or where one of them is.")
    parser.add_argument("page", nargs="?", metavar="PAGE", help="the name of a page, such as gates")
    wanted = parser.parse_args(words).page
    pages = {path.stem: path for path in sorted(PAGES.glob("*.md"))}
    if wanted is not None:
        if wanted not in pages:
            return report_wrong_use(f"PAGE: unknown {wanted!r}; {known_names(wanted, pages, listed_by='longctx docs')}")
        print_line(str(pages[wanted].resolve()))
        return 0
    if SITE.is_file():
        print_line(f"in a browser  {SITE.as_uri()}")
    elif IS_CLONE:
        print_line("in a browser  after `make site`")
    print_line(f"as text       {PAGES.resolve()}: {', '.join(pages)}")
    return 0


def _recipes(words: Sequence[str]) -> int:
    parser = CommandParser(
        prog="longctx recipes",
        description="Write scripts for CI systems and schedulers, and the files that they need, to a directory. Lines "
        "to edit have a comment.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="created if missing")
    target = parser.parse_args(words).directory
    sources = [file for folder in FOLDERS for file in sorted((PACKAGE / folder).iterdir()) if file.suffix != ".pyc"]
    sources.append(SUITE / "thresholds.toml")
    existing = [name for source in sources if (name := target / source.name).exists()]
    if existing:
        return report_wrong_use(f"DIR: {existing[0]} exists; give another directory, or remove it")
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        text = source.read_text(encoding="utf-8")
        for clones, own in INSTALLED.items():
            text = text.replace(clones, own)
        copy = target / source.name
        for folder in FOLDERS:
            text = text.replace(f"{folder}/", f"{target.as_posix()}/")
        copy.write_text(text, encoding="utf-8")
        shutil.copymode(source, copy)
        print_line(str(copy))
    return 0
