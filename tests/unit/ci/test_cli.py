"""Every command reports wrong use in one line with the remedy, and exits with 4."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from longctx.ci import history_command, propose_thresholds
from longctx.fixtures.calibration import __main__ as calibration
from longctx.plugins.journal import __main__ as journal

Main = Callable[[list[str]], int]


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (history_command.main, (), r"the following .* required: DIR; longctx history --help .*"),
        (history_command.main, (".", "--page", "p"), r"unrecognized arguments: --page p; .*"),
        (journal.main, (), r"the following arguments are required: DIR; longctx journal --help .*"),
        (calibration.main, ("--windows", "4k"), r"unrecognized arguments: --windows; .*calibration --help .*"),
        (propose_thresholds.main, (), r"give either reports of accepted checkpoints or --yardstick REPORT; .*--help.*"),
    ],
)
def test_wrong_use_of_a_command_is_one_line(
    main: Main, arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert ended.value.code == 4
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(f"error: {message}\n", err)
