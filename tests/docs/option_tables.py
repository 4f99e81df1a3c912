"""The tables of docs/command.md, which are made from the table of options.

python -m tests.docs.option_tables
"""

from __future__ import annotations

import re

from longctx.plugins.config.options import RUN_OPTIONS
from tests.helpers.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "command.md"
COMMAND = "python -m tests.docs.option_tables"
BEGIN, END = "<!-- made from plugins/config/options.py -->", "<!-- end -->"
BLOCK = re.compile(rf"(## (.+)\n\n(?:(?!#).*\n)*?{BEGIN}\n)(?:.*\n)*?({END})")


def current() -> str:
    """Return the page with the tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    return BLOCK.sub(lambda block: f"{block[1]}\n{_table(block[2])}\n\n{block[3]}", text)


def _table(section: str) -> str:
    """Return the table of options under a heading of the page."""
    rows = [option for option in RUN_OPTIONS.values() if option.section == section]
    cells = [
        (f"`{option.flag}`", option.page or option.help, option.shown_default if option.kind != "flag" else "")
        for option in rows
    ]
    lines = [("option", "meaning", "default"), ("---", "---", "---"), *cells]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
