"""Reports name the quantization that a checkpoint declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from longctx.plugins.report.document import document, quantization
from longctx.plugins.report.html.page import details, page
from longctx.plugins.report.markdown import markdown
from longctx.plugins.report.terminal import terminal_summary
from tests.helpers.reports import run_summary


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq, 4 bits"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, "bitsandbytes, 8 bits"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"text_config": {"quantization_config": {"quant_method": "awq", "bits": 4}}}, "awq, 4 bits"),
        ({"quantization_config": {}}, None),
        ({"text_config": {"hidden_size": 8}}, None),
    ],
)
def test_a_declared_quantization_has_a_name(config: Mapping[str, Any], name: str | None) -> None:
    assert quantization(config) == name


def test_every_report_names_the_quantization() -> None:
    summary = run_summary(suite="ruler", lengths=(4096,), samples=2)
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    checkpoint = replace(summary.run.checkpoint, config=config)
    summary = replace(summary, run=replace(summary.run, checkpoint=checkpoint))
    report = document(summary)
    assert report.model.quantization == "gptq, 4 bits"
    texts = (
        "".join(line for line, _ in terminal_summary(report)),
        markdown(report, holds=True),
        page(report, details(summary)),
    )
    assert [text.count("gptq, 4 bits") for text in texts] == [1, 1, 1]
