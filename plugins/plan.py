"""Print what a run costs and can detect before a model is loaded; under --plan, all of its cases and nothing else."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from longctx.fixtures.lengths import format_length
from longctx.fixtures.memory import GIB, estimated_memory, gpu_memory_bytes
from longctx.fixtures.records import Case
from longctx.fixtures.shown_text import INDENT, shown_columns, visible_line, wrapped
from longctx.plugins.collection import write_lines
from longctx.plugins.config.materials import judged_samples
from longctx.plugins.config.run import Run, finished_journal
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.evidence.clusters import ClusteredQueue, SampleRef
from longctx.plugins.evidence.points import to_points
from longctx.plugins.evidence.sequential import NonInferiority, can_rule_out, detectable_panel_loss, fewest_units
from longctx.plugins.journal import JournalError
from longctx.plugins.journal.subjects import last_rate
from longctx.plugins.report.sections.comparison import difference_text
from longctx.plugins.stash import CONTROLLER, PLANNED_WORKERS, RUN
from longctx.plugins.verdicts.hypotheses import RULER, build_panels
from longctx.plugins.verdicts.panels import Panel

# The samples to the verdict on a mean at one length, in the median over the curves of 17 models (RULER, Table 3) with
# 6500 planned samples: `python -m benchmarks.false_verdicts`.
MEDIAN_SAMPLES = 138
# A comparison that can only show a larger loss of a panel's mean, 0 to 1, shows too little.
LARGE_LOSS = 0.2
# The memory of a current data-center GPU, assumed if this machine has none.
DEFAULT_GPU_BYTES = 80 * GIB


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run no test under --plan."""
    return True if session.config.option.plan and RUN in session.config.stash else None


def print_costs(config: pytest.Config) -> None:
    """Print how many answers a judge scores at most, which cases cannot run, and which losses can be detected."""
    run, cases = config.stash[RUN], config.stash[CONTROLLER].selected
    lines: list[str] = []
    judged = judged_samples(run.options, cases)
    if judged:
        judge = run.options.judge_model
        lines.append(f"judge      {judge}: scores up to {judged:,} answers; the journal keeps its replies")
    # Under --plan the others are part of the plan.
    if not config.option.plan:
        workers = config.stash.get(PLANNED_WORKERS, 1)
        lines += [_planned_line(run, cases, workers), *_misfit_lines(run, cases), *_power_lines(run, cases)]
    write_lines(config, lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.plan and RUN in config.stash:
        run, selected = config.stash[RUN], config.stash[CONTROLLER].selected
        terminalreporter.section("plan")
        for line in _plan_lines(run, selected, config.stash.get(PLANNED_WORKERS, 1)):
            shown = visible_line(line)
            # A log, which has no width, gets whole lines.
            for part in wrapped(shown, shown_columns(True)) if terminalreporter.isatty else [shown]:
                terminalreporter.write_line(part)


def _plan_lines(run: Run, cases: Sequence[Case], workers: int) -> list[str]:
    fitting, server, checkpoint = _fitting(run, cases), _server(run), run.checkpoint
    millions = checkpoint.parameters / 1e6
    where = f"{checkpoint.architecture}, {millions:,.1f}M parameters"
    head = "  length  cases  samples         tokens"
    # The workers load the model unless it is on a server.
    if server:
        where = f"on a server: {server}"
    else:
        head += "   memory of weights and one prompt's cache"
    lines = [f"model      {run.options.model} ({where})", head]
    lengths = {case.length for case in cases}
    for length in sorted(lengths):
        of_length = [case for case in fitting if case.length == length]
        row = _row(format_length(length), of_length, of_length)
        if not server:
            row += f"   {_memory(run, length)}"
        lines.append(row)
    lines.append(_row("all", cases, fitting))
    lines.append(_time_line(run, fitting, workers))
    lines += _claim_lines(checkpoint.claimed_length, cases)
    lines += _power_lines(run, cases)
    return [*lines, *_misfit_lines(run, cases)]


def _fitting(run: Run, cases: Sequence[Case]) -> list[Case]:
    return [case for case in cases if case.id not in run.misfits]


def _server(run: Run) -> str | None:
    return run.options.base_url or run.options.serve


def _row(name: str, cases: Sequence[Case], fitting: Sequence[Case]) -> str:
    return f"{name:>8} {len(cases):>6} {_samples(cases):>8} {_tokens(fitting):>14,}"


def _claim_lines(claimed: int | None, cases: Sequence[Case]) -> list[str]:
    """Return a warning of lengths above the one that the checkpoint claims to support; none for others."""
    beyond = sorted({case.length for case in cases if claimed is not None and case.length > claimed})
    if claimed is None or not beyond:
        return []
    lengths = ", ".join(map(format_length, beyond))
    return [f"warning    {lengths}: above the {format_length(claimed)} tokens that the checkpoint claims to support"]


def _misfit_lines(run: Run, cases: Sequence[Case]) -> list[str]:
    reasons = dict.fromkeys(run.misfits[case.id] for case in cases if case.id in run.misfits)
    return [f"cannot run: {reason}" for reason in reasons]


def _time_line(run: Run, cases: Sequence[Case], workers: int) -> str:
    """Return the time that the cases take at the last rate of this checkpoint in the journal."""
    if _server(run):
        return "time       unknown: requests to a server overlap; a run shows its rate and the time left"
    rate = last_rate(Path(run.options.journal), run.checkpoint.fingerprint)
    if rate is None:
        return (
            "time       unknown: the journal has no result of this checkpoint; a run of a few minutes (--budget 3) "
            "measures its rate"
        )
    per_worker, tokens = rate.tokens_per_second, _tokens(cases)
    speed = per_worker * workers
    most = f"at most {duration(tokens / speed)}"
    of_workers = "1 worker" if workers == 1 else f"{workers} workers"
    measured = (
        f"with {of_workers}, at {per_worker:,.0f} tokens/s each, as last measured on prompts of up to "
        f"{rate.longest_prompt:,} tokens"
    )
    expected = _expected_tokens(run, cases)
    if expected in (None, tokens):
        return f"time       {most} {measured}"
    about = duration(expected / speed)
    median = f"a mean takes {MEDIAN_SAMPLES} samples a length in the median"
    return f"time       about {about} {measured}: {median}; {most}"


def _planned_line(run: Run, cases: Sequence[Case], workers: int) -> str:
    """Return the most that a run computes: its samples, their tokens and, where a rate is known, the time."""
    fitting = _fitting(run, cases)
    tokens = _tokens(fitting)
    planned = f"planned    at most {_samples(fitting):,} samples, {tokens:,} tokens"
    rate = None if _server(run) else last_rate(Path(run.options.journal), run.checkpoint.fingerprint)
    if rate is None:
        return planned
    return f"{planned}, {duration(tokens / rate.tokens_per_second / workers)} at the last rate"


def _expected_tokens(run: Run, cases: Sequence[Case]) -> int | None:
    """Return the tokens that the means of a run take in the median; None where nothing is known of it."""
    options = run.options
    if options.full or options.only_samples or run.baseline is not None or options.signal != "answers":
        return None
    panels: Counter[tuple[int, str]] = Counter()
    for case in cases:
        panels[case.length, case.family] += len(case.planned)
    return sum(min(planned, MEDIAN_SAMPLES) * length for (length, _), planned in panels.items())


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _memory(run: Run, length: int) -> str:
    """Return the memory of weights and the cache of one prompt, and the number of GPUs per worker that it needs."""
    memory = estimated_memory(run.options, run.checkpoint, length)
    if memory is None:
        return "not known: transformers cannot build this model from its config alone"
    total, gpu_bytes = memory.total_bytes, max(gpu_memory_bytes(), default=DEFAULT_GPU_BYTES)
    parts = f"{memory.weight_bytes / GIB:.2f} + {memory.cache_bytes / GIB:.2f}"
    # The tenth on top is for what reading a prompt takes besides.
    gpus = -(-total * 11 // (10 * gpu_bytes))
    needs = f"; --gpus-per-worker {gpus} with {gpu_bytes / GIB:.0f} GiB each" if gpus > 1 else ""
    return f"{total / GIB:.2f} GiB ({parts}: weights, cache{needs})"


def _samples(cases: Sequence[Case]) -> int:
    return sum(len(case.planned) for case in cases)


def _tokens(cases: Sequence[Case]) -> int:
    return sum(len(case.planned) * case.length for case in cases)


def _power_lines(run: Run, cases: Sequence[Case]) -> list[str]:
    """Return the lines about the comparison of these cases; none for a run without a baseline.

    Lengths that can detect the same loss share a line.
    """
    baseline = run.baseline
    if baseline is None:
        return []
    name = baseline.name
    head = name
    if baseline.limit:
        head = f"the report of {name} cannot be extended: {baseline.limit}"
    elif baseline.path is not None:
        extended = "its checkpoint answers the samples that are missing" if baseline.checkpoint else "it is complete"
        head = f"the report of {name}; {extended}"
    places: dict[str, list[str]] = {}
    for panel in build_panels(run.thresholds, run.scope(cases)).values():
        for comparison in panel.comparisons:
            # The samples of its cases may not fit at this length.
            queue, hypothesis = panel.paired_queue(comparison), comparison.hypothesis
            if queue.refs and isinstance(hypothesis, NonInferiority):
                text = _detects(run, panel, hypothesis, queue, baseline)
                about = comparison.gate or ("" if panel.family == RULER else panel.family)
                places.setdefault(text, []).append(f"{about} {format_length(panel.length)}".strip())
    lines = [f"{', '.join(names)}: {text}" for text, names in places.items()]
    if baseline.differences is not None:
        is_same = run.checkpoint.fingerprint == baseline.fingerprint
        lines.append(difference_text(baseline.differences, is_same=is_same))
    indent = " " * INDENT
    return [f"{'baseline':<{INDENT}}{head}", *(indent + line for line in lines)]


def _detects(run: Run, panel: Panel, hypothesis: NonInferiority, queue: ClusteredQueue, baseline: Baseline) -> str:
    planned = len(queue.clusters)
    known = planned if baseline.path is None else _known_pairs(run, panel, queue, baseline)
    available = known if baseline.checkpoint is None else planned
    loss = detectable_panel_loss(hypothesis, queue, available)
    seen = "no loss of the mean" if loss is None else f"a loss of {to_points(loss):.1f} of the mean"
    text = f"{available:,} of {planned:,} pairs detect {seen}"
    if available < planned and not can_rule_out(hypothesis, queue, available):
        allowed = to_points(hypothesis.allowed(1.0))
        return f"too few pairs for a loss of {allowed:g} points: {text}"
    confirmation, is_small = hypothesis.confirmation, loss is not None and loss <= LARGE_LOSS
    if confirmation is None or is_small:
        return text if known == available else f"{text}; {known:,} are known"
    below = f"below {to_points(loss):.0f} points " if loss else ""
    cases = {ref.case_id for ref in queue.refs}
    needed = math.ceil(fewest_units(confirmation) / len(cases))
    twice = 2 * max(case.samples for case in panel.cases.values())
    return (
        f"TOO FEW: on {queue.unit_count(available)} haystacks no loss {below}can be shown for the model; "
        f"give --samples {max(needed, twice)}"
    )


def _known_pairs(run: Run, panel: Panel, queue: ClusteredQueue, baseline: Baseline) -> int:
    journal = finished_journal(baseline)
    try:
        journal.refresh()
    except JournalError:
        return 0
    scores: dict[SampleRef, float] = {}
    for ref in queue.refs:
        entry = journal.entries.get(run.key(panel.cases[ref.case_id], ref.sample_index))
        if entry is not None:
            scores[ref] = entry.score
    return len(queue.weighted_means(scores))
