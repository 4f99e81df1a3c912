"""A short form of the fuzzing: a malformed input of each kind, and values that a person would try first."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.kinds import KINDS, findings, sound_folder
from tests.fuzz.sandbox import MOST_BYTES, run_forked

TEMPLATES = (
    "{{1//0}}", "{{ undefined.x.y }}", "{% for m in messages %}", "{{ messages[99] }}",
    "{% for i in range(10**10) %}{% endfor %}",
    "{{ 'a' * 10**9 }}", "{{ raise_exception('no') }}", "{% include 'x' %}", "{{ ''.__class__.__mro__ }}",
    "{{", "%}", "",
    "{{ messages }}", "{{ bos_token * 3 }}", "\x1b[31m{{ messages[0].content }}", "{% set x = namespace() %}{{ x.y }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ messages[0]['content'] | tojson | safe }}",
    "{{ 10**10**8 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{{ messages[0].content[:10] }}",
    "{{ strftime_now('%Y') }}", "{{ messages | map(attribute='content') | join * 1000000 }}",
    "{{ raise_exception('\x1b[31m\n::error::x') }}", "{{ messages[0].content | replace('a', 'a' * 99999) }}",
    "{{ '%0999999999d' % 1 }}", "{{ range(10**9) | list }}", "{{ messages[0].content | center(10**10) }}",
)  # fmt: skip
# Of a config: values that ended in a traceback once, or that a person would try first.
CONFIGS: tuple[dict[str, Any], ...] = (
    {"architectures": 5}, {"architectures": []}, {"architectures": [None]}, {"architectures": {"a": 1}},
    {"hidden_size": "x"}, {"hidden_size": 0}, {"hidden_size": -256}, {"hidden_size": 1.5}, {"hidden_size": 10**12},
    {"hidden_size": 250, "head_dim": None, "num_attention_heads": 7}, {"num_attention_heads": 7, "head_dim": None},
    {"num_attention_heads": 3, "num_key_value_heads": 2}, {"num_key_value_heads": 0}, {"num_attention_heads": 10**9},
    {"num_hidden_layers": 10**9}, {"num_hidden_layers": []}, {"num_hidden_layers": 0}, {"num_hidden_layers": 8},
    {"head_dim": 10**12}, {"vocab_size": 5}, {"vocab_size": 10**12}, {"model_type": "nothing"}, {"model_type": 5},
    {"rope_scaling": {"rope_type": "yarn", "factor": "x", "original_max_position_embeddings": 512}},
    {"rope_parameters": {"rope_type": "yarn", "factor": "x"}}, {"rope_parameters": {"rope_type": "x"}},
    {"rope_parameters": {"rope_type": "yarn", "factor": -4, "original_max_position_embeddings": 1}},
    {"rope_parameters": {"rope_type": "longrope"}}, {"rope_parameters": [1]}, {"rope_parameters": {"rope_theta": 0}},
    {"text_config": 5}, {"text_config": {"hidden_size": "x"}}, {"text_config": {"text_config": {}}},
    {"max_position_embeddings": "x"}, {"max_position_embeddings": -1}, {"max_position_embeddings": 10**30},
    {"sliding_window": "x"}, {"sliding_window": -5}, {"layer_types": ["x"] * 7}, {"layer_types": ["full_attention"]},
    {"layer_types": 5}, {"dtype": "x"}, {"dtype": 5}, {"hidden_act": "x"}, {"rms_norm_eps": "x"},
    {"auto_map": {"AutoModel": "x.y"}}, {"quantization_config": {"quant_method": "x"}}, {"quantization_config": 5},
    {"eos_token_id": "x"}, {"bos_token_id": [[1]]}, {"tie_word_embeddings": "x"}, {"intermediate_size": [1, "x"]},
    {"attention_bias": 5}, {"pad_token_id": 10**30}, {"transformers_version": 5}, {"use_cache": "x"},
)  # fmt: skip
# Of other files: values that ended in a traceback or an internal error once.
ONCE_BROKEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("calibration.json", {"solves": 5}), ("calibration.json", {"spec": {"spec": "512-chat"}}),
    ("calibration.json", {"unsolved": [float("inf"), "a" * 10_000]}), ("longctx.toml", {"model": "m" * 5_000}),
    ("longctx.toml", {"select": -0.0}), ("longctx.toml", {"select": "\x1b[31mred"}), 
    ("tokenizer_config.json", {"chat_template": "\ud800"}), ("baseline report", {"gates": [{"required": "\x00"}]}),
)  # fmt: skip
EXAMPLES = (
    *ONCE_BROKEN,
    *(("config.json", config) for config in CONFIGS),
    *(("tokenizer_config.json", {"chat_template": text}) for text in TEMPLATES),
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sound_folder(tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_input_ends_in_one_line(kind: str, sound: Path) -> None:
    outcome = findings(kind, sound)
    assert outcome.problem is None, outcome.output + outcome.errors


@pytest.mark.whole_loop
@pytest.mark.parametrize(("kind", "changes"), EXAMPLES)
def test_values_that_a_person_would_try_end_in_one_line(kind: str, changes: dict[str, Any], sound: Path) -> None:
    outcome = findings(kind, sound, changes=changes)
    assert outcome.problem is None, outcome.output + outcome.errors


def test_sound_files_are_accepted(sound: Path) -> None:
    """Otherwise a malformed one would be refused for another reason."""
    ends = {kind: findings(kind, sound, changes={}) for kind in ("tasks files", "longctx.toml", "thresholds.toml")}
    assert {kind: outcome.errors for kind, outcome in ends.items() if outcome.code} == {}


def raises() -> int:
    raise KeyError("x")


def prints_an_escape() -> int:
    print("\x1b[31mred")  # noqa: T201  # into the forked process's own output
    return 0


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (lambda: 0, None),
        (lambda: len(b"x" * (MOST_BYTES + 2**26)) * 0, "too much memory"),
        (lambda: 4, "not one line"),
        (lambda: 3, "exit code 3"),
        (raises, "Traceback (most recent call last)"),
        (prints_an_escape, "control characters"),
    ],
)
def test_a_bad_end_is_noticed(program: Callable[[], int], problem: str | None) -> None:
    assert run_forked(program).problem == problem
