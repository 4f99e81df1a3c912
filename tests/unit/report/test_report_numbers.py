"""One run whose model says what could break a report: every form of it is whole, and all of them say the same."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from fixtures.lengths import parse_length
from plugins.report.details import details
from plugins.report.document import document
from plugins.report.html.page import page
from plugins.report.markdown import markdown, plain
from plugins.report.terminal import summary_lines
from tests.helpers.reports import NASTY, run_summary
from tests.helpers.runs import SCHEMA, Finished, calibrated, finished_run
from tests.helpers.servers import ChatServer, needles_within

LENGTHS = (900, 1000)
# The answers at the longer length are replaced.
SPEAKER = f"""
from dataclasses import replace

from plugins.runner.score_answers import AnswerScorer

NASTY = {NASTY!r}
keep = AnswerScorer.keep
said = []

def speak(self, journal, job, generation):
    if job.sample.length == {LENGTHS[-1]}:
        generation = replace(generation, text=NASTY[len(said) % len(NASTY)])
        said.append(generation)
    keep(self, journal, job, generation)

AnswerScorer.keep = speak
"""
# JUnit's elements as Jenkins' xunit plugin (junit-10.xsd) and pytest know them: what may stand in each, and its
# attributes; those without which it is not valid come first.
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


class Tables(HTMLParser):
    """The text of a page's tables by id, or by caption, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self.rows: list[list[str]] = []
        self.name = ""
        self.inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.rows, self.name = [], dict(attributes).get("id") or ""
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td") and self.rows:
            self.rows[-1].append("")
        self.inside = tag if tag in ("th", "td", "caption") else self.inside

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.found[self.name] = self.rows
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside == "caption" and not self.name:
            self.name = data
        elif self.inside in ("th", "td") and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    size = ("--suite", "ruler", "--lengths", ",".join(map(str, LENGTHS)), "--samples", "1", "--full", "--step", "1200")
    with ChatServer().serving() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        server.answer = needles_within(LENGTHS[0], calibrated("900"))
        model = ("--model", "calibration:900", f"--base-url={server.url}")
        yield finished_run(tmp_path_factory, *model, *size, plugin=SPEAKER)


@pytest.fixture(scope="module")
def texts(spoken: Finished) -> dict[str, str]:
    """The page and the Markdown, by suffix."""
    return {suffix: (spoken.folder / f"report{suffix}").read_text(encoding="utf-8") for suffix in (".html", ".md")}


@pytest.fixture(scope="module")
def tables(texts: dict[str, str]) -> dict[str, list[list[str]]]:
    reader = Tables()
    reader.feed(texts[".html"])
    return reader.found


def shown(score: float | None) -> str:
    return "-" if score is None else f"{score:.1f}"


def pipes(markdown: str) -> dict[str, list[str]]:
    """A Markdown table's cells by the first one of each row."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in markdown.splitlines() if line.startswith("| ")]
    return {row[0].strip().replace("\\", "").strip("*"): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_run_went_through_and_its_json_follows_the_schema(spoken: Finished) -> None:
    assert spoken.code in (0, 1), spoken.errors
    Draft202012Validator(SCHEMA).validate(spoken.report)
    assert spoken.report["run"]["step"] == 1200
    got = [example["got"] for case in spoken.report["cases"] for example in case["examples"]]
    assert any("<script>" in text for text in got)
    assert any("\ud800" in text for text in got)
    assert any("\x00" in text for text in got)


def test_every_case_has_the_same_score_everywhere(
    spoken: Finished, texts: dict[str, str], tables: dict[str, list[list[str]]]
) -> None:
    page = {row[0]: row for row in tables["cases"][1:]}
    heat = {row[0]: row[1:] for row in tables["RULER: score by task and length"][1:]}
    markdown = pipes(texts[".md"])
    terminal = {line.split()[0]: line.split() for line in spoken.output.splitlines() if line.split()}
    assert len(page) == len(spoken.cases) == 13 * len(LENGTHS)
    for case in spoken.report["cases"]:
        score, at = shown(case["score"]), LENGTHS.index(case["length"])
        assert shown(float(spoken.properties(case["id"])["score"])) == score
        assert page[case["id"]][1] == score
        assert page[case["id"]][3:5] == [str(case["samples"]), str(case["planned"])]
        assert heat[case["task"]][at].removesuffix(" ▼") == score
        assert markdown[case["task"]][at].removesuffix(" ▼") == score
        assert terminal[case["task"]][-len(LENGTHS) :][at] == score


def test_means_and_the_headline_are_the_same_everywhere(
    spoken: Finished, texts: dict[str, str], tables: dict[str, list[list[str]]]
) -> None:
    ruler = spoken.report["ruler"]
    heat = {row[0]: row[1:] for row in tables["RULER: score by task and length"][1:]}
    markdown = pipes(texts[".md"])
    terminal = {line.split()[1]: line.split()[2:] for line in spoken.output.splitlines() if line.startswith("= ")}
    for name, scores in (*ruler["aspects"].items(), ("mean", ruler["scores"])):
        row = [shown(scores[str(length)]) for length in LENGTHS]
        assert heat["RULER mean" if name == "mean" else f"{name} mean"] == row
        assert markdown["RULER mean" if name == "mean" else name] == row
        assert terminal[name] == row
    label = ruler["effective_length_label"]
    assert label is not None
    assert f'id="effective">{label.replace("<", "&lt;")}</p>' in texts[".html"]
    assert f"Effective length **{label.replace('<', '&lt;')}**" in texts[".md"]
    assert re.search(rf"^effective +{re.escape(label)}, claimed", spoken.output, re.MULTILINE)
    root = ElementTree.parse(spoken.folder / "junit.xml")
    told = {each.get("name"): each.get("value") for each in root.findall("./testsuite/properties/property")}
    assert told["ruler.effective_length"] == label


def test_the_verdict_and_the_cost_are_the_same_everywhere(spoken: Finished, texts: dict[str, str]) -> None:
    tokens = f"{spoken.report['run']['tokens']['computed']:,}"
    assert all(tokens in text for text in (*texts.values(), spoken.output))
    assert ('<p class="verdict fail">' in texts[".html"]) == (spoken.code == 1) == ("### ❌" in texts[".md"])
    for gate in spoken.report["gates"]:
        assert gate["reason"].replace("<", "&lt;") in texts[".html"]
        assert spoken.properties(f"gate[{gate['name']}]")["verdict"] == gate["verdict"]


def test_the_junit_file_follows_its_schema(spoken: Finished) -> None:
    for element in ElementTree.parse(spoken.folder / "junit.xml").getroot().iter():
        children, needed, allowed = JUNIT[element.tag]
        assert {child.tag for child in element} <= children
        assert needed <= set(element.attrib) <= needed | allowed


def test_no_report_holds_what_a_reader_could_not_take(spoken: Finished, texts: dict[str, str]) -> None:
    for text in texts.values():
        assert not re.search(r"[\x00-\x08\x0b-\x1f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
        assert "<img" not in text
        assert "document.title='run'</script>" not in text
    assert json.loads((spoken.folder / "report.json").read_text(encoding="ascii"))


def test_what_was_asked_stands_beside_a_wrong_answer(spoken: Finished, texts: dict[str, str]) -> None:
    """Kept with the result, so that no context has to be built again."""
    rows = json.loads(texts[".html"].partition('id="data">')[2].partition("</script>")[0])["rows"]
    needles = [row for row in rows if row["task"] == "niah_single_1" and row["score"] < 100]
    assert needles
    for row in needles:
        assert row["excerpt"]["needle"] == row["expected"][0]
        assert "special magic" in row["excerpt"]["question"]
        assert len(json.dumps(row["excerpt"])) < 1500


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A checkpoint that does not reach the length against one that does."""
    models = ("--model", "calibration:512", "--baseline", "calibration:900", "--lengths", "900", "--samples", "4")
    return finished_run(tmp_path_factory, *models, "-k", "niah_single_2 or niah_single_3", "--full")


def test_what_the_baseline_said_instead_is_kept(compared: Finished) -> None:
    assert compared.code in (0, 1), compared.errors
    written = (compared.folder / "report.html").read_text(encoding="utf-8")
    rows = json.loads(written.partition('id="data">')[2].partition("</script>")[0])["rows"]
    regression = compared.report["regression"]["cases"]
    flips = [row for row in rows if "flip" in row]
    assert len(flips) == sum(case["worse"] + case["better"] for case in regression.values()) > 0
    for row in flips:
        assert row["score"] < row["flip"]["score"] == 100
        assert row["expected"][0] in row["flip"]["got"]
        assert row["expected"][0] not in row["got"]
        assert row["excerpt"]["needle"] == row["expected"][0]


def test_the_evidence_of_a_loss_says_the_same_everywhere(compared: Finished) -> None:
    gates = [gate for gate in compared.report["gates"] if gate["kind"] == "regression"]
    page_text, table = ((compared.folder / f"report{end}").read_text(encoding="utf-8") for end in (".html", ".md"))
    terminal = " ".join(compared.output.split())
    assert gates
    for gate in gates:
        assert f"{gate['measured']:+.1f} [" in gate["reason"]
        assert html.escape(gate["reason"]) in page_text
        assert plain(gate["reason"], 160) in table
        assert f"{gate['name']}: {' '.join(gate['reason'].split())}" in terminal
        told = compared.properties(f"gate[{gate['name']}]")
        assert float(told["measured"]) == pytest.approx(gate["measured"], abs=1e-4)
        assert told["verdict"] == gate["verdict"]


def test_means_of_helmet_and_differences_are_the_same_everywhere() -> None:
    """In a run of both suites against a baseline; its answers are made up."""
    run = run_summary(samples=10, paired=True)
    found = document(run)
    reader = Tables()
    reader.feed(opened := page(found, details(run)))
    assert f"bounds that hold with {100 * found['helmet']['confidence']:g} %" in opened
    heat = {row[0]: row[1:] for row in reader.found["HELMET: score by task and length"][1:]}
    rows = pipes(markdown(found, holds=False))
    terminal = {line.split()[1]: line.split()[2:] for line, _ in summary_lines(found) if line.startswith("= ")}
    helmet, keys = found["helmet"], [str(length) for length in run.run.options.lengths]
    for name, scores in (*helmet["categories"].items(), ("HELMET average", helmet["average"])):
        row = [shown(scores[key]) for key in keys]
        assert "-" not in row
        assert heat[name if name in heat else f"{name} mean"] == row
        assert rows[name] == row
        assert terminal[name.split()[0]] == row
    for suite in ("ruler", "helmet"):
        table = reader.found[f"{suite.upper()}: difference to the baseline by task and length"]
        drawn = {row[0]: row[1:] for row in table[1:]}
        for case in (case for case in found["cases"] if case["suite"] == suite):
            difference = found["regression"]["cases"][case["id"]]["difference"]
            at = keys.index(str(case["length"]))
            assert float(drawn[case["task"]][at].removesuffix(" ▼")) == pytest.approx(difference, abs=0.051)
    worse = sum(case["worse"] for case in found["regression"]["cases"].values())
    assert f"{worse} worse" in markdown(found, holds=False)


# More than a line has room for, next to the longest names of tasks; own tasks may have longer ones.
MANY = tuple(2**doubled for doubled in range(12, 23))
LONG_NAME = "what_is_said_of_" * 4


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("lengths", [MANY[:8], MANY])
def test_the_terminal_takes_100_columns_and_keeps_every_score_under_its_length(
    lengths: tuple[int, ...], paired: bool
) -> None:
    found = document(run_summary(texts=NASTY, samples=2, lengths=lengths, paired=paired))
    found["gates"] = [{**gate, "name": f"{gate['name']} {LONG_NAME}", "blocking": True} for gate in found["gates"]]
    for case in found["cases"]:
        if case["task"] == "vt":
            case["task"] = LONG_NAME
    lines = [text for text, _ in summary_lines(found)]
    assert max(map(len, lines)) <= 100
    told: dict[tuple[str, int], str] = {}
    head: dict[int, int] = {}
    for line in lines:
        if line.startswith("score "):
            head = {each.end(): parse_length(each[0].lower()) for each in re.finditer(r"\b\d+[KM]?\b", line)}
        elif head and line:
            cells = {head.get(each.end()): each[0] for each in re.finditer(r"\S+", line)}
            told |= {(line.split()[0], length): cell for length, cell in cells.items() if length is not None}
        else:
            head = {}
    for case in found["cases"]:
        name = case["task"] if case["task"] != LONG_NAME else f"...{LONG_NAME[-36:]}"
        assert told[name, case["length"]].removeprefix("~") == shown(case["score"])
    said = "".join("".join(lines).split())
    for gate in found["gates"]:
        assert "".join(f"{gate['name']}: {gate['reason']}".split()) in said
