"""The choice of the yardstick: by template and config, by hand, and from a file of one's own."""

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from longctx.ci import propose_thresholds
from longctx.fixtures.records.report import JsonReport
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.invocation import ConfigError
from longctx.plugins.config.options import RUN_OPTIONS
from longctx.plugins.config.resolve import (
    ONLY_TEMPLATE,
    _check_texts,
    _choose_yardstick,
    _read_yardstick,
)
from tests.helpers.report_records import report_of
from tests.helpers.runs import calibration_checkpoint
from tests.helpers.tiny_tokenizers import byte_level
from tests.helpers.workers import run_of

TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}<|assistant|>"
OTHER_END = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}<|assistant|>"


def chosen(given: str, template: str | None, *, eos: object = None, folder: str = "") -> tuple[float, str]:
    tokenizer = byte_level()
    tokenizer.chat_template = template
    run = run_of(calibration_checkpoint("512"))
    checkpoint = replace(run.checkpoint, path=folder, config={} if eos is None else {"eos_token_id": eos})
    run = replace(run, checkpoint=checkpoint, options=replace(run.options, yardstick=given))
    reference, warning = _choose_yardstick(run, PromptFormatter(tokenizer))
    return reference.scores["mean"], warning


def end_token() -> int:
    return int(byte_level().get_added_vocab()["</s>"])


def test_template_and_config_choose_together() -> None:
    assert chosen("auto", None) == (79.4, "")
    assert chosen("auto", TEMPLATE, eos=end_token()) == (85.6, "")
    assert chosen("auto", TEMPLATE, eos=[7, end_token()]) == (85.6, "")


def test_a_config_may_leave_out_the_end_token_of_its_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gemma3_text"}')
    assert chosen("auto", TEMPLATE, folder=str(tmp_path)) == (85.6, "")


def test_a_template_that_the_config_does_not_confirm_gives_a_warning() -> None:
    assert chosen("auto", TEMPLATE) == (85.6, ONLY_TEMPLATE)
    assert chosen("auto", OTHER_END, eos=end_token()) == (85.6, ONLY_TEMPLATE)
    fails = f"{{% if messages | length > 1 %}}{{{{ raise_exception('no') }}}}{{% endif %}}{TEMPLATE}"
    assert chosen("auto", fails, eos=end_token()) == (85.6, ONLY_TEMPLATE)


def test_a_yardstick_that_is_named_needs_no_guess() -> None:
    assert chosen("base", TEMPLATE) == (79.4, "")
    assert chosen("aligned", None) == (85.6, "")
    assert chosen("70.5", None) == (70.5, "")


@pytest.mark.parametrize("given", ["", "lama", "-1", "100", "nan", "inf", "yard.json"])
def test_other_values_are_refused_in_one_line(given: str) -> None:
    assert re.fullmatch(".*give auto, aligned, base, a score .*", RUN_OPTIONS["--yardstick"].problem(given))


def report(**ruler: object) -> JsonReport:
    aspects = {name: {"4096": 80.0, "8192": 60.0} for name in ("retrieval", "tracing", "aggregation", "qa")}
    summary = {"scores": {"4096": 81.25, "8192": 60.0}, "aspects": aspects}
    return report_of({
        "schema": "longctx-report/1", "model": {"name": "reference-7b", "path": "/m"},
        "run": {"corpora": "c", "prompts": "p", "seed": 3, "options": {"journal": "/journal"}},
        "ruler": summary | ruler,
    })  # fmt: skip


def test_thresholds_writes_a_yardstick_that_a_run_on_the_same_text_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report()))
    assert propose_thresholds.main(["--yardstick", str(tmp_path / "report.json")]) == 0
    file = tmp_path / "own.toml"
    file.write_text(capsys.readouterr().out)
    reference = _read_yardstick(file)
    assert reference.scores["mean"] == 81.25
    assert "reference-7b at 4k" in reference.source
    _check_texts(reference, "c.p")
    with pytest.raises(ConfigError, match="other texts or prompts"):
        _check_texts(reference, "d.p")


def test_a_reference_without_a_mistake_makes_a_yardstick_that_a_model_can_exceed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report(scores={"4096": 100.0})))
    assert propose_thresholds.main(["--yardstick", str(tmp_path / "report.json")]) == 0
    (tmp_path / "own.toml").write_text(capsys.readouterr().out)
    assert _read_yardstick(tmp_path / "own.toml").scores["mean"] == 99.99


def test_a_yardstick_needs_all_tasks_of_ruler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report(scores={"4096": None})))
    assert propose_thresholds.main(["--yardstick", str(tmp_path / "report.json")]) == 4
    assert "no length with all tasks" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[yardstick]\nmean = 3", "[yardstick", "[other]\n"])
def test_a_file_that_is_no_yardstick_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError, match="is no yardstick"):
        _read_yardstick(tmp_path / "own.toml")
