"""The tables of docs/command.md, which are made from the table of options.

python -m tests.docs.option_tables
"""

import re

from longctx.plugins.config.options import RUN_OPTIONS
from tests.helpers.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "command.md"
COMMAND = "python -m tests.docs.option_tables"
BEGIN, END = "<!-- made from plugins/config/options.py -->", "<!-- end -->"
LINKS = {
    "--series": "verdicts.md",
    "--chosen-from": "verdicts.md",
    "--tasks-file": "own-questions.md",
    "--signal": "likelihood.md",
    "--data-dir": "suites.md",
    "--prompts": "ruler.md#differences-from-the-public-scripts",
    "--yardstick": "gates.md#the-yardstick",
    "--base-model": "checkpoints.md",
    "--convert": "checkpoints.md",
}
"""The page that describes an option."""
BLOCK = re.compile(rf"(## (.+)\n\n(?:(?!#).*\n)*?{BEGIN}\n)(?:.*\n)*?({END})")


def current() -> str:
    """Return the page with the tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    return BLOCK.sub(lambda block: f"{block[1]}\n{_table(block[2])}\n\n{block[3]}", text)


def _table(section: str) -> str:
    """Return the table of options under a heading of the page."""
    lines: list[tuple[str, ...]] = [("option", "meaning", "default"), ("---", "---", "---")]
    for option in RUN_OPTIONS.values():
        if option.section == section:
            link = f" ([more]({LINKS[option.flag]}))" if option.flag in LINKS else ""
            lines.append((f"`{option.flag}`", option.help + link, option.default_text))
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
