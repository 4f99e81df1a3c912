"""A gate on the worst phase finds a server that loses every fourth position, which the mean of the task hides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tokenizers import Tokenizer

from tests.helpers.runs import SCHEMA, calibration_checkpoint, run_pytest
from tests.helpers.servers import ChatServer, Request, Response, forget_keys, needles_within, text_completion

GATE = """
[[gate]]
name = "phases"
kind = "worst_phase"
tasks = ["niah_single_2"]
modulo = [2, 4]
within = 15
"""


def test_a_server_that_loses_a_phase_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_keys(monkeypatch)
    checkpoint = calibration_checkpoint("512")
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    sound = needles_within(512, checkpoint)

    def answer(request: Request) -> Response:
        """Answer nothing where the needle's value begins at a position that is 1 modulo 4."""
        text = request.prompt
        ids = tokenizer.encode(text).ids if isinstance(text, str) else text
        marks = [place for place in range(len(ids)) if tokenizer.decode(ids[place - 1 : place + 1]).startswith(": ")]
        return text_completion("", read=len(ids)) if marks and marks[0] % 4 == 1 else sound(request)

    (tmp_path / "gates.toml").write_text(GATE)
    with ChatServer().serving() as server:
        server.answer = answer
        ended = run_pytest(
            tmp_path, f"--model={checkpoint}", f"--base-url={server.url}", "--lengths=512", "--samples=24",
            "-k", "niah_single_2", f"--thresholds={tmp_path}/gates.toml", f"--report-json={tmp_path}/report.json",
            f"--report-html={tmp_path}/report.html",
        )  # fmt: skip
    report = json.loads((tmp_path / "report.json").read_text())
    Draft202012Validator(SCHEMA).validate(report)
    assert ended.exit_code == 1
    cases = {case["id"]: case for case in report["cases"]}
    assert cases["test_ruler[niah_single_2-512]"]["planned"] == 24
    assert cases["test_phases[niah_single_2_mod4-512]"]["planned"] == 96
    (gate,) = report["gates"]
    assert (gate["name"], gate["verdict"]) == ("phases at 512", "fail")
    least, samples = gate["interval"][0], gate["samples"]
    assert gate["reason"].endswith(f"(at least {least:.1f}), 15 allowed ({samples} of 96 samples)")
    assert "phase 1: 0.0; 100.0 points apart" in gate["reason"]
    assert "phases within 15 points" in (tmp_path / "report.html").read_text()
