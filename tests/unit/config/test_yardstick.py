"""The choice of the yardstick: by template and config, by hand, and from a file of one's own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.options import RUN_OPTIONS
from longctx.plugins.config.resolve import (
    ONLY_TEMPLATE,
    _choose_yardstick,
)
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
    assert re.fullmatch(".*give auto, aligned, base, or a score .*", RUN_OPTIONS["--yardstick"].problem(given))
