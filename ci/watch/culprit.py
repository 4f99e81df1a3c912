"""The search for the step at which the loss of an alert began, among the steps that the watch has skipped."""

import glob
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from longctx.ci.checkpoint_dirs import Step
from longctx.ci.suite_options import without_options
from longctx.ci.suite_process import LocalProcesses, environment_of, log_lines, log_of, workers_on
from longctx.ci.watch.alerts import Alert, passing_steps
from longctx.ci.watch.checkpoint_watcher import CompleteCheckpoint
from longctx.ci.watch.history import CaseOutcome, Search, WatchedCheckpoint
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.shown_text import one_line
from longctx.plugins.config.options import RUN_OPTIONS

LINE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Skipped checkpoints between two measured ones."""

    good: WatchedCheckpoint
    bad: WatchedCheckpoint
    between: tuple[Step, ...]

    @property
    def ends(self) -> tuple[str, str]:
        return (self.good.fingerprint, self.bad.fingerprint)


def find_gap(
    alert: Alert, measurements: Sequence[WatchedCheckpoint], on_disk: Sequence[CompleteCheckpoint]
) -> Gap | None:
    """Return the skipped steps in which an alert's loss may have begun, between checkpoints on disk, or None."""
    left = {str(checkpoint.step.path): checkpoint.fingerprint for checkpoint in on_disk}
    goods = [known for known in passing_steps(alert, measurements) if left.get(known.checkpoint) == known.fingerprint]
    bads = [known for known in alert.steps if left.get(known.checkpoint) == known.fingerprint]
    if not goods or not bads:
        return None
    good, bad = goods[-1], bads[0]
    between = [checkpoint.step for checkpoint in on_disk if good.step < checkpoint.step.number < bad.step]
    measured = {known.checkpoint for known in measurements if not known.is_gone}
    has_skipped = any(str(step.path) not in measured for step in between)
    return Gap(good=good, bad=bad, between=tuple(between)) if has_skipped else None


def due_search(
    alerts: Sequence[Alert],
    measurements: Sequence[WatchedCheckpoint],
    on_disk: Sequence[CompleteCheckpoint],
    pending: Collection[int],
) -> tuple[Alert, Gap] | None:
    """Return the next open alert to search for, and its gap, which is searched once.

    `pending` are steps that the watch itself will measure: it waits for those that lie in a gap.
    """
    for alert in alerts:
        gap = find_gap(alert, measurements, on_disk) if alert.is_open and alert.cases else None
        if gap is None:
            continue
        is_searched = alert.search is not None and (alert.search.good, alert.search.bad) == gap.ends
        is_pending = any(gap.good.step < step < gap.bad.step for step in pending)
        if not is_searched and not is_pending:
            return alert, gap
    return None


def searched_cases(cases: Mapping[str, CaseOutcome]) -> list[str]:
    """Return the worst case, and those of its length that failed in the same gate: their mean has one comparison."""
    name, *others = cases
    searched, worst = [name], cases[name]
    for name in others:
        case = cases[name]
        if case.length == worst.length and not {*case.gates}.isdisjoint(worst.gates):
            searched.append(name)
    return searched


def search_words(
    cases: Sequence[str], good: WatchedCheckpoint, bad: WatchedCheckpoint, options: Sequence[str], out: Path
) -> list[str]:
    """Return the command that searches between two checkpoints; `options` are those of the watch's runs."""
    words = ["longctx", "bisect", "--good", good.checkpoint, "--bad", bad.checkpoint, "--out", str(out)]
    for case in cases:
        words += ["--case", case]
    words += without_options(options, [option for option in RUN_OPTIONS.values() if option.instead("bisect")])
    # The bad step may have taken more samples than the options plan.
    words += [] if bad.most_samples is None else ["--samples", str(bad.most_samples)]
    return [*words, "--checkpoints"]


def run_search(
    alert: Alert, gap: Gap, options: Sequence[str], folder: Path, processes: LocalProcesses, gpus: Sequence[str]
) -> Search:
    """Run `longctx bisect` on a gap, in the folder of the alert; the same call continues a search that was stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    # A file of the current directory could ask for other cases.
    config = folder / "bisect.toml"
    write_file(config, b"# All options of the search are on its command line.\n")
    result = folder / "bisect.json"
    result.unlink(missing_ok=True)
    cases = searched_cases(alert.cases)
    options = [*options, "--config", str(config), *workers_on(gpus)]
    words = search_words(cases, gap.good, gap.bad, options, folder)
    patterns = [glob.escape(str(step.path)) for step in gap.between]
    command = [sys.executable, "-P", "-m", *words, *patterns]
    ended = processes.execute(command, report=result, environment=environment_of(gpus))
    last = one_line(log_lines(log_of(result))[-1], LINE_CHARACTERS)
    good, bad = gap.ends
    made = Search(good=good, bad=bad, cases=tuple(cases), exit_code=ended.exit_code, line=last)
    try:
        document = json.loads(read_outside(result))
    except (OSError, ValueError):
        return made
    if not document["ended"]:
        return made
    found, steps = document["found"] or {}, document["steps"]
    return structs.replace(made, line=document["words"][0], checkpoints=len(steps), **found)
