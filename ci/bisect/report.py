"""What a search says: a line for each look, the ending in words, and both as JSON and as a picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ci.bisect.compare import Bounds, Suite, asked, comparison
from ci.bisect.endpoints import Endpoints
from ci.bisect.journal_stats import Cost, Flip, Results
from ci.bisect.search import Found, StepVerdict
from ci.checkpoint_dirs import Step
from ci.plots import Point, plot
from fixtures.atomic_files import write_file
from fixtures.checkpoints.checkpoint import CheckpointError, read_checkpoint

SCHEMA = "longctx-bisect/1"
FLIPS_SHOWN = 5
# A share of the whole loss; samples at hand that say as much elsewhere are worth a full look.
HINT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectLog:
    """A search as far as it is; every look is written down at once."""

    steps: Sequence[Step]
    ends: Endpoints
    suite: Suite
    bounds: Bounds
    confidence: float
    answers: dict[int, StepVerdict] = field(default_factory=dict)

    def note(self, place: int, answer: StepVerdict) -> None:
        self.answers[place] = answer
        self.write(ended=False)

    def write(self, *, ended: bool, edge: tuple[int, int] | None = None, more: Mapping[str, Any] | None = None) -> None:
        """bisect.json and bisect.svg."""
        looks = [
            {"step": self.steps[place].number, "checkpoint": str(self.steps[place].path)} | asdict(answer)
            for place, answer in self.answers.items()
        ]
        document = {
            "schema": SCHEMA,
            "ended": ended,
            "good": str(self.steps[0].path),
            "bad": str(self.steps[-1].path),
            "cases": list(self.ends.cases),
            "lost": self.ends.lost,
            "confidence": self.confidence,
            "looks": looks,
        }
        text = json.dumps(document | dict(more or {}), indent=1)
        write_file(self.suite.folder / "bisect.json", f"{text}\n".encode())
        write_file(self.suite.folder / "bisect.svg", self._picture(edge).encode())

    def _picture(self, edge: tuple[int, int] | None) -> str:
        first = Point(step=self.steps[0].number, word="good", value=0.0, interval=None)
        last = Point(step=self.steps[-1].number, word="bad", value=-self.ends.lost, interval=self.ends.interval)
        looks = [
            Point(step=self.steps[place].number, word=answer.word, value=answer.difference, interval=answer.interval)
            for place, answer in sorted(self.answers.items())
        ]
        numbers = None if edge is None else (self.steps[edge[0]].number, self.steps[edge[1]].number)
        title = self.ends.cases[0] + (f" and {len(self.ends.cases) - 1} more" if len(self.ends.cases) > 1 else "")
        return plot([first, *looks, last], title=title, half_way=-self.ends.lost / 2, edge=numbers)


def look_line(step: Step, answer: StepVerdict) -> str:
    """One look in a line."""
    if answer.difference is None:
        return f"step {step.number:<8} skipped  {answer.reason}"
    low, high = answer.interval or (-100.0, 100.0)
    lost = f"{answer.difference:+6.1f} [{low:+.1f}, {high:+.1f}]"
    return f"step {step.number:<8} {answer.word:<7} {lost}  {answer.pairs} pairs"


def conclude(told: BisectLog, found: Found) -> tuple[int, list[str]]:
    """The exit code and the last lines; writes the files."""
    steps, place = told.steps, {"good": found.last_good, "bad": found.first_bad}
    good, bad = steps[place["good"]], steps[place["bad"]]
    sure = f"{100 * told.confidence:g} %"
    if found.skipped:
        open_steps = ", ".join(str(steps[each].number) for each in found.skipped)
        lines = [f"first bad step {bad.number} or, not looked at, {open_steps} (last good {good.number}), {sure}"]
    else:
        lines = [f"first bad step {bad.number} (last good {good.number}), {sure}"]
    lines += [
        f"not monotone: bad from {steps[begins].number} on (good at {steps[before].number}), "
        f"good again at {steps[again].number}; the loss of {steps[-1].name} begins later"
        for before, begins, again in found.dips
    ]
    unseen = len(steps) - 2 - len(found.answers)
    skips = [f"skipped step {steps[at].number}: {a.reason}" for at, a in sorted(found.answers.items()) if not a.pairs]
    results = Results(told.ends.report, told.suite.samples)
    prints = {at: _fingerprint(steps[at]) for at in {0, len(steps) - 1, *found.answers}}
    edge, edge_lines = _edge(told, found)
    edge_lines += _other_drops(told, found, results, prints)
    flips = results.flips(prints[place["good"]], prints[place["bad"]], told.ends.cases)
    cost = sum((results.cost(each, told.ends.cases) for each in set(prints.values()) if each), Cost())
    linear = _linear_scan(told, cost)
    lines += [*edge_lines, *_flip_lines(flips), *skips]
    if unseen:
        lines.append(f"not looked at: {unseen} of {len(steps)} steps; a dip among them would go unseen")
    lines.append(
        f"cost: {cost.samples} samples, {cost.tokens:,} tokens; a linear scan takes {linear.samples} samples, "
        f"{linear.tokens:,} tokens (1/{linear.tokens / max(1, cost.tokens):.1f})"
    )
    surveyed: Cost | None = None
    if told.ends.survey is not None:
        others = [case["id"] for case in told.ends.survey["cases"] if case["id"] not in told.ends.cases]
        surveyed = results.of(told.ends.survey).cost(prints[0], others)
        surveyed += results.of(told.ends.survey).cost(prints[len(steps) - 1], others)
        lines.append(f"      and {surveyed.samples} samples of other cases, to see which lost most")
    lines.append(f"written: {told.suite.folder}/bisect.json, bisect.svg")
    told.write(
        ended=True,
        edge=(place["good"], place["bad"]),
        more={
            "first_bad": bad.number,
            "last_good": good.number,
            "monotone": not found.dips,
            "dips": [[steps[each].number for each in dip] for dip in found.dips],
            "skipped": [steps[each].number for each in found.skipped],
            "not_looked_at": unseen,
            "edge": edge,
            "flips": [asdict(flip) for flip in flips],
            "cost": asdict(cost),
            "linear_scan": asdict(linear),
            "survey": surveyed and asdict(surveyed),
            "words": lines,
        },
    )
    return (2 if found.skipped else 0), lines


def _edge(told: BisectLog, found: Found) -> tuple[dict[str, Any] | None, list[str]]:
    """The two neighbours against each other."""
    good, bad = told.steps[found.last_good], told.steps[found.first_bad]
    answer, _ = asked(told.suite, bad.path, good.path, told.bounds, told.ends.cases)
    if answer.difference is None or answer.interval is None:
        return None, [f"the two were not compared: {answer.reason}"]
    low, high = answer.interval
    lost = f"{answer.difference:+.1f} [{low:+.1f}, {high:+.1f}] over {answer.pairs} pairs"
    return asdict(answer), [f"between them {lost}, of {-told.ends.lost:+.1f} between the ends"]


def _other_drops(told: BisectLog, found: Found, results: Results, prints: Mapping[int, str]) -> list[str]:
    """Losses before the last good step and behind the first bad one, shown on all samples.

    They are looked for where the samples at hand hint at one: a search ends with too few to show it.
    """
    last = len(told.steps) - 1
    lines = []
    for before, after in ((0, found.last_good), (found.first_bad, last)):
        hint = results.difference(prints[before], prints[after], told.ends.cases) if before != after else 0.0
        if hint > -HINT * told.ends.lost:
            continue
        good, bad = told.steps[before], told.steps[after]
        bounds = Bounds(confidence=told.confidence)
        gate = comparison(told.suite.compare(bad.path, good.path, bounds, cases=told.ends.cases, full=True).report)
        if gate is None or gate["interval"] is None or gate["interval"][1] >= 0:
            continue
        low, high = gate["interval"]
        lines.append(
            f"two drops: from step {good.number} to {bad.number} another {gate['measured']:+.1f} "
            f"[{low:+.1f}, {high:+.1f}]; to find where: --good {good.path} --bad {bad.path}"
        )
    return lines


def _flip_lines(flips: Sequence[Flip]) -> list[str]:
    worse = [flip for flip in flips if flip.after < flip.before]
    if not flips:
        return []
    lines = [f"flipped samples: {len(worse)} worse, {len(flips) - len(worse)} better, for example"]
    for flip in worse[:FLIPS_SHOWN]:
        place = "" if flip.depth is None else f" at depth {flip.depth:.2f}"
        expected = ", ".join(flip.expected)[:60]
        lines.append(
            f"    {flip.case} sample {flip.index}{place}: expected {expected!r}, now {flip.answer_after[:60]!r}"
        )
    return lines


def _linear_scan(told: BisectLog, cost: Cost) -> Cost:
    """All samples of the same cases on every checkpoint, each as dear as those that were answered."""
    planned = sum(case["planned"] for case in told.ends.report["cases"])
    samples = planned * len(told.steps)
    return Cost(samples=samples, tokens=round(samples * cost.tokens / max(1, cost.samples)))


def _fingerprint(step: Step) -> str:
    """Empty where the checkpoint cannot be read."""
    try:
        return read_checkpoint(str(step.path)).fingerprint
    except CheckpointError:
        return ""
