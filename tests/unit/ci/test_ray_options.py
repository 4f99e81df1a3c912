"""The command line of `python -m longctx.ci.ray`; tests/integration/test_ray.py runs it on a cluster."""

import pytest

from longctx.ci.ray import REPORTS, main, without_reports
from longctx.plugins.config.options import REPORT_OPTIONS

JOURNAL = "--journal=/shared/journal"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--", JOURNAL), "the following arguments are required: --workers"),
        (("--workers", "0", "--", JOURNAL), "--workers: 0; give a number of at least 1"),
        (
            ("--workers", "2", "--gpus-per-worker", "1.5", "--", JOURNAL),
            "--gpus-per-worker: 1.5; give 0, a fraction of one GPU or a whole number",
        ),
        (
            ("--workers", "2", "--", "--journal", "out/journal"),
            "--journal: 'out/journal'; give the full path of a directory that all nodes share",
        ),
        (("--workers", "2", "--", JOURNAL, "-n", "8"), "-n: a task is one worker; give their number as --workers"),
        (("--workers", "2", "--", JOURNAL, "-n8"), "-n: a task is one worker; give their number as --workers"),
    ],
)
def test_wrong_use_is_one_line_before_ray_is_needed(
    words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert (ended.value.code, capsys.readouterr().err) == (4, f"error: {line}\n")


def test_only_the_last_task_writes_reports() -> None:
    assert set(REPORTS) == {option.flag for option in REPORT_OPTIONS}
    options = ["--model", "a b", "--report-json", "r.json", "-k", "niah or vt", "--wandb=project", "--full", JOURNAL]
    assert without_reports(options) == ["--model", "a b", "-k", "niah or vt", "--full", JOURNAL]
