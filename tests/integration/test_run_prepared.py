"""Prepared samples of RULER are measured under gates by one command, and nothing else is."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import run_pytest

GATES = """
[[gate]]
name = "prepared needles"
kind = "level"
tasks = ["niah_single_1"]
above = 60
"""
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n" * 5


@pytest.mark.slow
def test_a_prepared_folder_runs_under_gates(tmp_path: Path) -> None:
    keys = [(f"calm-river-{chr(97 + n)}", str(4812207 + 1111 * n)) for n in range(24)]
    records = [
        {
            "index": n,
            "input": f"{NOISE}One of the special magic numbers for {key} is: {value}.\n{NOISE}What is it?",
            "outputs": [value],
            "length": 500,
            "answer_prefix": f" The special magic number for {key} mentioned in the provided text is",
        }
        for n, (key, value) in enumerate(keys)
    ]
    file = tmp_path / "data/512/niah_single_1/validation.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "gates.toml").write_text(GATES)
    completed = run_pytest(
        tmp_path, "--model=calibration:1k", f"--tasks-file={tmp_path}/data", f"--thresholds={tmp_path}/gates.toml",
        f"--report-json={tmp_path}/report.json", "--full",
    )  # fmt: skip
    (case,) = completed.cases.values()
    assert (case["id"], case["source"], case["samples"]) == ("test_ruler[niah_single_1-512]", "published", 24)
    assert case["score"] == 100
    (gate,) = completed.report["gates"]
    assert (gate["length"], gate["verdict"], gate["samples"]) == (512, "pass", 24)
    # The default gate needs all 13 tasks, and refuses nothing.
    planned = run_pytest(tmp_path, "--model=calibration:1k", f"--tasks-file={tmp_path}/data", "--plan")
    assert planned.exit_code == 0
    (tmp_path / "refused").mkdir()
    refused = run_pytest(
        tmp_path / "refused", "--model=calibration:1k", f"--tasks-file={tmp_path}/data", "--lengths=1k"
    )
    assert refused.exit_code == 4
    assert "has no samples of 1k; it has 512" in (refused.folder / "stderr").read_text()
