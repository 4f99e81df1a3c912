"""The plugins that make pytest a long-context instrument."""

import pytest

pytest_plugins = [
    "plugins.options",
    "plugins.workers",
    "plugins.select_gates",
    "plugins.controller",
    "plugins.measure",
    "plugins.invariance",
    "plugins.progress",
    "plugins.baseline_power",
    "plugins.plan",
    "plugins.gate_tests",
    "plugins.reports",
    "plugins.interrupted",
    "plugins.status_words",
]

# They import each other, and pytest warns of a plugin that another one has imported before it was announced.
pytest.register_assert_rewrite(*pytest_plugins)
