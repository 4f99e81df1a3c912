"""The settings of generation_config.json that change a greedy answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from longctx.fixtures.checkpoints.generation_config import decoding_settings, ignored_settings


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"bos_token_id": 1, "eos_token_id": 2, "transformers_version": "5"}, []),
        ({"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "num_beams": 1, "max_length": 20}, []),
        ({"repetition_penalty": 1.2, "no_repeat_ngram_size": 3}, ["repetition_penalty", "no_repeat_ngram_size"]),
        ({"temperature": 0.7, "top_p": 0.8}, []),
        ({"do_sample": True, "temperature": 0.7, "top_k": 50}, ["do_sample", "temperature"]),
        ({"max_new_tokens": 64, "suppress_tokens": None}, ["max_new_tokens"]),
    ],
)
def test_settings_that_change_a_greedy_answer_are_found(
    content: dict[str, Any], found: list[str], tmp_path: Path
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(content))
    assert list(decoding_settings(tmp_path)) == found


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_file_that_says_nothing_has_no_settings(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_text(content)
    assert decoding_settings(tmp_path) == {}


def test_a_run_names_penalties_and_neither_sampling_nor_budgets(tmp_path: Path) -> None:
    content = {"do_sample": True, "temperature": 0.7, "max_new_tokens": 2048, "repetition_penalty": 1.5}
    (tmp_path / "generation_config.json").write_text(json.dumps(content))
    assert ignored_settings(tmp_path) == {"repetition_penalty": 1.5}
