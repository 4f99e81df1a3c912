"""Unusable options end the run before anything is loaded or written, with exit code 4 and one line."""

import json
import re
from pathlib import Path

import pytest

from longctx.fixtures.installation import CASES_DIRECTORY
from longctx.plugins.collection import cases_of
from longctx.plugins.collection import pytest_report_header as report_header
from longctx.plugins.config.run import Run
from longctx.plugins.reports import pytest_configure as configure_reports
from longctx.plugins.stash import RUN
from tests.helpers.paths import REPOSITORY
from tests.helpers.reports import run_summary
from tests.helpers.runs import calibration_checkpoint, run_pytest, usage_error
from tests.helpers.tiny_models import changed_copy

MODEL = ("--model", "calibration:512")
# tests/golden/recorded/commands/errors has a wrong value of every option. No worker may start for these: the first is
# refused at once, the second needs a tokenizer.
REFUSED = (
    (("--lengths", "1k,8kb"), "--lengths: unknown '8kb'; write 8k, 8192 or 1m, and several as 4k,8k"),
    (
        ("--lengths", "512", "--samples", "1", "--tasks", "vt,cwe"),
        r"vt at 512 tokens cannot fit: .*; cwe at 512 tokens cannot fit: .* take (\d+); use --lengths \1 or more, "
        "or leave them out with -k",
    ),
)


@pytest.mark.parametrize(("options", "line"), REFUSED)
def test_a_refused_run_prints_one_line_and_writes_nothing(options: tuple[str, ...], line: str, tmp_path: Path) -> None:
    written = tmp_path / "written"
    reports = ("--report-json", f"{written}/r.json", "--junitxml", f"{written}/r.xml")
    run = run_pytest(tmp_path, *MODEL, *reports, *options, "-n", "2")
    assert (run.exit_code, run.output.strip()) == (4, "")
    assert not written.exists()
    assert re.fullmatch(f"ERROR: {line}", run.errors.strip())


def test_a_baseline_with_another_vocabulary_says_to_mend_the_tokenizer(tmp_path: Path) -> None:
    other = changed_copy(calibration_checkpoint("512"), tmp_path / "other", lambda _: None)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    line = usage_error(*MODEL, "--baseline", str(other))
    assert "has another tokenizer.json (model)" in line
    assert line.endswith("or mend the tokenizer files")


def test_an_unusable_journal_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = run_pytest(tmp_path, *MODEL, "--lengths=512", "-k", "single_2", "--journal", f"{tmp_path}/file/journal")
    assert (ended.exit_code, ended.output.strip()) == (4, "")
    assert f"--journal: cannot write {tmp_path}/file/journal (Not a directory); make room or give" in ended.errors


def test_a_run_without_a_terminal_writes_its_report(tmp_path: Path) -> None:
    """Its gates cannot be decided, which is no line then."""
    one = ("--lengths", "512", "--tasks", "niah_single_1", "--samples", "1", "--report-json", f"{tmp_path}/r.json")
    run = run_pytest(tmp_path, *MODEL, *one, "-p", "no:terminal")
    assert (run.exit_code, run.output) == (0, "")
    assert json.loads((tmp_path / "r.json").read_text())["gates"]


def test_a_tensorboard_directory_that_cannot_be_created_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = f"--tensorboard: cannot write {tmp_path}/.*; give a directory that can be written"
    for target in (tmp_path / "file", tmp_path / "file" / "tb"):
        with pytest.raises(pytest.UsageError) as error:
            configure_reports(config_of(f"--tensorboard={target}"))
        assert re.fullmatch(message, str(error.value))
    configure_reports(config_of(f"--tensorboard={tmp_path / 'new' / 'tb'}"))
    assert list((tmp_path / "new" / "tb").iterdir()) == []


def test_a_case_whose_id_another_plugin_changed_is_refused_by_name() -> None:
    run = config_of().stash[RUN]
    (case, *_) = run.cases
    assert cases_of(run, [f"tests_longctx/test_ruler.py::{case.id}", "own.py::test_else[x-1-2]"]) == (case,)
    changed = f"{case.id[:-1]}-1-2]"
    with pytest.raises(
        pytest.UsageError, match=rf"^{re.escape(changed)}: another plugin .* \(--count of pytest-repeat\)"
    ):
        cases_of(run, [f"tests_longctx/test_ruler.py::{changed}"])


def test_a_time_limit_for_each_test_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of()
    monkeypatch.setenv("PYTEST_TIMEOUT", "300")
    if not config.pluginmanager.hasplugin("timeout"):
        assert "pytest-timeout" not in str(report_header(config))
        config.pluginmanager.register(object(), "timeout")
    assert "warning: timeout: pytest-timeout counts all cases of a length as one test" in str(report_header(config))


def config_of(*arguments: str) -> pytest.Config:
    """Return pytest's configuration with a run in its stash, as after the suite's own options are read."""
    suite = (f"--rootdir={REPOSITORY}", str(REPOSITORY / CASES_DIRECTORY))
    config = pytest.Config.fromdictargs({}, ["--capture=no", *suite, *arguments])
    run = run_summary(samples=1).run
    assert isinstance(run, Run)
    config.stash[RUN] = run
    return config
