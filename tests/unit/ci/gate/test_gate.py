"""`longctx gate`: two results in, a verdict and an exit code out."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec import structs

import longctx
from longctx.ci.gate.__main__ import main
from longctx.fixtures.records.report import parse_report
from longctx.plugins.report.document import document
from longctx.plugins.report.texts import sample_lines
from tests.helpers.reports import run_summary
from tests.unit.ci.gate.result_files import (
    Row,
    rows,
    write_csv,
    write_helmet,
    write_inspect,
    write_jsonl,
    write_lm_eval,
    write_nemo,
    write_ruler,
)

Write = Callable[[Path, list[Row]], Path]
FORMATS: dict[str, Write] = {
    "csv": write_csv, "jsonl": write_jsonl, "lm-eval": write_lm_eval, "inspect": write_inspect, "nemo": write_nemo,
    "ruler": write_ruler, "helmet": write_helmet,
}  # fmt: skip
LENGTHS: dict[Write, int] = {write_ruler: 4096, write_helmet: 8192}


@pytest.mark.parametrize("write", FORMATS.values(), ids=list(FORMATS))
@pytest.mark.parametrize(("worse", "word"), [(0, "pass"), (20, "fail")])
def test_every_format_gives_the_verdict_of_a_table(tmp_path: Path, write: Write, worse: int, word: str) -> None:
    length = LENGTHS.get(write, 0)
    base, new = ([{**row, "length": length} for row in rows(worse=count)] for count in (0, worse))
    table = longctx.compare_results(base, new)
    report = longctx.compare_results(write(tmp_path / "base", rows()), write(tmp_path / "new", rows(worse=worse)))
    ((gate,), (expected,)) = report.gates, table.gates
    assert (report.verdict and report.verdict.word) == word == gate.verdict
    assert (gate.measured, gate.interval, gate.model_interval, gate.p_value) == (
        expected.measured, expected.interval, expected.model_interval, expected.p_value,
    )  # fmt: skip


def test_files_of_other_programs_have_the_whole_error_at_their_one_look() -> None:
    """An unchanged model loses seven of seven in 1/128 of comparisons; half of the error would not show it."""
    base = [{"id": number, "score": 1} for number in range(200)]
    report = longctx.compare_results(base, [{**row, "score": int(row["id"] >= 7)} for row in base])
    (gate,) = report.gates
    assert gate.verdict == "fail"
    assert gate.p_value == pytest.approx(1 / 128)


def test_tasks_that_lost_are_named_with_both_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = write_csv(tmp_path / "base.csv", rows()), rows(tasks=["a"]) + rows(worse=25, tasks=["b"])
    files = {name: tmp_path / f"out.{name}" for name in ("html", "md", "json", "xml")}
    options = [f"--report-{name}={path}" for name, path in files.items() if name != "xml"]
    code = main([str(base), str(write_csv(tmp_path / "new.csv", new)), *options, f"--junitxml={files['xml']}"])
    shown = capsys.readouterr().out
    assert code == 1
    assert re.search(r"power +regression of tasks: 120 pairs on 120 texts; a loss of [\d.]+ points is seen", shown)
    assert "cases shown to be worse: b\n" in shown
    assert re.search(r"^verdict +fail \(exit code 1\): blocking gates: 1 fail$", shown, re.MULTILINE)
    parse_report(files["json"].read_bytes())
    report = json.loads(files["json"].read_text())
    assert report["regression"]["cases"]["b"]["dropped"]
    assert not report["regression"]["cases"]["a"]["dropped"]
    page = files["html"].read_text()
    assert '"flip":{"score":100.0,"answer":"b0' in page
    assert re.search(r'bad"[^>]*><a href="#samples" data-task="b" data-length="0"', page)
    assert "❌" in files["md"].read_text()
    tests = ElementTree.parse(files["xml"]).getroot()
    assert tests.find("testsuite/testcase[@name='gate[regression of tasks]']/failure") is not None
    assert {test.get("name") for test in tests.iter("testcase")} == {"gate[regression of tasks]", "a", "b"}


def test_plan_looks_at_no_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_csv(tmp_path / "base.csv", rows())
    assert main([str(base), str(write_csv(tmp_path / "new.csv", rows(worse=40))), "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "a loss of" in shown
    assert "verdict" not in shown


def test_clusters_are_the_units() -> None:
    def clustered(worse: int) -> list[Row]:
        return [{**row, "cluster": int(row["id"]) // 10} for row in rows(count=60, worse=worse, tasks=["a"])]

    alone = longctx.compare_results(rows(worse=10, tasks=["a"]), rows(worse=19, tasks=["a"]))
    joined = longctx.compare_results(clustered(10), clustered(19))
    assert [report.gates[0].haystacks for report in (alone, joined)] == [60, 6]
    assert [report.gates[0].verdict for report in (alone, joined)] == ["fail", "undecided"]


@pytest.mark.parametrize(("clusters", "units"), [(("", ""), 60), ((1, "1"), 1)])
def test_an_empty_cluster_is_not_known_and_a_number_is_its_text(clusters: tuple[object, object], units: int) -> None:
    base = [{**row, "cluster": clusters[int(row["id"]) % 2], "length": ""} for row in rows(count=60, tasks=["a"])]
    assert longctx.compare_results(base, base).gates[0].haystacks == units


@pytest.mark.parametrize(("allowed", "word"), [(2, "fail"), (17, "undecided"), (20, "pass")])
def test_scores_that_change_without_a_loss_are_gated(tmp_path: Path, allowed: int, word: str) -> None:
    """Of 400 scores, 36 became better and 36 worse."""
    policy = tmp_path / "gates.toml"
    policy.write_text(f"[regression]\nchanged = {allowed}\n")
    base, new = ([{"id": n, "score": int(n % 2 == 0)} for n in range(400)] for _ in range(2))
    for row in new[:72]:
        row["score"] = 1 - row["score"]
    loss, changed = longctx.compare_results(base, new, policy).gates
    assert (loss.verdict, loss.changed, changed.name) == ("pass", 18.0, "change of tasks")
    assert (changed.verdict, changed.measured) == (word, 18.0)


@pytest.mark.parametrize(("drop", "words"), [("drop = 2", ["fail", "fail"]), ("relative_drop = 99", ["fail", "pass"])])
def test_a_policy_gates_tasks_with_losses_of_their_own(tmp_path: Path, drop: str, words: list[str]) -> None:
    policy = tmp_path / "gates.toml"
    policy.write_text(f'[[gate]]\nname = "only b"\nkind = "regression"\ntasks = ["b"]\n{drop}\n')
    report = longctx.compare_results(rows(), rows(worse=25), policy)
    assert [gate.verdict for gate in report.gates] == words
    assert report.gates[1].name == "only b"


def test_samples_of_a_run_and_its_baseline_get_the_verdict_of_the_run(tmp_path: Path) -> None:
    summary = run_summary(paired=True, full=False)
    lines = [json.loads(line) for line in sample_lines(summary)]
    base = write_jsonl(tmp_path / "base.jsonl", [{**line, "score": line["baseline_score"]} for line in lines])
    report = longctx.compare_results(base, write_jsonl(tmp_path / "new.jsonl", lines))
    of_run = [gate for gate in document(summary).gates if gate.kind == "regression"]
    assert len(of_run) > 1
    assert list(report.gates) == [
        structs.replace(gate, cases=own.cases) for gate, own in zip(of_run, report.gates, strict=True)
    ]


def test_files_of_tasks_are_named_by_their_names(tmp_path: Path) -> None:
    for name, task in (("base", "a"), ("new", "a"), ("base", "b"), ("new", "b")):
        table = [{"id": row["id"], "score": row["score"]} for row in rows(tasks=[task])]
        write_jsonl(tmp_path / name / f"{task}.jsonl", table)
    report = longctx.compare_results(tmp_path / "base", tmp_path / "new")
    assert [case.id for case in report.cases] == ["a", "b"]
    assert [case.id for case in longctx.compare_results([{"id": 1, "score": 1}], [{"id": 1, "score": 1}]).cases] == [
        "all"
    ]


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    base = write_csv(tmp_path / "base.csv", rows())
    code = (
        "import sys; from longctx.cli import main; main(sys.argv[1:]);"
        "sys.exit(bool({'torch', 'transformers', 'pytest', 'pandas'} & sys.modules.keys()))"
    )
    page = tmp_path / "new folder/page.html"
    words = [sys.executable, "-c", code, "gate", str(base), str(base), "--report-html", str(page)]
    assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert page.exists()
