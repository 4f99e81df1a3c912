"""--plan: what a run would do and need, without doing it."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import pytest

from fixtures.cases import max_case_tokens
from fixtures.lengths import format_length
from fixtures.memory.fit import estimated_memory
from fixtures.memory.hardware import GIB, gpu_memory_bytes
from fixtures.records import Case
from fixtures.tasks import TASKS
from plugins.config.assistants import judge_cost
from plugins.config.run import Run
from plugins.controller import CONTROLLER
from plugins.options import RUN, cases_of

USUAL_GPU_BYTES = 80 * GIB


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs nothing under --plan."""
    if not session.config.option.plan or RUN not in session.config.stash:
        return None
    # Before it ends pytest looks for garbage twice, among all that was imported: a quarter of the time of a plan.
    gc.freeze()
    return True


def pytest_collection_finish(session: pytest.Session) -> None:
    """A judge may cost money: what it will be asked at most is said before it is."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RUN not in config.stash or hasattr(config, "workerinput") or reporter is None or config.option.collectonly:
        return
    run = config.stash[RUN]
    cost = judge_cost(run.options, cases_of(run, [item.nodeid for item in session.items]) or run.available, TASKS)
    if cost is not None:
        reporter.write_line(str(cost))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.plan and RUN in config.stash:
        run, selected = config.stash[RUN], config.stash[CONTROLLER].selected
        terminalreporter.section("plan")
        for line in plan_lines(run, selected):
            terminalreporter.write_line(line)


def plan_lines(run: Run, cases: Sequence[Case]) -> list[str]:
    """The plan as a table: a row for each length, and what does not fit."""
    options, checkpoint = run.options, run.checkpoint
    served = options.base_url or options.serve
    known = f"{checkpoint.architecture}, {checkpoint.parameters / 1e6:,.1f}M parameters"
    lines = [
        f"model      {options.model} ({f'on a server: {served}' if served else known})",
        f"{'length':>8} {'cases':>6} {'samples':>8} {'tokens':>14}"
        + ("" if served else "   estimated peak memory for one prompt"),
    ]
    gpu = max(gpu_memory_bytes(), default=USUAL_GPU_BYTES)
    for length in sorted({case.length for case in cases}):
        at = [case for case in cases if case.length == length and case.id not in run.misfits]
        row = (
            f"{format_length(length):>8} {len(at):>6} {sum(case.samples for case in at):>8} "
            f"{sum(map(max_case_tokens, at)):>14,}"
        )
        lines.append(row if served else f"{row}   {_memory(run, length, gpu)}")
    total = sum(max_case_tokens(case) for case in cases if case.id not in run.misfits)
    lines.append(f"{'all':>8} {len(cases):>6} {sum(case.samples for case in cases):>8} {total:>14,}")
    reasons = dict.fromkeys(run.misfits[case.id] for case in cases if case.id in run.misfits)
    return lines + [f"cannot run: {reason}" for reason in reasons]


def _memory(run: Run, length: int, gpu: int) -> str:
    memory = estimated_memory(run.options, run.checkpoint, length)
    parts = " + ".join(
        f"{part / GIB:.2f}" for part in (memory.weight_bytes, memory.cache_bytes, memory.activation_bytes)
    )
    # With a tenth for what no estimate sees.
    gpus = -(-memory.total_bytes * 11 // (10 * gpu))
    needs = f"; --gpus-per-worker {gpus} with {gpu / GIB:.0f} GiB each" if gpus > 1 else ""
    return f"{memory.total_bytes / GIB:.2f} GiB ({parts}: weights, cache, activations{needs})"
