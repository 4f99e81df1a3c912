"""From the measurements of a watch to alerts: failing steps with one cause, in the order of the steps.

The same measurements have the same alerts, in any order. A step that fails opens an alert for the cases that have
lost there. Later failing steps belong to it as long as they fail the same cases, and the first step that passes them
all closes it. Steps that are undecided, or fail for other cases, say nothing of it. A search among the steps that the
watch has skipped finds the one at which the loss of an alert began.
"""

import glob
import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import structs

from longctx.ci.checkpoint_dirs import CompleteCheckpoint, Step
from longctx.ci.suite_options import without_options
from longctx.ci.suite_process import LocalProcesses, environment_of, log_lines, log_of, workers_on
from longctx.ci.watch.history import ACCEPTED, CaseOutcome, Notified, Search, WatchedCheckpoint
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.outside_files import read_outside
from longctx.fixtures.shown_text import one_line
from longctx.plugins.config.options import RUN_OPTIONS

Kind = Literal["loss", "gates", "error"]
"""What fails: cases; gates or the engine, if no case has lost points; or the measurement itself."""
# A case has lost further than at an earlier step if it is so many standard errors lower. Of an unchanged case, 1 in 740
# steps is.
FURTHER_ERRORS = 3.0
LINE_CHARACTERS = 300
BISECT_CODES = range(5)


@dataclass(slots=True, kw_only=True)
class Alert:
    """A step at which the run became worse, or at which it could not be measured."""

    kind: Kind
    cases: dict[str, CaseOutcome]
    """Each case at the first step at which it has lost, by id, the largest loss over its standard error first; empty
    unless the kind is a loss."""
    steps: list[WatchedCheckpoint]
    """The measured steps that fail, the first bad one first."""
    last_good: WatchedCheckpoint | None = None
    """The nearest measured step before them at which all of the cases pass; None if there is none."""
    undecided: list[WatchedCheckpoint] = field(default_factory=list)
    """The measured steps behind the last good one at which cases have lost points, and that did not fail."""
    closed_by: int | None = None
    """The first later step that passes all of the cases; None if none does."""
    search: Search | None = None
    """The last search for the step at which the loss began; None if there was none."""

    @property
    def first(self) -> WatchedCheckpoint:
        return self.steps[0]

    @property
    def name(self) -> str:
        """A name that no other alert of the watch has, which is that of its folder too."""
        kind = "" if self.kind == "loss" else f"-{self.kind}"
        return f"{Path(self.first.checkpoint).name}-{self.first.fingerprint[:12]}{kind}"

    @property
    def status(self) -> str:
        """The state in words: open, closed by a step, or gone once none of its failed checkpoints is on disk."""
        if self.closed_by is not None:
            return f"closed by step {self.closed_by}"
        return "gone" if all(known.is_gone for known in self.steps) else "open"

    @property
    def is_open(self) -> bool:
        return self.status == "open"

    @property
    def culprit(self) -> Search | None:
        """The search that found the step, unless later measurements contradict it; None without one."""
        search, good = self.search, self.last_good
        if search is None or search.first is None or search.last is None:
            return None
        is_between = (good is None or good.step < search.first) and search.last <= self.first.step
        return search if is_between else None

    @property
    def good_step(self) -> int | None:
        """The last step known to be good before it; None if there is none."""
        if self.culprit is not None:
            return self.culprit.last_good
        return None if self.last_good is None else self.last_good.step

    def is_same(self, other: "Alert | Notified") -> bool:
        """Return True for the same alert as other measurements show it, or for a notification of it."""
        shares_step = not {*self.fingerprints}.isdisjoint(other.fingerprints)
        shares_case = not self.cases or not {*self.cases}.isdisjoint(other.cases)
        return self.kind == other.kind and shares_step and shares_case

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of its steps: a failed checkpoint that gets another number is the same."""
        return tuple(known.fingerprint for known in self.steps)


def find_alerts(measurements: Sequence[WatchedCheckpoint], searches: Sequence[Search] = ()) -> list[Alert]:
    """Return the alerts of measurements, which are in the order of their steps: open ones first, and the worst first.

    Of a checkpoint that was replaced nothing counts; of a deleted one only its losses still say something of the run.
    """
    evidence = [known for known in measurements if not known.says_nothing]
    alerts: list[Alert] = []
    for known in evidence:
        going_on = [alert for alert in alerts if alert.closed_by is None]
        kind = _kind(known)
        of_kind = [alert for alert in going_on if alert.kind == kind]
        if kind == "loss":
            alerts += _assign_losses(known, of_kind)
        elif of_kind:
            of_kind[0].steps.append(known)
        elif kind is not None:
            alerts.append(Alert(kind=kind, cases={}, steps=[known]))
        for alert in going_on:
            if known not in alert.steps and _passes(known, alert):
                alert.closed_by = known.step
    for alert in alerts:
        _complete(alert, evidence, searches)
    return sorted(alerts, key=_rank)


def _rank(alert: Alert) -> tuple[bool, bool, float, int]:
    worst = max(map(_severity, alert.cases.values()), default=0.0)
    return (not alert.is_open, alert.kind != "loss", -worst, alert.first.step)


def _severity(case: CaseOutcome) -> float:
    """Return the points that a case has lost over their standard error; 0 if they are not known."""
    return 0.0 if case.points is None or not case.pairs else -case.points / _error(case)


def _error(case: CaseOutcome) -> float:
    """Return the standard error of the points of a case, which is at least the points of one sample."""
    return max(case.error or 0.0, 100 / case.pairs)


def _complete(alert: Alert, evidence: Sequence[WatchedCheckpoint], searches: Sequence[Search]) -> None:
    """Order the cases of an alert, and set the steps before it and its last search."""
    ordered = sorted(alert.cases.items(), key=lambda case: (-_severity(case[1]), case[0]))
    alert.cases = dict(ordered)
    for known in evidence:
        if known.step >= alert.first.step:
            break
        if _passes(known, alert):
            alert.last_good, alert.undecided = known, []
        elif lowest_case(known, alert.cases) is not None:
            alert.undecided.append(known)
    for search in searches:
        if search.bad in alert.fingerprints and not {*search.cases}.isdisjoint(alert.cases):
            alert.search = search


def lowest_case(known: WatchedCheckpoint, names: Collection[str]) -> str | None:
    """Return that of some cases which has lost the most points at a step undecided; None if none has."""
    lost = {}
    for name in names:
        case = known.cases.get(name)
        if case is not None and case.state == "undecided" and case.points is not None and case.points < 0:
            lost[name] = case.points
    return min(lost, key=lambda name: lost[name], default=None)


def _kind(known: WatchedCheckpoint) -> Kind | None:
    if known.verdict in ACCEPTED:
        return None
    if any(outcome.has_lost for outcome in known.cases.values()):
        return "loss"
    return "error" if known.verdict == "error" else "gates"


def _assign_losses(known: WatchedCheckpoint, going_on: Sequence[Alert]) -> list[Alert]:
    """Add a failing step to the alerts of its cases; return a new alert for the other cases, or nothing."""
    new = Alert(kind="loss", cases={}, steps=[])
    for name, outcome in known.cases.items():
        if outcome.has_lost:
            home = _home(name, outcome, going_on) or new
            home.cases.setdefault(name, outcome)
            if known not in home.steps:
                home.steps.append(known)
    return [new] if new.steps else []


def _home(name: str, outcome: CaseOutcome, going_on: Sequence[Alert]) -> Alert | None:
    """Return the alert that a case belongs to: the one that has it, or the last at which it may have lost as much."""
    for alert in going_on:
        if name in alert.cases:
            return alert
    alike = [alert for alert in going_on if _may_have_lost(alert.first.cases.get(name), outcome)]
    return alike[-1] if alike else None


def _may_have_lost(earlier: CaseOutcome | None, now: CaseOutcome) -> bool:
    """Return False if a case has passed at an earlier step, or has lost less there than now for certain."""
    if earlier is None or earlier.state == "pass":
        return False
    if earlier.points is None or now.points is None:
        return True
    return earlier.points - now.points <= FURTHER_ERRORS * math.hypot(_error(earlier), _error(now))


def _passes(known: WatchedCheckpoint, alert: Alert) -> bool:
    """Return True if a checkpoint passes what fails at the steps of an alert."""
    if alert.kind == "loss":
        return all(name in known.cases and known.cases[name].state == "pass" for name in alert.cases)
    return known.verdict in ACCEPTED or (alert.kind == "error" and known.verdict == "fail")


def passing_steps(alert: Alert, measurements: Sequence[WatchedCheckpoint]) -> list[WatchedCheckpoint]:
    """Return the steps before an alert that pass all of its cases; the measurements are in the order of steps."""
    before = [known for known in measurements if known.step < alert.first.step]
    return [known for known in before if _passes(known, alert)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Skipped checkpoints between two measured ones."""

    good: WatchedCheckpoint
    bad: WatchedCheckpoint
    between: tuple[Step, ...]


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
        ends = gap.good.fingerprint, gap.bad.fingerprint
        is_searched = alert.search is not None and (alert.search.good, alert.search.bad) == ends
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
    was_killed = ended.exit_code not in BISECT_CODES
    last = "the search was killed" if was_killed else one_line(log_lines(log_of(result))[-1], LINE_CHARACTERS)
    ends = gap.good.fingerprint, gap.bad.fingerprint
    made = Search(good=ends[0], bad=ends[1], cases=tuple(cases), line=last, was_killed=was_killed)
    try:
        document = json.loads(read_outside(result))
    except (OSError, ValueError):
        return made
    found, steps = document["found"] or {}, document["steps"]
    return structs.replace(made, line=document["words"][0], checkpoints=len(steps), **found)
