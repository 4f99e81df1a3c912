"""A run whose model gives answers that could break a report: all reports of it are valid and agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator
from markupsafe import escape

from longctx.plugins.report.markdown import markdown_text as rendered_markdown_text
from tests.helpers.pages import rows_of, tables_of
from tests.helpers.reports import NASTY, markdown_rows, shown
from tests.helpers.runs import SCHEMA, CompletedRun, calibration_checkpoint, completed_run
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
# The elements that Jenkins' xunit plugin (junit-10.xsd) and pytest know: the children that an element may have, the
# attributes that it must have, and those that it may have besides.
JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, set(), {"name"}),
    "testsuite": (
        {"properties", "testcase"},
        {"name", "tests", "failures", "errors"},
        {"skipped", "time", "timestamp", "hostname"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, set()),
    "testcase": (
        {"properties", "skipped", "error", "failure", "system-out", "system-err"},
        {"name"},
        {"classname", "time", "file", "line"},
    ),
    "failure": (set(), set(), {"message", "type"}),
    "skipped": (set(), set(), {"message", "type"}),
}


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


def test_the_run_ends_and_its_json_report_follows_the_schema(run: CompletedRun) -> None:
    assert run.exit_code in (0, 1), run.errors
    Draft202012Validator(SCHEMA).validate(run.report)
    assert run.report["run"]["step"] == 1200
    answers = [example["got"] for case in run.report["cases"] for example in case["examples"]]
    assert any("<script>" in answer for answer in answers)
    assert any("\ud800" in answer for answer in answers)
    assert any("\x00" in answer for answer in answers)


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


def test_means_and_effective_length_are_the_same_in_all_reports(
    run: CompletedRun, page_text: str, markdown_text: str, tables: dict[str, list[list[str]]]
) -> None:
    ruler = run.report["ruler"]
    heatmap = {row[0]: row[1:] for row in tables["RULER: score by task and length"][1:]}
    markdown = markdown_rows(markdown_text)
    terminal = {line[2:22].strip(): line[22:].split() for line in run.output.splitlines() if line.startswith("= ")}
    for name, scores in (*ruler["aspects"].items(), ("RULER", ruler["scores"])):
        row = [shown(scores[str(length)]) for length in LENGTHS]
        assert heatmap[f"{name} mean"] == markdown[f"{name} mean"] == terminal[f"{name} mean"] == row
    label = ruler["effective_length_label"]
    assert label is not None
    assert f'id="effective">{label.replace("<", "&lt;")}</p>' in page_text
    assert f"Effective length **{label.replace('<', '&lt;')}**" in markdown_text
    assert re.search(rf"^effective +{re.escape(label)}, claimed", run.output, re.MULTILINE)
    suite = ElementTree.parse(run.folder / "junit.xml").findall("./testsuite/properties/property")
    properties = {node.get("name"): node.get("value") for node in suite}
    assert properties["ruler.effective_length"] == label


def test_verdict_gates_and_cost_are_the_same_in_all_reports(
    run: CompletedRun, page_text: str, markdown_text: str
) -> None:
    tokens = f"{run.report['run']['tokens']['computed']:,}"
    assert all(tokens in text for text in (page_text, markdown_text, run.output))
    assert ('<p class="verdict fail">' in page_text) == (run.exit_code == 1) == ("### ❌" in markdown_text)
    for gate in run.report["gates"]:
        assert gate["reason"].replace("<", "&lt;").replace("'", "&#39;") in page_text
        assert run.junit_properties(f"gate[{gate['name']}]")["verdict"] == gate["verdict"]


def test_the_junit_file_follows_its_schema(run: CompletedRun) -> None:
    for element in ElementTree.parse(run.folder / "junit.xml").getroot().iter():
        children, required, optional = JUNIT[element.tag]
        assert {child.tag for child in element} <= children
        assert required <= set(element.attrib) <= required | optional


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


def test_a_regression_gate_is_the_same_in_all_reports(compared: CompletedRun) -> None:
    gates = [gate for gate in compared.report["gates"] if gate["kind"] == "regression"]
    page_text, markdown = ((compared.folder / f"report{end}").read_text(encoding="utf-8") for end in (".html", ".md"))
    terminal = " ".join(compared.output.split())
    assert gates
    for gate in gates:
        assert f"lost {-gate['measured']:.1f} points " in gate["reason"]
        assert escape(gate["reason"]) in page_text
        assert rendered_markdown_text(gate["reason"], 160) in markdown
        assert f"{gate['name']}: {' '.join(gate['reason'].split())}" in terminal
        properties = compared.junit_properties(f"gate[{gate['name']}]")
        assert float(properties["measured"]) == pytest.approx(gate["measured"], abs=1e-4)
        assert properties["verdict"] == gate["verdict"]
