"""A run whose model gives answers that could break a report: all reports of it are valid and agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.helpers.pages import rows_of, tables_of
from tests.helpers.reports import NASTY, markdown_rows, shown
from tests.helpers.runs import CompletedRun, calibration_checkpoint, completed_run
from tests.helpers.servers import ChatServer, needles_within

LENGTHS = (900, 1000)
# A plugin that replaces the answers at the longer length.
NASTY_ANSWERS = f"""
from msgspec.structs import replace

from longctx.plugins.runner.samples import AnswerScorer

NASTY = {NASTY!r}
store = AnswerScorer.store
replaced = []

def store_replaced(self, journal, job, generation):
    if job.sample.length == {LENGTHS[-1]}:
        generation = replace(generation, text=NASTY[len(replaced) % len(NASTY)])
        replaced.append(generation)
    store(self, journal, job, generation)

AnswerScorer.store = store_replaced
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompletedRun]:
    size = ("--suite", "ruler", "--lengths", ",".join(map(str, LENGTHS)), "--samples", "1", "--full", "--step", "1200")
    with ChatServer().serving() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        server.answer = needles_within(LENGTHS[0], calibration_checkpoint("900"))
        model = ("--model", "calibration:900", f"--base-url={server.url}")
        yield completed_run(tmp_path_factory, *model, *size, plugin=NASTY_ANSWERS)


@pytest.fixture(scope="module")
def page_text(run: CompletedRun) -> str:
    return (run.folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def markdown_text(run: CompletedRun) -> str:
    return (run.folder / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables(page_text: str) -> dict[str, list[list[str]]]:
    return tables_of(page_text)


def test_every_case_has_the_same_score_in_all_reports(
    run: CompletedRun, markdown_text: str, tables: dict[str, list[list[str]]]
) -> None:
    page = {row[0]: row for row in tables["cases"][1:]}
    heatmap = {row[0]: row[1:] for row in tables["RULER: score by task and length"][1:]}
    markdown = markdown_rows(markdown_text)
    terminal = {line.split()[0]: line.split() for line in run.output.splitlines() if line.split()}
    assert len(page) == len(run.cases) == 13 * len(LENGTHS)
    for case in run.report["cases"]:
        score, column = shown(case["score"]), LENGTHS.index(case["length"])
        assert shown(float(run.junit_properties(case["id"])["score"])) == score
        assert page[case["id"]][1] == score
        assert page[case["id"]][3:5] == [str(case["samples"]), str(case["planned"])]
        assert heatmap[case["task"]][column].removesuffix(" ▼") == score
        assert markdown[case["task"]][column].removesuffix(" ▼") == score
        assert terminal[case["task"]][-len(LENGTHS) :][column] == score


def test_verdict_gates_and_cost_are_the_same_in_all_reports(
    run: CompletedRun, page_text: str, markdown_text: str
) -> None:
    tokens = f"{run.report['run']['tokens']['computed']:,}"
    assert all(tokens in text for text in (page_text, markdown_text, run.output))
    assert ('<p class="verdict fail">' in page_text) == (run.exit_code == 1) == ("### ❌" in markdown_text)
    for gate in run.report["gates"]:
        assert gate["reason"].replace("<", "&lt;").replace("'", "&#39;") in page_text
        assert run.junit_properties(f"gate[{gate['name']}]")["verdict"] == gate["verdict"]


def test_no_report_has_control_characters_or_markup_of_a_model(
    run: CompletedRun, page_text: str, markdown_text: str
) -> None:
    for text in (page_text, markdown_text):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
        assert "<img" not in text
        assert "document.title='run'</script>" not in text
    assert json.loads((run.folder / "report.json").read_text(encoding="ascii"))


def test_a_wrong_answer_is_shown_with_its_question_and_needle(page_text: str) -> None:
    """The journal stores the excerpt with the result, so that no report has to build a context again."""
    needles = [row for row in rows_of(page_text) if row["task"] == "niah_single_1" and row["score"] < 100]
    assert needles
    for row in needles:
        assert row["excerpt"]["needle"] == row["expected"][0]
        assert "special magic" in row["excerpt"]["question"]
        assert len(json.dumps(row["excerpt"])) < 1500


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> CompletedRun:
    """A run of a checkpoint whose baseline supports a longer context."""
    models = ("--model", "calibration:512", "--baseline", "calibration:900", "--lengths", "900", "--samples", "4")
    return completed_run(tmp_path_factory, *models, "-k", "niah_single_2 or niah_single_3", "--full")


def test_a_flipped_sample_shows_the_baselines_answer(compared: CompletedRun) -> None:
    assert compared.exit_code in (0, 1), compared.errors
    rows = rows_of((compared.folder / "report.html").read_text(encoding="utf-8"))
    regression = compared.report["regression"]["cases"]
    flips = [row for row in rows if "flip" in row]
    assert len(flips) == sum(case["worse"] + case["better"] for case in regression.values()) > 0
    for row in flips:
        assert row["score"] < row["flip"]["score"] == 100
        assert row["expected"][0] in row["flip"]["answer"]
        assert row["expected"][0] not in row["answer"]
        assert row["excerpt"]["needle"] == row["expected"][0]
