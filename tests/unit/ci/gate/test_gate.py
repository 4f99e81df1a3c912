"""`longctx gate`: two results in, a verdict and an exit code out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import longctx
from longctx.ci.gate.__main__ import main
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
    report = json.loads(files["json"].read_text())
    assert report["regression"]["cases"]["b"]["dropped"]
    assert not report["regression"]["cases"]["a"]["dropped"]
    page = files["html"].read_text()
    assert '"flip":{"score":100.0,"answer":"b0' in page
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


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    base = write_csv(tmp_path / "base.csv", rows())
    code = (
        "import sys; from longctx.cli import main; main(sys.argv[1:]);"
        "sys.exit(bool({'torch', 'transformers', 'pytest', 'pandas'} & sys.modules.keys()))"
    )
    words = [sys.executable, "-c", code, "gate", str(base), str(base), "--report-html", str(tmp_path / "page.html")]
    assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0
