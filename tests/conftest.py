"""Marks the tests that `make check` leaves out, and puts the slowest files first."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.helpers.preloaded import start_server

HERE = Path(__file__).parent
# Modules that load models, start whole runs or simulate thousands of panels: several seconds each.
SLOW_MODULES = frozenset((
    "unit/calibration/test_calibration.py",
    "unit/checkpoints/test_consistency.py", "unit/ci/test_launch.py",
    "unit/conversion/test_adapter.py", "unit/conversion/test_convert.py",
    "unit/corpora/test_synthetic_documents.py",
    "unit/corpora/test_synthetic_passage_questions.py", "unit/corpora/test_synthetic_world.py",
    "unit/engines/test_hf_answers.py",
    "unit/engines/test_hf_prefix_sharing.py", "unit/engines/test_hf_refusals.py",
    "unit/engines/test_hf_same_answers.py", "unit/engines/test_hf_scores.py",
    "unit/engines/test_hf_settled_answers.py", "unit/engines/test_openai_faults.py",
    "unit/engines/test_openai_hostile.py", "unit/engines/test_openai_options.py", "unit/engines/test_openai_probe.py",
    "unit/engines/test_openai_requests.py", "unit/engines/test_openai_thinking.py",
    "unit/benchmarks/test_faults.py",
    "unit/invariance/test_invariance.py",
    "unit/invariance/test_server_invariance.py",
    "unit/longctx/test_measure.py",
    "unit/test_memory_estimate.py", "unit/test_memory_fit.py",
    "unit/report/test_report_size.py",
    "unit/report/test_report_writing.py", "unit/report/test_samples.py", "unit/report/test_shown_reports.py",
    "unit/runner/test_worker.py", "unit/scoring/test_judge_parse.py", "unit/scoring/test_judge_requests.py",
    "unit/tasks/test_frontier.py", "unit/tasks/test_frontier_answers.py",
    "unit/tasks/test_canaries.py", "unit/tasks/test_gold.py", "unit/tasks/test_helmet_tasks.py",
    "unit/tasks/test_tasks.py", "unit/tasks/test_tasks_depths.py",

    "unit/test_cases.py", "unit/test_versions.py", "unit/tokenization/test_load.py",
    "unit/verdicts/test_evaluate_early.py", "unit/verdicts/test_likelihood_gates.py",
    "unit/verdicts/test_panels.py", "unit/verdicts/test_panels_ahead.py",
    "unit/verdicts/test_regression.py",
))  # fmt: skip

# Files that take longest, the longest first; all others follow in the usual order. Workers take whole files, and one
# that began late would keep the others waiting. The times in the file of --junitxml show when to change the list.
SLOWEST_FILES = (
    # Loops of the nightly run.
    "integration/test_alerts.py", "integration/test_ci_recipes.py", "integration/test_watch_process.py",
    "golden/test_golden_outputs.py", "integration/test_run_crash.py", "unit/engines/test_hf_prefix_sharing.py",
    "integration/test_run_extension.py", "unit/tasks/test_canaries.py", "integration/test_run_served.py",
    "integration/test_run_evidence.py", "docs/test_docs_listed.py", "fuzz/test_fuzz.py",
    "unit/calibration/test_calibration.py", "integration/test_serve.py", "integration/test_run_workers.py",
    "integration/test_run_baseline.py", "integration/test_run_likelihood.py",
    "unit/tasks/test_helmet_tasks.py", "integration/test_run_reports.py", "integration/test_run_helmet.py",
    "unit/verdicts/test_panels.py", "integration/test_run_selected_gates.py", "unit/runner/test_worker.py",
    "unit/ci/test_launch.py", "unit/longctx/test_measure.py", "unit/engines/test_openai_options.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if runs_these_tests(config) and not hasattr(config, "workerinput"):
        start_server()
    missing = sorted(name for name in {*SLOW_MODULES, *SLOWEST_FILES} if not (HERE / name).is_file())
    if missing:
        raise pytest.UsageError(f"tests/conftest.py: {missing[0]} is listed, but does not exist")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave slow modules unread under -m "not slow": importing torch takes longer than most fast tests."""
    return True if config.option.markexpr == "not slow" and _is_slow(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep the garbage collector away from all imported packages, over which it takes up to a second each time."""
    if not runs_these_tests(session.config):
        return (yield)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """Collect the garbage of the modules before, and keep the collector away from what they left in caches.

    Engines collect garbage when memory runs out; over the texts of a thousand tests that takes seconds each time.
    """
    gc.collect()
    gc.freeze()


def runs_these_tests(config: pytest.Config) -> bool:
    """Return True if tests in this directory are selected; pytest reads this file in runs of the suite, too."""
    paths = [Path(config.invocation_params.dir, word.partition("::")[0]).resolve() for word in config.args]
    return any(HERE in (path, *path.parents) for path in paths)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of a slow module, and put the slowest files first."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    places = {HERE / name: place for place, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def _is_slow(path: Path) -> bool:
    return HERE in path.parents and path.relative_to(HERE).as_posix() in SLOW_MODULES
