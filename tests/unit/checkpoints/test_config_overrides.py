"""Keys of config.json that a run sets."""

from typing import Any

import pytest

from longctx.fixtures.checkpoints.config_overrides import OverrideError, changed_keys, overridden

NEW: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "sliding_window": None}
OLD: dict[str, Any] = {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", "factor": 4.0}}
BY_LAYER: dict[str, Any] = {"text_config": {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}}


@pytest.mark.parametrize(
    ("config", "overrides", "changed"),
    [
        (NEW, ["rope_parameters.rope_theta=16000000"],
            {"rope_parameters": {"rope_type": "default", "rope_theta": 16000000}}),
        (NEW, ["rope_parameters.rope_type=yarn", "rope_parameters.factor=4"],
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4}}),
        (NEW, ['rope_parameters={"rope_type": "linear", "factor": 2}'],
            {"rope_parameters": {"rope_type": "linear", "factor": 2}}),
        (NEW, ["sliding_window=4096"], {"sliding_window": 4096}),
        (OLD, ["rope_parameters.factor=8.0"],
            {"rope_parameters": {"rope_type": "yarn", "type": "yarn", "rope_theta": 5e5, "factor": 8.0}}),
        (OLD, ["rope_theta=1e6"], {"rope_theta": 1e6}),
        ({"rope_scaling": 1}, ["rope_parameters.rope_theta=1e6"],
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
        (BY_LAYER, ["text_config.rope_parameters.full_attention.rope_theta=2e6"],
            {"text_config": {"rope_parameters": {"full_attention": {"rope_theta": 2e6}}}}),
    ],
)  # fmt: skip
def test_an_override_keeps_the_rest_of_its_key(
    config: dict[str, Any], overrides: list[str], changed: dict[str, Any]
) -> None:
    assert changed_keys(config, overrides) == changed
    assert BY_LAYER["text_config"]["rope_parameters"]["full_attention"]["rope_theta"] == 1e6


def test_new_parameters_of_positions_replace_the_old_keys() -> None:
    assert overridden(OLD, ["rope_parameters.factor=8.0"]).keys() == {"rope_parameters"}
    assert overridden(OLD, ["rope_theta=1e6"]) == OLD | {"rope_theta": 1e6}


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("rope_theta", "is not KEY=VALUE"),
        ("rope_theta=", "is not KEY=VALUE"),
        (".factor=2", "is not KEY=VALUE"),
        ("rope_theat=1", "has no 'rope_theat'; it has rope_parameters"),
        ("sliding_window.size=1", "which has no keys"),
        ("rope_parameters.rope_theta.x=1", "has no keys"),
    ],
)
def test_an_override_that_fits_no_config_is_refused(override: str, problem: str) -> None:
    with pytest.raises(OverrideError, match=f"--config-override: .*{problem}"):
        changed_keys(NEW, [override])
