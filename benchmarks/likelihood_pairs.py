"""Measure how many pairs a loss takes by answers, by likelihood, and by a screen that answers confirm.

    python -m benchmarks.likelihood_pairs CKPT --work out/pairs

The benchmark writes copies of a checkpoint with noise on their weights and with a scaled last norm
(`benchmarks.changed_weights`), and compares each with the original by the real command, `--signal both --full`. Then it
draws panels with replacement from the measured pairs, and the code of the gates and of the watch decides each of them:

- answers: the regression gate with the shipped drop, until it fails;
- likelihood: the same e-process on the differences of the loss of the gold answers, until a rise above 0 is shown;
- screen: a screen by the likelihood of the first samples, and the gate on answers where it sees a loss. Its pairs
  include those of the screen.

An unchanged checkpoint whose answers flip is drawn from the same pairs, each of them both ways round, so that nothing
is lost on the planned samples. The same command continues a benchmark that was stopped; `--table` reads what is
finished. Limits: exit code 1 if more than 1 % of unchanged or harmless panels fail.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.changed_weights import CHANGES, NORM, write_changed
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.installation import SUITE as REPOSITORY
from longctx.plugins.evidence.e_process import Floats, log_evidence
from longctx.plugins.evidence.likelihood import DIFFERENCE_CLIP
from longctx.plugins.evidence.statistics import decide_paired
from longctx.plugins.journal import Journal
from longctx.plugins.journal.lines import decode_subject, likelihood_key

ALPHA = 0.01
# The shipped [regression] drop, and half of it.
DROP, CLEAR = 0.02, 0.01
# A screen sees no loss if the loss of the gold answers rose by no more than ERRORS standard errors, and if a rise of
# LARGEST_RISE nats is more than ERRORS standard errors away.
ERRORS, LARGEST_RISE = 2.0, 0.05
MIN_PAIRS = 26
MOST_WRONG = 0.01
HEADINGS = (
    "change", "pairs measured", "points lost", "nll rise", "variance explained", "answers: shown, pairs",
    "likelihood: shown, pairs",
    "screen and answers: shown, pairs", "pairs a checkpoint, without and with the screen",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The differences of a changed checkpoint from the original on the same samples."""

    scores: Floats
    """-1 to 1."""
    rises: Floats
    """The rise of the loss of the gold answer in nats, clipped."""

    @property
    def explained(self) -> float:
        """The share of the variance of the score differences that the rises explain, as a control variate would."""
        if not (self.scores.std() and self.rises.std()):
            return 0.0
        return float(np.corrcoef(self.scores, self.rises)[0, 1] ** 2)

    def draw(self, rng: np.random.Generator, planned: int, *, unchanged: bool) -> Pairs:
        """Return a panel, drawn with replacement; with `unchanged` every drawn pair is in it both ways round."""
        if not unchanged:
            chosen = rng.integers(0, len(self.scores), planned)
            return Pairs(scores=self.scores[chosen], rises=self.rises[chosen])
        chosen = np.tile(rng.integers(0, len(self.scores), planned // 2), 2)
        sign = np.repeat([1.0, -1.0], planned // 2)
        order = rng.permutation(len(chosen))
        return Pairs(scores=(sign * self.scores[chosen])[order], rises=(sign * self.rises[chosen])[order])


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The pairs until a loss was shown on one panel, each None if it was not."""

    answers: int | None
    likelihood: int | None
    screen: int | None
    compared: int
    """The pairs of the procedure with the screen, whatever its verdict."""
    without: int
    """The pairs of the gate without the screen, whatever its verdict."""


def read_pairs(journal: Path, checkpoint: Path, changed: Path) -> Pairs:
    """Return the finished pairs of two checkpoints, of the execution settings under which there are most."""
    fingerprints = [read_checkpoint(str(path)).fingerprint for path in (checkpoint, changed)]
    subjects = [decode_subject(file.read_bytes()) for file in sorted(journal.glob("*/subject.json"))]
    known = [subject for subject in subjects if subject is not None and subject.fingerprint in fingerprints]
    best = Pairs(scores=np.zeros(0), rises=np.zeros(0))
    for execution in {tuple(sorted(subject.execution.items())) for subject in known}:
        both = {
            subject.fingerprint: Journal(journal, subject)
            for subject in known
            if tuple(sorted(subject.execution.items())) == execution
        }
        if len(both) == 2:
            pairs = _paired(both[fingerprints[0]], both[fingerprints[1]])
            best = max(best, pairs, key=lambda each: len(each.scores))
    return best


def _paired(original: Journal, changed: Journal) -> Pairs:
    for journal in (original, changed):
        journal.refresh()
    keys = [
        key
        for key in original.entries.keys() & changed.entries.keys()
        if {likelihood_key(key)} <= original.likelihoods.keys() & changed.likelihoods.keys()
    ]
    scores = [changed.entries[key].score - original.entries[key].score for key in sorted(keys)]
    rises = [
        changed.likelihoods[likelihood_key(key)].likelihood.full.nll
        - original.likelihoods[likelihood_key(key)].likelihood.full.nll
        for key in sorted(keys)
    ]
    return Pairs(scores=np.array(scores), rises=np.clip(np.array(rises), -DIFFERENCE_CLIP, DIFFERENCE_CLIP))


def decide(panel: Pairs, screen: int) -> Drawn:
    """Decide one panel in the three ways."""
    planned = len(panel.scores)
    decision = decide_paired(
        panel.scores, drop=DROP, clear=CLEAR, alpha=ALPHA, min_observations=MIN_PAIRS, population=planned
    )
    assert decision is not None
    failed = decision.stopping_time if decision.verdict == "fail" else None
    shown = np.flatnonzero(log_evidence((panel.rises / DIFFERENCE_CLIP + 1) / 2, 0.5) >= -np.log(ALPHA))
    sees_loss = _sees_loss(panel, screen)
    return Drawn(
        answers=failed,
        likelihood=None if not shown.size else int(shown[0]) + 1,
        screen=failed + screen if sees_loss and failed else None,
        compared=screen + (decision.stopping_time if sees_loss else 0),
        without=decision.stopping_time,
    )


def _sees_loss(panel: Pairs, screen: int) -> bool:
    rises, scores = panel.rises[-screen:], panel.scores[-screen:]
    worse = decide_paired(scores, drop=DROP, clear=CLEAR, alpha=ALPHA, population=screen)
    error = float(rises.std(ddof=1) / screen**0.5)
    rise = float(rises.mean())
    has_risen = rise > ERRORS * error or rise + ERRORS * error > LARGEST_RISE
    return has_risen or (worse is not None and worse.verdict == "fail")


def print_table(work: Path, checkpoint: Path, *, planned: int, replications: int, screen: int) -> bool:
    """Print a line for every change, and one for unchanged panels of its pairs.

    Return True if the limit is kept for every change, and at least one has enough pairs.
    """
    print(f"{replications} panels of {planned} samples for every line, a screen of {screen} samples, {ALPHA:.0%}")
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    is_kept, lines = True, 0
    for name in CHANGES:
        pairs = read_pairs(work / "journal", checkpoint, work / name) if (work / name).is_dir() else None
        if pairs is None or len(pairs.scores) < screen:
            continue
        for unchanged in (False, True):
            rng = np.random.default_rng([CHANGES.index(name), unchanged])
            drawn = [decide(pairs.draw(rng, planned, unchanged=unchanged), screen) for _ in range(replications)]
            print(_line(f"{name}{', exchanged' if unchanged else ''}", pairs, drawn, unchanged=unchanged), flush=True)
            wrong = max(sum(each.answers is not None for each in drawn), sum(each.screen is not None for each in drawn))
            is_kept &= wrong <= MOST_WRONG * replications or not (unchanged or name == NORM)
            lines += 1
    if not lines:
        print(f"no change has {screen} pairs; the logs in {work} say why, or give --screen fewer samples")
    return is_kept and lines > 0


def _line(name: str, pairs: Pairs, drawn: Sequence[Drawn], *, unchanged: bool) -> str:
    lost, rise = (0.0, 0.0) if unchanged else (-100 * pairs.scores.mean(), pairs.rises.mean())
    ways = [[getattr(each, way) for each in drawn] for way in ("answers", "likelihood", "screen")]
    without, compared = (np.mean([getattr(each, way) for each in drawn]) for way in ("without", "compared"))
    cells = [_shown([each for each in way if each is not None], len(drawn)) for way in ways]
    return (
        f"| {name} | {len(pairs.scores)} | {lost:.1f} | {rise:+.3f} | {pairs.explained:.0%} | {' | '.join(cells)} "
        f"| {without:.0f}, {compared:.0f} |"
    )


def _shown(pairs: Sequence[int], panels: int) -> str:
    median = f", {np.median(pairs):.0f}" if pairs else ""
    return f"{100 * len(pairs) / panels:.1f} %{median}"


def _measure(args: argparse.Namespace, name: str) -> None:
    changed = write_changed(args.checkpoint, args.work / name, name)
    command = [
        sys.executable, "-m", "pytest", "--model", str(changed), "--baseline", str(args.checkpoint),
        "--dtype", args.dtype, "--suite", "ruler", "--lengths", args.length, "--samples", str(args.samples),
        "-k", args.tasks, "--full", "--signal", "both", "--batch-size", str(args.batch_size),
        "--journal", str(args.work / "journal"), "--report-json", str(args.work / f"{name}.json"),
    ]  # fmt: skip
    with (args.work / f"{name}.log").open("w") as log:
        subprocess.run(command, cwd=REPOSITORY, stdout=log, stderr=log, check=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all changes and print the table; return 1 if the limit is exceeded, else 0."""
    args = _parse(arguments)
    args.work.mkdir(parents=True, exist_ok=True)
    if not args.table:
        for name in args.only or CHANGES:
            _measure(args, name)
    return 0 if print_table(
        args.work, args.checkpoint, planned=args.planned, replications=args.replications, screen=args.screen
    ) else 1  # fmt: skip


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("checkpoint", type=Path, help="directory of a checkpoint that answers some of the tasks")
    add("--work", type=Path, required=True, help="folder for the changed checkpoints, journal, reports and logs")
    add("--only", nargs="+", choices=CHANGES, help="measure only these changes")
    add("--table", action="store_true", help="measure nothing, and read the pairs that are finished")
    add("--tasks", default="niah_multikey_1", help="tasks to measure, as pytest's -k (default: niah_multikey_1)")
    add("--length", default="512", help="the length of all samples (default: 512)")
    add("--samples", type=int, default=200, help="samples of each task (default: 200)")
    add("--dtype", default="float32", help="number format (default: float32)")
    add("--batch-size", type=int, default=8, help="prompts in a pass (default: 8)")
    add("--planned", type=int, default=1000, help="samples of a drawn panel (default: 1000)")
    add("--replications", type=int, default=2000, help="drawn panels for every line (default: 2000)")
    add("--screen", type=int, default=64, help="samples of a screen (default: 64)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
