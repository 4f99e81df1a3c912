"""A comparison of a server with its checkpoint gives each side the options of its engine."""

from pathlib import Path

import pytest

from longctx.ci.compare_servers import main


def test_options_of_one_engine_are_for_the_side_that_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is measured: the length is none."""
    options = ("--dtype", "float32", "--chat=server", "--lengths", "none")
    sides = {
        ("--base-url=http://x/v1",): "--engine hf --chat auto --dtype float32",
        # Sides of one engine have all options in common.
        ("--base-url=http://x/v1", "--against-url=http://y/v1"): "--base-url http://y/v1",
    }
    for side, shown in sides.items():
        assert main(["--model", str(tmp_path), *side, *options, "--out", str(tmp_path / "out")]) == 3
        assert capsys.readouterr().out == f"measuring  against: {shown}\n"
