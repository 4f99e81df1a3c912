"""The search for the step at which the loss of an alert began, among the steps that the watch has skipped."""

from __future__ import annotations

import argparse
import glob
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from longctx.ci.alerts.episodes import LostCase, MeasuredStep, passing_steps
from longctx.ci.alerts.log import Alert, Search
from longctx.ci.checkpoint_dirs import Step
from longctx.ci.suite_process import LocalProcesses
from longctx.ci.watch.checkpoint_watcher import CompleteCheckpoint
from longctx.ci.watch.history import WatchedCheckpoint
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.shown_text import one_line
from longctx.plugins.config.options import RUN_OPTIONS, declare

RESULT = "bisect.json"
LINE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Skipped checkpoints between two measured ones."""

    good: MeasuredStep
    bad: MeasuredStep
    between: tuple[Step, ...]
    most_samples: int | None = None
    """The most samples of a case at the bad step, if it took more than the options plan."""


def find_gap(
    alert: Alert, measurements: Sequence[WatchedCheckpoint], on_disk: Sequence[CompleteCheckpoint]
) -> Gap | None:
    """Return the skipped steps in which an alert's loss may have begun, between the nearest checkpoints on disk.

    Returns None if no step was skipped, or if no checkpoint before or after them is left.
    """
    left = {(str(candidate.step.path), candidate.fingerprint) for candidate in on_disk}
    goods = passing_steps(alert.episode, measurements)
    good = next((step for step in reversed(goods) if (step.checkpoint, step.fingerprint) in left), None)
    bad = next((step for step in alert.episode.steps if (step.checkpoint, step.fingerprint) in left), None)
    if good is None or bad is None:
        return None
    between = tuple(candidate.step for candidate in on_disk if good.step < candidate.step.number < bad.step)
    measured = {known.checkpoint for known in measurements if not known.is_gone}
    has_skipped = any(str(step.path) not in measured for step in between)
    most_samples = next((known.most_samples for known in measurements if known.checkpoint == bad.checkpoint), None)
    return Gap(good=good, bad=bad, between=between, most_samples=most_samples) if has_skipped else None


def is_searched(alert: Alert, gap: Gap) -> bool:
    """Return True if the search of a gap has ended with a result."""
    search = alert.search
    return search is not None and search.has_ended and (search.good, search.bad) == (gap.good, gap.bad)


def searched_cases(cases: Sequence[LostCase]) -> list[str]:
    """Return the cases to search on: the worst one, and those of its length that failed in the same gate.

    Their mean has one baseline comparison.
    """
    worst = cases[0]
    return [
        case.id for case in cases if case.length == worst.length and (case is worst or {*case.gates} & {*worst.gates})
    ]


def run_search(
    alert: Alert, gap: Gap, options: Sequence[str], folder: Path, processes: LocalProcesses, gpus: Sequence[str]
) -> Search:
    """Run `longctx bisect` on a gap, in the folder of the alert.

    The same call continues a search that was stopped. `options` are those of the watch's runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # A file of the current directory could ask for other cases.
    config = folder / "bisect.toml"
    write_file(config, b"# All options of the search are on its command line.\n")
    patterns = [glob.escape(str(step.path)) for step in gap.between]
    cases = [word for case in searched_cases(alert.episode.cases) for word in ("--case", case)]
    (folder / RESULT).unlink(missing_ok=True)
    log = folder / "bisect.log"
    ended = processes.execute(
        [
            sys.executable, "-P", "-m", "longctx", "bisect", "--good", gap.good.checkpoint, "--bad", gap.bad.checkpoint,
            *cases, "--out", str(folder), "--config", str(config), *(["-n", str(len(gpus))] if len(gpus) > 1 else []),
            *_accepted(options), *([] if gap.most_samples is None else ["--samples", str(gap.most_samples)]),
            "--checkpoints", *patterns,
        ],
        report=folder / RESULT, log=log, environment={"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else None,
    )  # fmt: skip
    return _read(gap, ended.exit_code, folder / RESULT, log)


def _accepted(options: Sequence[str]) -> list[str]:
    """Return the options of a watch without those that a search refuses."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    declare(parser.add_argument, [option for option in RUN_OPTIONS.values() if option.refused_by("bisect")])
    return parser.parse_known_args(list(options))[1]


def _read(gap: Gap, exit_code: int, result: Path, log: Path) -> Search:
    """Return the result of a search that has ended."""
    failed = Search(good=gap.good, bad=gap.bad, exit_code=exit_code, line=_last_line(log))
    try:
        document = json.loads(read_outside(result))
    except (OSError, ValueError):
        return failed
    if not document["ended"]:
        return failed
    tokens = sum((document.get(part) or {}).get(key, 0) for part in COSTS for key in ("tokens", "likelihood_tokens"))
    found = Search(
        good=gap.good, bad=gap.bad, exit_code=exit_code, line=document["words"][0], tokens=tokens,
        checkpoints=len(document["steps"]),
    )  # fmt: skip
    if document["first_bad"] is None:
        return found
    good, bad = document["range"] or (document["last_good"], document["first_bad"])
    paths = {step.number: str(step.path) for step in gap.between}
    paths |= {gap.good.step: gap.good.checkpoint, gap.bad.step: gap.bad.checkpoint}
    # A step that could not be measured may be the first bad one too.
    first = min(number for number in paths if number > good) if document["range"] else min([bad, *document["skipped"]])
    return structs.replace(
        found, first=first, last=bad, last_good=good, last_path=paths.get(bad, ""), last_good_path=paths.get(good, ""),
        probability=document["probability"],
    )  # fmt: skip


COSTS = ("cost", "survey")


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return one_line(lines[-1] if lines else f"no output in {log}", LINE_CHARACTERS)
