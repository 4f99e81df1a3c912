"""--plan: print the cases, tokens and memory of a run without running it."""

from __future__ import annotations

import gc
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.cases import max_case_tokens
from fixtures.checkpoints.checkpoint import Checkpoint
from fixtures.lengths import format_length
from fixtures.memory.fit import estimated_memory
from fixtures.memory.hardware import GIB, gpu_memory_bytes
from fixtures.records import Case
from fixtures.shown_text import visible_line
from fixtures.tasks import TASKS
from plugins.baseline_power import power_lines
from plugins.config.assistants import judge_cost
from plugins.config.run import Run
from plugins.controller import CONTROLLER
from plugins.journal.rates import last_rate
from plugins.options import PLANNED_WORKERS, RUN, cases_of

INDENT = 11
# The memory of a current data-center GPU, assumed if this machine has none.
DEFAULT_GPU_BYTES = 80 * GIB


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run no test under --plan."""
    if not session.config.option.plan or RUN not in session.config.stash:
        return None
    # pytest collects garbage twice before it exits, which would take a quarter of the time of a plan.
    gc.freeze()
    return True


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print the most that judging can cost before the first request to the judge."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if RUN not in config.stash or hasattr(config, "workerinput") or reporter is None or config.option.collectonly:
        return
    run = config.stash[RUN]
    cases = cases_of(run, [item.nodeid for item in session.items]) or run.available
    # No metric of a tasks file needs a judge.
    cost = judge_cost(run.options, [case for case in cases if case.task in TASKS], TASKS)
    if cost is not None:
        reporter.write_line(visible_line(str(cost)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.plan and RUN in config.stash:
        run, selected = config.stash[RUN], config.stash[CONTROLLER].selected
        terminalreporter.section("plan")
        for line in plan_lines(run, selected, config.stash.get(PLANNED_WORKERS, 1)):
            for part in _wrapped(visible_line(line)) if terminalreporter.isatty else [visible_line(line)]:
                terminalreporter.write_line(part)


def _wrapped(line: str) -> list[str]:
    """Return a line in parts that fit the terminal; a log, which has no width, gets whole lines."""
    return textwrap.wrap(line, shutil.get_terminal_size().columns, subsequent_indent=" " * INDENT)


def plan_lines(run: Run, cases: Sequence[Case], workers: int) -> list[str]:
    """Return the plan as lines: the model, a table with a row per length, the time, and the cases that cannot run."""
    fitting = [case for case in cases if case.id not in run.misfits]
    reasons = dict.fromkeys(run.misfits[case.id] for case in cases if case.id in run.misfits)
    server = run.options.base_url or run.options.serve
    memory_title = "" if server else "   estimated peak memory for one prompt"
    return [
        f"model      {run.options.model} ({f'on a server: {server}' if server else _description(run.checkpoint)})",
        f"{'length':>8} {'cases':>6} {'samples':>8} {'tokens':>14}{memory_title}",
        *(_row(run, fitting, length) for length in sorted({case.length for case in cases})),
        f"{'all':>8} {len(cases):>6} {_samples(cases):>8} {_tokens(fitting):>14,}",
        time_line(run, _tokens(fitting), workers),
        *_beyond_claim(run, cases),
        *power_lines(run, cases),
        *(f"cannot run: {reason}" for reason in reasons),
    ]


def time_line(run: Run, tokens: int, workers: int) -> str:
    """Return the most time that the tokens take at the last rate of this checkpoint in the journal."""
    if run.options.base_url or run.options.serve:
        return "time       unknown: requests to a server overlap; a run shows its rate and the time left"
    rate = last_rate(Path(run.options.journal), run.checkpoint.fingerprint)
    if rate is None:
        return (
            "time       unknown: the journal has no result of this checkpoint; a run shows its rate and the time left"
        )
    return (
        f"time       at most {duration(tokens / rate.tokens_per_second / workers)} with {workers} "
        f"{'worker' if workers == 1 else 'workers'}, at {rate.tokens_per_second:,.0f} tokens/s each, as last measured "
        f"on prompts of up to {rate.longest_prompt:,} tokens"
    )


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _beyond_claim(run: Run, cases: Sequence[Case]) -> list[str]:
    """Return a warning about lengths that the checkpoint does not claim to support."""
    claimed = run.checkpoint.claimed_length
    beyond = sorted({case.length for case in cases if claimed is not None and case.length > claimed})
    if not beyond or claimed is None:
        return []
    lengths = ", ".join(map(format_length, beyond))
    return [f"warning    {lengths}: above the {format_length(claimed)} tokens that the checkpoint claims to support"]


def _row(run: Run, fitting: Sequence[Case], length: int) -> str:
    """Return the row of one length; the memory column is only for models that the workers load."""
    cases = [case for case in fitting if case.length == length]
    row = f"{format_length(length):>8} {len(cases):>6} {_samples(cases):>8} {_tokens(cases):>14,}"
    return row if run.options.base_url or run.options.serve else f"{row}   {_memory(run, length)}"


def _samples(cases: Sequence[Case]) -> int:
    return sum(len(case.planned) for case in cases)


def _tokens(cases: Sequence[Case]) -> int:
    return sum(map(max_case_tokens, cases))


def _description(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.architecture}, {checkpoint.parameters / 1e6:,.1f}M parameters"


def _memory(run: Run, length: int) -> str:
    """Return the estimated memory of one prompt, and the number of GPUs per worker that it needs."""
    memory = estimated_memory(run.options, run.checkpoint, length)
    gpu_bytes = max(gpu_memory_bytes(), default=DEFAULT_GPU_BYTES)
    parts = " + ".join(
        f"{part / GIB:.2f}" for part in (memory.weight_bytes, memory.cache_bytes, memory.activation_bytes)
    )
    # The tenth on top is for memory that no estimate covers.
    gpus = -(-memory.total_bytes * 11 // (10 * gpu_bytes))
    needs = f"; --gpus-per-worker {gpus} with {gpu_bytes / GIB:.0f} GiB each" if gpus > 1 else ""
    return f"{memory.total_bytes / GIB:.2f} GiB ({parts}: weights, cache, activations{needs})"
