"""A report that cannot be written at the end of a run: a one-line error and exit code 1, and all others are written."""

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.plugins.reports import check_outputs
from tests.helpers.paths import REPOSITORY
from tests.helpers.runs import SCHEMA, run_pytest

# After the options were checked, removes the page's directory, puts a directory in the place of the Markdown file and
# files in the place of the directories of TensorBoard and JUnit.
OBSTRUCTION = """
from pathlib import Path

def pytest_collection_finish(session):
    folder = Path(__file__).parent
    (folder / "gone").rmdir()
    (folder / "junit").rmdir()
    (folder / "junit").write_text("")
    (folder / "report.md").mkdir()
    (folder / "tb").rmdir()
    (folder / "tb").write_text("")
"""


def test_a_report_that_cannot_be_written_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "obstruction.py").write_text(OBSTRUCTION)
    selection = ("--model", "calibration:900", "--lengths", "900", "--samples", "1", "-k", "niah_single_1")
    lost = {
        "--report-html": "gone/report.html",
        "--report-md": "report.md",
        "--tensorboard": "tb",
        "--junitxml": "junit/x.xml",
    }
    targets = [f"{option}={tmp_path}/{name}" for option, name in lost.items()]
    writable = ("--report-json", f"{tmp_path}/report.json")
    run = run_pytest(tmp_path, "-p", "obstruction", *selection, *targets, *writable)
    assert "INTERNALERROR" not in run.output + run.errors
    assert "Traceback" not in run.output + run.errors
    assert "failed" not in run.counts
    assert run.exit_code == 1
    Draft202012Validator(SCHEMA).validate(run.report)
    assert "generated xml file" not in run.output
    lines = run.output.splitlines()
    assert f"report     {tmp_path}/report.json" in lines
    for option, name in lost.items():
        error = rf"{option}: cannot write {tmp_path}/{name} \([^()]+\); .* journal: .* the same command writes it .*"
        assert len([line for line in lines if re.fullmatch(error, line)]) == 1
        assert f"report     {tmp_path}/{name}" not in lines
    assert not list(tmp_path.glob(".report*"))
    assert "why        4 reports could not be written; and 1 reason above" in lines
    assert any(line.startswith("next       free space or name another place") for line in lines)


OUTPUTS: dict[str, str] = {
    "--report-json=r.x --report-md=./r.x": "--report-json: FOLDER/r.x is the place of --report-md; give each",
    "--report-json=r.x --junitxml=link.x": "--report-json: FOLDER/r.x is the place of --junitxml; give each",
    "--report-html=a/../r.x --samples-jsonl=r.x": "--report-html: FOLDER/r.x is the place of --samples",
    "--report-json=r.x --junitxml=r.x/j.xml": "--junitxml: FOLDER/r.x/j.xml is within the file of --report-json",
    "--report-json=r.x --tensorboard=r.x/tb": "--tensorboard: FOLDER/r.x/tb is within the file of --report-",
    "--baseline=whole.x --report-json=link2.x": "--report-json: FOLDER/whole.x is the file of --baseline; give another",
    "--tasks-file=whole.x --report-md=whole.x": "--report-md: FOLDER/whole.x is the file of --tasks-file; give",
    "--report-html=folder": "--report-html: cannot write FOLDER/folder (it is a directory); give a file in a",
    "--report-md=whole.x/r.md": "--report-md: cannot write FOLDER/whole.x/r.md (its directory is a file); give",
    "--junitxml=/dev/full": "--junitxml: cannot write /dev/full (it is a device, a pipe or a socket); give a file",
    "--junitxml=/proc/x/j.xml": "--junitxml: cannot write /proc/x/j.xml (No such file or directory); give a file",
    "--junitxml=whole.x/j.xml": "--junitxml: cannot write FOLDER/whole.x/j.xml (its directory is a file); give a file",
}


@pytest.mark.parametrize(("options", "said"), OUTPUTS.items())
def test_outputs_that_cannot_all_be_written_are_refused_before_the_run(tmp_path: Path, options: str, said: str) -> None:
    (tmp_path / "link.x").symlink_to("r.x")
    (tmp_path / "whole.x").touch()
    (tmp_path / "link2.x").symlink_to("whole.x")
    (tmp_path / "folder").mkdir()
    named = [re.sub(r"=(?!/)", f"={tmp_path}/", option) for option in options.split()]
    config = pytest.Config.fromdictargs({}, [f"--rootdir={REPOSITORY}", str(REPOSITORY / CASES_DIRECTORY), *named])
    with pytest.raises(pytest.UsageError) as error:
        check_outputs(config)
    assert str(error.value).startswith(said.replace("FOLDER", str(tmp_path)))
