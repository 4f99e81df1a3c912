"""The cases of a run: its lengths, tasks and samples, and the cases that do not fit."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from longctx.fixtures.cases import FILES, cases_that_cannot_fit, fit_questions, is_selected, plan, unavailable_cases
from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.lengths import LengthError, format_length, parse_length
from longctx.fixtures.memory import cases_over_memory
from longctx.fixtures.records import Case, Options
from longctx.fixtures.shown_text import known_names
from longctx.fixtures.tasks import FAMILIES, RULER_ASPECTS, SUITES, TASKS, shipped_suite
from longctx.fixtures.tasks.task import Task
from longctx.fixtures.tokenization.prompts import PromptFormatter
from longctx.plugins.config.invocation import ConfigError, Invocation
from longctx.plugins.config.materials import Materials
from longctx.plugins.config.run import Run
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.config.servers import is_served, serves_baseline
from longctx.plugins.thresholds.records import Thresholds
from longctx.plugins.verdicts.hypotheses import gate_family

# The shortest length that a suite is defined for, in tokens: HELMET's (Yen et al. 2025, §3), the frontier tasks', and
# that of the paper for RULER's sweeps, whose hardest settings need more than 1K.
MIN_LENGTHS = {"helmet": 8192, "frontier": 4096, "ruler_sweeps": 4096}
# The most cases that one line explains.
MOST_REASONS = 6
CHOSEN_SAMPLES = re.compile(r"(?P<case>.+\]):(?P<indices>[0-9]{1,9}(,[0-9]{1,9})*)")


def parse_lengths(text: str) -> tuple[int, ...]:
    """Return the distinct lengths in tokens, shortest first; raise LengthError naming the option."""
    try:
        return tuple(sorted({parse_length(part) for part in text.split(",")}))
    except LengthError as error:
        raise LengthError(f"--lengths: {error}, and several as 4k,8k") from error


def choose_lengths(options: Options, claimed_length: int | None, materials: Materials) -> tuple[int, ...]:
    """Return the lengths of --lengths, of prepared samples, or of the tasks up to the claim; raise ConfigError."""
    if options.samples_from is not None:
        return _prepared_lengths(options, materials)
    if options.lengths:
        return options.lengths
    if options.suite in ("all", *SUITES):
        return default_lengths(claimed_length)
    # Those of tasks files only if the run has no other tasks.
    return default_lengths(claimed_length, selected_tasks(options, materials))


def default_lengths(claimed_length: int | None, tasks: Iterable[Task] = TASKS.values()) -> tuple[int, ...]:
    """Return the lengths of the tasks up to the claimed one, and at least the shortest."""
    lengths: set[int] = set()
    for task in tasks:
        lengths.update(task.lengths)
    standard = sorted(lengths)
    if claimed_length is None:
        return tuple(standard)
    claimed = [length for length in standard if length <= claimed_length]
    return tuple(claimed or standard[:1])


def selected_tasks(options: Options, materials: Materials) -> list[Task]:
    return [task for task in materials.tasks.values() if is_selected(task, options.suite)]


def check_suite(options: Options, materials: Materials) -> None:
    """Raise ConfigError if no task belongs to the suite, or none of the tasks files does."""
    tasks = selected_tasks(options, materials)
    own = [task for task in materials.tasks.values() if task.version is not None]
    if not tasks:
        names = dict.fromkeys((*SUITES, *(task.suite for task in own), "all", FILES))
        raise ConfigError(
            f"--suite: unknown {options.suite!r}; {known_names(options.suite, names, words='use one of')}"
        )
    if own and not any(task.version is not None for task in tasks):
        raise ConfigError(
            f"--tasks-file: --suite {options.suite} leaves out its tasks; "
            f"leave out --suite, or use --suite {own[0].suite}"
        )


def _prepared_lengths(options: Options, materials: Materials) -> tuple[int, ...]:
    names = [name.split("/") for name in materials.corpora.published if name.startswith("ruler/")]
    lengths = sorted({int(length) for _, _, length in names})
    missing = [length for length in options.lengths if length not in lengths]
    if options.suite not in ("all", "ruler"):
        raise ConfigError(
            f"--tasks-file: prepared samples are RULER's, but --suite is {options.suite}; leave out --suite"
        )
    if missing:
        there = ", ".join(map(format_length, lengths))
        raise ConfigError(
            f"--lengths: {options.samples_from} has no samples of {format_length(missing[0])}; it has {there}"
        )
    return options.lengths or tuple(lengths)


def select_cases(options: Options, checkpoint: Checkpoint, materials: Materials, thresholds: Thresholds) -> Run:
    """Return the run as far as it is known without a tokenizer."""
    cases = only_samples(plan(options, materials.tasks, materials.corpora), options.only_samples)
    thresholds = concerning(thresholds, cases)
    if options.only_samples:
        # Chosen samples say nothing about the others.
        thresholds = replace(thresholds, gates=(), floors={})
    _check_signal(options, thresholds, cases)
    unavailable = unavailable_cases(cases, materials.tasks, materials.corpora, options)
    # Such a run would skip the cases without questions, or those of a set that has a gate in its file, and end well.
    own = [case for case in cases if case.task not in TASKS]
    missing = [case for case in own if case.id in unavailable]
    gated = [case for case in missing if materials.tasks[case.task].above is not None]
    fatal = missing if len(missing) == len(own) else gated
    if fatal:
        raise ConfigError(f"--tasks-file: {unavailable[fatal[0].id]}")
    if options.signal == "likelihood":
        for case in cases:
            if not case.has_gold:
                reason = f"{case.task} has no exact answer whose likelihood could be measured; use --signal both"
                unavailable.setdefault(case.id, reason)
    return Run(
        options=options,
        checkpoint=checkpoint,
        cases=cases,
        unavailable=unavailable,
        thresholds=thresholds,
        ruler_aspects=dict(RULER_ASPECTS),
        task_families={**FAMILIES, **{case.task: case.family for case in cases}},
    )


def with_named_tasks(run: Run, names: Sequence[str]) -> Run:
    """Return the run with the tasks that --tasks names; raise ConfigError for a name that selects no case."""
    known = dict.fromkeys(name for case in run.cases for name in (case.task, case.category, case.suite))
    unknown = [name for name in names if name not in known]
    if not unknown:
        return replace(run, task_names=tuple(names))
    if task := TASKS.get(unknown[0]):
        others = f"the suite {run.options.suite} has no {task.name} at these lengths; give --suite {task.suite}"
        raise ConfigError(f"--tasks: {others}")
    hint = known_names(unknown[0], known, listed_by="longctx tasks")
    if unknown[0].endswith(".toml"):
        hint = "give files with --tasks-file"
    elif shipped_suite(unknown[0]):
        hint = "it is a suite; give it with --suite"
    raise ConfigError(f"--tasks: unknown {unknown[0]!r}; {hint}")


def only_samples(cases: Sequence[Case], given: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases that are named, each with its given samples and those that share a context with one.

    `given` are texts such as `test_ruler[niah_single_2-8k]:3,17`; without one all cases are returned as they are.
    Raises ConfigError.
    """
    if not given:
        return tuple(cases)
    by_id = {case.id: case for case in cases}
    chosen: dict[str, set[int]] = {}
    for text in given:
        match = CHOSEN_SAMPLES.fullmatch(text)
        if match is None:
            raise _bad_samples(text, "write CASE:INDEX,INDEX, such as 'test_ruler[niah_single_2-8k]:3,17'")
        if (case := by_id.get(match["case"])) is None:
            raise _bad_samples(text, "the run has no such case; --collect-only lists the ids")
        indices = {int(index) for index in match["indices"].split(",")}
        if (largest := max(indices)) >= case.samples:
            raise _bad_samples(text, f"the case has no sample {largest}, only 0 to {case.samples - 1}; see --samples")
        chosen.setdefault(case.id, set()).update(indices)
    selected = []
    for case in cases:
        contexts = sorted({index // case.group for index in chosen.get(case.id, ())})
        only = [index for context in contexts for index in range(context * case.group, (context + 1) * case.group)]
        selected += [replace(case, only=tuple(only))] if only else []
    return tuple(selected)


def _bad_samples(text: str, remedy: str) -> ConfigError:
    return ConfigError(f"--only-samples: {text!r}; {remedy}")


def concerning(thresholds: Thresholds, cases: Sequence[Case]) -> Thresholds:
    """Return the thresholds with only the gates on families that the cases have."""
    families = {case.family for case in cases}
    known = {case.task: case.family for case in cases}
    return replace(thresholds, gates=tuple(gate for gate in thresholds.gates if gate_family(gate, known) in families))


def _check_signal(options: Options, thresholds: Thresholds, cases: Sequence[Case]) -> None:
    """Raise ConfigError if the run cannot measure the likelihoods that its options or its gates ask for."""
    gates = [gate for gate in thresholds.gates if gate.kind == "likelihood"]
    if options.signal == "answers":
        if gates:
            raise ConfigError(
                f"--signal: 'answers', but the gate {gates[0].name!r} in {options.thresholds} is about likelihood; "
                "use --signal both"
            )
        return
    if options.thinking_budget:
        raise ConfigError(
            f"--signal: {options.signal!r} with --thinking-budget {options.thinking_budget}, but no thought can come "
            "before a given answer; leave one of them out"
        )
    gold = {case.task for case in cases if case.has_gold}
    if not gold:
        raise ConfigError(
            f"--signal: {options.signal!r}, but no task of this run has an exact answer; "
            "use --suite ruler, or --signal answers"
        )
    for gate in gates:
        family = gate_family(gate, {case.task: case.family for case in cases})
        chosen = [case.task for case in cases if case.family == family and gate.aspect in (None, case.category)]
        others = [task for task in gate.tasks or chosen if task not in gold]
        if others:
            raise ConfigError(
                f"--thresholds: {options.thresholds}: the gate {gate.name!r} is about likelihood, but {others[0]} has "
                "no exact answer in this run; name other tasks"
            )


def sort_out_misfits(run: Run, materials: Materials, formatter: PromptFormatter, invocation: Invocation) -> Run:
    """Return the run with the cases whose shortest sample exceeds their length in `misfits`.

    A case that does not fit is left out with a line, unless it was named, or none fits.
    """
    fitted, unfit = fit_questions(
        run.available, materials.tasks, formatter, seed=run.options.seed, corpora=materials.corpora
    )
    by_id = {case.id: case for case in fitted}
    run = replace(run, cases=tuple(by_id.get(case.id, case) for case in run.cases))
    unfit |= cases_that_cannot_fit(
        run.available, materials.tasks, seed=run.options.seed, formatter=formatter, corpora=materials.corpora
    )
    words = {*re.findall(r"\w+", invocation.selection), *run.task_names}
    is_none_left = len(unfit) == len(run.available)
    short: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    for case in run.cases:
        if case.id not in unfit or case.task in words:
            continue
        is_known = case.length < MIN_LENGTHS.get(case.suite, 0)
        if is_known or not is_none_left:
            short[case.id] = unfit.pop(case.id)
        if run.is_named(case) and not (is_known or is_none_left):
            left_out.setdefault(format_length(case.length), []).append(case.task)
    # A keyword that names tasks leaves out the others by itself.
    is_asked = not invocation.selection.strip() or "not" in words
    for length, tasks in left_out.items() if is_asked else ():
        invocation.announce(f"left out   {', '.join(tasks)} at {length}: too short for their prompts; name them to see")
    return replace(run, unavailable=run.unavailable | short, left_out=frozenset(short), misfits=unfit)


def check_fit(run: Run, baseline: Baseline | None, invocation: Invocation) -> Run:
    """Return the run with the cases too large for this machine in `misfits` too.

    Raises ConfigError for all misfits, unless some cases were selected or, for a lack of memory, under --plan.
    """
    options, workers = run.options, invocation.local_workers
    large: dict[str, str] = {}
    if workers is not None and not options.preflight:
        # Each worker loads a model that is its own baseline once.
        loaded = {} if is_served(options) else {run.checkpoint.fingerprint: run.checkpoint}
        if baseline is not None and baseline.checkpoint is not None and not serves_baseline(options):
            loaded.setdefault(baseline.fingerprint, baseline.checkpoint)
        together = [[one] for one in loaded.values()] if options.engine == "vllm" else [list(loaded.values())]
        for checkpoints in together:
            large |= cases_over_memory(options, checkpoints, run.available, workers=workers)
    fatal = run.misfits | ({} if invocation.arguments.plan else large)
    if invocation.is_narrowed:
        # What --tasks names was meant; a case that -k selects fails alone.
        fatal = {case.id: fatal[case.id] for case in run.cases if case.id in fatal and case.task in run.task_names}
    if fatal:
        raise ConfigError(_misfit_line(list(dict.fromkeys(fatal.values()))))
    return replace(run, misfits=large | run.misfits)


def _misfit_line(reasons: Sequence[str]) -> str:
    """Return one line about all cases that do not fit, with the length at which they do."""
    if len(reasons) == 1:
        return reasons[0]
    faults = [reason.partition("; ")[0] for reason in reasons]
    needed = re.findall(r" take (\d+)$", "\n".join(faults), re.MULTILINE)
    remedy = f"use --lengths {max(map(int, needed))} or more" if needed else "use other --lengths"
    more = f"; and {len(faults) - MOST_REASONS} more" if len(faults) > MOST_REASONS else ""
    return f"{'; '.join(faults[:MOST_REASONS])}{more}; {remedy}, or leave them out with -k"
