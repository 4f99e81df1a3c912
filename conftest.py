"""The plugins that make pytest a long-context instrument."""

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
]
