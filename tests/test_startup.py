"""The benchmark of start-up measures whole processes and ends with 1 where a limit is missed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import startup


@pytest.mark.parametrize(
    ("collect", "plan", "code"), [(2.0, 3.0, 0), (2.01, 1.0, 1), (1.0, 3.01, 1)], ids=["kept", "collect", "plan"]
)
def test_a_missed_limit_is_the_exit_code(
    collect: float,
    plan: float,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {startup.EMPTY: 1.0, startup.COLLECT: collect, startup.PLAN: plan}
    monkeypatch.setattr(startup, "medians", lambda repeats: found)
    file = tmp_path / "startup.json"
    assert startup.main(["--json", str(file)]) == code
    assert capsys.readouterr().out.count("NOT ok") == code
    assert json.loads(file.read_text()) == {
        "median_seconds": found, "limit_seconds": {startup.COLLECT: 2.0, startup.PLAN: 3.0}
    }  # fmt: skip


def test_a_run_that_failed_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "test_empty.py").write_text("def test_nothing():\n    pass\n")
    assert startup.seconds(startup.COMMANDS[startup.EMPTY], tmp_path) > 0
    with pytest.raises(RuntimeError, match=r"nowhere\.py"):
        startup.seconds(["nowhere.py"], tmp_path)
