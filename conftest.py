"""The front door: the plugins that make pytest a long-context instrument."""

pytest_plugins = [
    "plugins.options",
    "plugins.workers",
    "plugins.evidence",
    "plugins.progress",
    "plugins.plan",
    "plugins.gates.plugin",
    "plugins.report.plugin",
    "fixtures.session",
]
