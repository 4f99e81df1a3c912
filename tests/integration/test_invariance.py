"""--invariance through the command: one test for each property, in every report, beside gates that may still pass."""

import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.sections.engine import failed_properties
from tests.helpers.paths import REPOSITORY
from tests.helpers.preloaded import preloaded
from tests.helpers.runs import calibration_checkpoint, completed_run, run_pytest
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, needles_within

GATES = """
[[gate]]
name = "one needle"
kind = "level"
tasks = ["niah_single_1"]
above = 50
"""


@pytest.mark.whole_loop
def test_a_fault_that_no_score_shows_fails_its_properties_in_every_report(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = completed_run(
        tmp_path_factory, "--model=calibration:full", "--lengths=1k", "--samples=2", "-k", "niah_single_1", "--full",
        "--invariance", "-p", "benchmarks.faults.plugin", "--inject-fault", "stale_state",
        thresholds=GATES, own_journal=True,
    )  # fmt: skip
    assert (run.exit_code, run.gates["one needle at 1k"]["verdict"]) == (1, "pass"), run.output
    verdicts = {finding["name"]: finding["verdict"] for finding in run.report["invariance"]}
    assert verdicts == {
        "prefill": "pass", "decode": "pass", "warm": "fail", "order": "pass", "chunks": "pass", "batch": "skipped"
    }  # fmt: skip
    outcomes = {name: run.junit_outcomes(f"invariance[{name}]") for name in verdicts}
    assert outcomes == {name: {"fail": ["failure"], "skipped": ["skipped"]}.get(v, []) for name, v in verdicts.items()}
    line = next(line for line in run.output.splitlines() if line.startswith("invariance warm: fail: "))
    assert "niah_single_2 of 1024 tokens, 0: token 2 of the answer" in line
    assert 'id="invariance"' in (run.folder / "report.html").read_text()
    assert [line.split(":")[1].strip() for line in failed_properties(msgspec.convert(run.report, JsonReport))] == [
        "warm"
    ]


def test_a_server_that_forgets_its_prompts_in_the_cache_fails_its_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_keys(monkeypatch)
    checkpoint = calibration_checkpoint("full")
    sound, broken = (needles_within(reach, checkpoint) for reach in (10**6, 8))
    seen: set[str] = set()

    def answer(request: Request) -> Response:
        prompt = str(request.prompt)
        is_hit = prompt in seen
        seen.add(prompt)
        return (broken if is_hit else sound)(request)

    with ChatServer().serving() as server:
        server.answer = answer
        run = run_pytest(
            tmp_path, f"--model={checkpoint}", f"--base-url={server.url}", "--invariance", "--suite=ruler",
            "tests_longctx/test_invariance.py", "--report-json", str(tmp_path / "r.json"),
            "--report-md", str(tmp_path / "r.md"),
        )  # fmt: skip
    shown = " ".join(run.output.split())
    failed = re.findall(r"invariance (\w+): fail: niah_single_2 of 1024 tokens, 0 of --seed \d+: another", shown)
    assert (run.exit_code, failed) == (1, ["warm", "order", "batch"]), run.output
    assert re.search(r"another text: '' instead of ' \d{7}'", shown)
    assert "properties: 3 skipped, 3 fail" in run.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert [finding["name"] for finding in report["invariance"] if finding["verdict"] == "fail"] == failed
    assert (report["cases"], report["gates"]) == ([], [])
    page = (tmp_path / "r.md").read_text()
    assert page.startswith("### ❌ Long context")
    assert "\n- invariance: warm: niah\\_single\\_2 of 1024 tokens" in page
    assert "; 0 of 3 checked properties of the engine hold" in page


@pytest.mark.parametrize(
    ("selected", "task"),
    [
        (("tests_longctx/test_ruler.py::test_ruler[niah_single_2-4k]",), "niah_single_2"),
        (("-k", "gate[tracing at 4k]"), "vt"),
    ],
    ids=["an id of a case", "a gate"],
)
def test_what_is_selected_does_not_leave_the_check_out(selected: tuple[str, ...], task: str, tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path, "--model=calibration:full", "--lengths=4k", "--invariance", "--collect-only", "-q", *selected
    )
    cases = [line for line in run.output.splitlines() if line.startswith("tests_longctx/")]
    assert cases == [
        "tests_longctx/test_invariance.py::test_invariance", f"tests_longctx/test_ruler.py::test_ruler[{task}-4k]",
    ]  # fmt: skip


def test_a_selection_of_nothing_is_no_check_that_passed(tmp_path: Path) -> None:
    run = run_pytest(
        tmp_path, "--model=calibration:full", "--lengths=1k", "--samples=1", "--invariance", "-k", "niah_sinlge"
    )
    assert run.exit_code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "nothing selected: -k 'niah_sinlge' matches none" in run.output
    assert "did you mean 'niah_single_" in run.output


def test_a_file_of_the_same_name_is_no_check() -> None:
    """Tests beside the suite that have the name of its file, like those of this one, are narrowed like all others."""
    words = ["--collect-only", "-q", "-k", "selection_of_nothing", __file__]
    found = subprocess.run([preloaded("pytest"), *words], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    names = [line.partition("::")[2] for line in found.stdout.splitlines() if "::" in line]
    assert names == ["test_a_selection_of_nothing_is_no_check_that_passed"]
