"""The plugins that make pytest a long-context instrument."""

import pytest

PLUGINS = [
    "longctx.plugins.stash",
    "longctx.plugins.collection",
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
pytest.register_assert_rewrite(*PLUGINS)


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Load the plugins. For each name in `pytest_plugins`, pytest would read the metadata of all installed packages."""
    for name in PLUGINS:
        pluginmanager.import_plugin(name)
