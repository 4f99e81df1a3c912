"""The largest run that reports must be able to show: 34 tasks at 8 lengths with 500 samples per case."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import REPOSITORY

RENDER = """
import json, sys, time
from dataclasses import replace
from pathlib import Path

from tests.helpers.reports import cases_of, run_summary, options_of, result_of
from tests.helpers.peak_memory import peak_mebibytes
from longctx.plugins.report.document import document
from longctx.plugins.report.terminal import terminal_summary
from longctx.plugins.report.texts import report_text
from longctx.plugins.reports import write

folder, lengths = Path(sys.argv[1]), tuple(2048 * 2**doublings for doublings in range(8))
cases = cases_of(options_of(samples=500, lengths=lengths))
# To save time, all lengths of a task share the samples of its longest length.
longest = {case.task: case for case in cases}
by_task = {task: result_of(case, lengths, (), True) for task, case in longest.items()}
results = {case.id: replace(by_task[case.task], case=case) for case in cases}
run = run_summary(samples=500, lengths=lengths, paired=True, results=results)
before = time.process_time()
written = document(run)
for name in ("html", "md", "json"):
    write(folder / f"report.{name}", report_text(f"--report-{name}", run, written))
terminal_summary(written)
samples = sum(case.samples for case in written.cases)
print(json.dumps([samples, time.process_time() - before, peak_mebibytes()]))
"""


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, float, float]:
    """Return the folder of the reports, the number of samples, the CPU time in seconds, and the peak memory in MiB."""
    folder = tmp_path_factory.mktemp("largest")
    process = subprocess.run(
        [sys.executable, "-c", RENDER, str(folder)], env={"PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY, capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    samples, seconds, mebibytes = json.loads(process.stdout)
    return folder, samples, seconds, mebibytes


@pytest.mark.whole_loop
def test_the_largest_run_is_reported_quickly_and_in_little_memory(rendered: tuple[Path, int, float, float]) -> None:
    folder, samples, seconds, mebibytes = rendered
    assert samples == 34 * 8 * 500
    assert seconds < 20
    assert mebibytes < 1024
    assert 4_000_000 < (folder / "report.html").stat().st_size < 8_000_000
    # GitHub accepts no longer summary.
    assert (folder / "report.md").stat().st_size < 65_536
