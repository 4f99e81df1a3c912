"""The committed example pages are of the current schema, small and whole, and the README quotes them."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks import example_pages
from longctx.ci.suite_process import read_report
from tests.helpers.page_commands import page_commands
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import SCHEMA

EXAMPLES = REPOSITORY / "docs" / "examples"
REPORTS = sorted(EXAMPLES.glob("*.json"))
LARGEST_BYTES = 160_000
REMADE = "make them again: make examples CKPT=path/to/smollm2-135m"


def readme_blocks() -> list[str]:
    """Return the indented blocks of the README, without their indent."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return [
        re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    ]


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_an_example_report_is_of_the_current_schema(path: Path) -> None:
    document: Any = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(document, SCHEMA)
    assert read_report(path) is not None, REMADE
    page = path.with_suffix(".html").read_text(encoding="utf-8")
    assert document["model"]["fingerprint"] in page


def test_the_examples_are_there_small_and_name_no_path_of_a_machine() -> None:
    assert {path.stem for path in REPORTS} == {"report", "curve"}
    assert (EXAMPLES / "watch" / "index.html").is_file()
    files = [path for path in EXAMPLES.rglob("*") if path.is_file()]
    assert [path.name for path in files if path.stat().st_size > LARGEST_BYTES] == []
    texts = [path for path in files if path.suffix != ".webp"]
    assert [path.name for path in texts if re.search(r"/(work|tmp|root|home)/", path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("name", "arguments", "page"),
    [("report", example_pages.COMPARISON, "README.md"), ("curve", example_pages.CURVE, "results.md")],
)
def test_the_readme_quotes_an_example(name: str, arguments: tuple[str, ...], page: str) -> None:
    command, *output = (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert command == f"$ longctx {example_pages.words(arguments)}"
    assert [shown.text for shown in page_commands() if shown.page == page and shown.is_block and shown.text in command]
    quoted = [block.splitlines() for block in readme_blocks()]
    assert [lines for lines in quoted if len(lines) > 2 and {*lines} - {"..."} <= {*output}]
