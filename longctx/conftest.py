"""The plugins that make pytest a long-context instrument."""

import pytest

pytest_plugins = [
    "longctx.plugins.stash",
    "longctx.plugins.collection",
    "longctx.plugins.workers",
    "longctx.plugins.gate_tests",
    "longctx.plugins.controller",
    "longctx.plugins.measure",
    "longctx.plugins.invariance",
    "longctx.plugins.progress",
    "longctx.plugins.plan",
    "longctx.plugins.reports",
    "longctx.plugins.status_words",
]

# They import each other, and pytest warns of a plugin that another one has imported before it was announced.
pytest.register_assert_rewrite(*pytest_plugins)
