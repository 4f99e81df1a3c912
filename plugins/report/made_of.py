"""The source and the quantization of a checkpoint, as reports name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.records.report import ReportSource


def source_of(checkpoint: Checkpoint | None) -> ReportSource | None:
    """Return what a checkpoint was made of for this run; None for one on disk, and without a checkpoint."""
    if checkpoint is None or checkpoint.source is None:
        return None
    return ReportSource(**asdict(checkpoint.source))


def quantization(config: Mapping[str, Any]) -> str | None:
    """Return the quantization that a config declares, such as "gptq, 4 bits"; None if it declares none."""
    text = config.get("text_config")
    places = [config, text] if isinstance(text, dict) else [config]
    declared = next((place["quantization_config"] for place in places if place.get("quantization_config")), None)
    if not isinstance(declared, dict):
        return None
    bits = declared.get("bits") or next((size for size in (4, 8) if declared.get(f"load_in_{size}bit")), None)
    method = str(declared.get("quant_method", "of an unnamed kind"))
    return method if bits is None else f"{method}, {bits} bits"
