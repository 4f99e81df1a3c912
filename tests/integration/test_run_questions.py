"""A private set of 200 questions becomes gated cases with ten lines of TOML and no code."""

import json
import re

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.paths import REPOSITORY
from tests.helpers.question_files import write_rows
from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, run_pytest
from tests.helpers.servers import served_needles

PAGE = REPOSITORY / "docs" / "own-questions.md"
QUESTIONS = 200
# The needle task that the server of `served_needles` solves, as a private set: its window is half of the longer length.
WORDED = {
    '"contract"': '"note"',
    r'"{context}\n\nQuestion: {question}", lead_in = "\nAnswer:"': (
        r'"{context}\n", lead_in = "The special magic number for {key} mentioned in the provided text is"'
    ),
    "budget = 32": 'budget = 16\nlength = { rule = "fill" }',
}


def page_example() -> str:
    """Return the tasks file of the page."""
    block = re.search(r"^    \[\[dataset\]\]\n(?:    .*\n)+", PAGE.read_text(), re.MULTILINE)
    assert block is not None
    return re.sub(r"^    ", "", block[0], flags=re.MULTILINE)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    folder = tmp_path_factory.mktemp("questions")
    text = page_example()
    for old, new in WORDED.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "contracts.toml").write_text(text)
    rows = [
        {
            "note": f"One of the special magic numbers for key-{n} is: {1_000_000 + 37 * n}.",
            "question": f"The number of key-{n}?",
            "key": f"key-{n}",
            "answer": [str(1_000_000 + 37 * n)],
        }
        for n in range(QUESTIONS)
    ]
    write_rows(folder / "contracts.jsonl", rows)
    checkpoint = calibration_checkpoint("512")
    with served_needles(512, checkpoint) as address:
        return run_pytest(
            folder, "--suite=tasks", f"--tasks-file={folder}/contracts.toml", f"--model={checkpoint}", address,
            "--lengths=512,2k", f"--report-json={folder}/report.json",
        )  # fmt: skip


def test_the_example_of_the_page_has_ten_lines() -> None:
    assert len(page_example().splitlines()) == 10


def test_a_private_set_is_gated_at_every_length(served: CompletedRun) -> None:
    report = json.loads((served.folder / "report.json").read_text())
    Draft202012Validator(SCHEMA).validate(report)
    assert served.exit_code == 1
    assert {case["id"]: case["planned"] for case in report["cases"]} == {
        "test_questions[contracts-512]": QUESTIONS,
        "test_questions[contracts-2k]": QUESTIONS,
    }
    verdicts = {gate["name"]: gate["verdict"] for gate in report["gates"]}
    assert verdicts == {"contracts at 512": "pass", "contracts at 2k": "fail"}
    assert 15 < next(case["score"] for case in report["cases"] if case["length"] == 2048) < 40


def test_results_are_keyed_by_the_version_and_the_content_of_the_set(served: CompletedRun) -> None:
    report = json.loads((served.folder / "report.json").read_text())
    for case in report["cases"]:
        assert re.fullmatch(r"2026-11-[0-9a-f]{16}(\.\d+){3}", case["version"])
