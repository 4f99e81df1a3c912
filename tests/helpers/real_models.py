"""Pretrained checkpoints for tests, which are skipped where there are none.

LONGCTX_REAL_MODELS names a directory with an instruction-tuned Llama and a Gemma 3.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

REAL_MODELS = os.environ.get("LONGCTX_REAL_MODELS")
LLAMA, GEMMA = "llama", "gemma3_text"
needs_real_models = pytest.mark.skipif(
    REAL_MODELS is None, reason="LONGCTX_REAL_MODELS names no directory with real checkpoints"
)


def real_checkpoint(model_type: str) -> Path:
    """Return the first pretrained checkpoint of this type by name; the calling test fails if there is none."""
    configs = sorted(Path(str(REAL_MODELS)).glob("*/config.json"))
    found = [path.parent for path in configs if json.loads(path.read_text())["model_type"] == model_type]
    if not found:
        pytest.fail(f"LONGCTX_REAL_MODELS: {REAL_MODELS} has no checkpoint of model_type {model_type!r}")
    return found[0]
