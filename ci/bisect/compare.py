"""What a search asks of a checkpoint, and the suite that answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.bisect.search import StepVerdict
from ci.suite_process import Ran, run_suite
from fixtures.atomic_files import write_file
from fixtures.checkpoints.checkpoint import CheckpointError, read_checkpoint
from fixtures.seeding import stable_hash

CASES = "tests_longctx"
# What is not yet a loss, and what is one: shares of the drop between the two ends.
CLEAR, DROP = 0.25, 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A [regression] table. `drop` and `clear` are points; `population`: about the planned samples only."""

    confidence: float
    drop: float = 2.0
    clear: float | None = None
    population: bool = False

    def as_toml(self) -> str:
        clear = "" if self.clear is None else f"clear = {self.clear!r}\n"
        return (
            f"[verdict]\nconfidence = {self.confidence!r}\n\n[regression]\ndrop = {self.drop!r}\n{clear}"
            f'population = {str(self.population).lower()}\ncases = "report"\nblocking = false\n'
        )


def search_bounds(lost_points: float, *, alpha: float) -> Bounds:
    """Of a step on the way to a loss of so many points, wrong with probability at most `alpha`."""
    return Bounds(confidence=1 - alpha, drop=DROP * lost_points, clear=CLEAR * lost_points, population=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """How the suite is called: in `folder` its reports and logs are kept, `options` are the user's own."""

    folder: Path
    options: Sequence[str]
    samples: int

    def compare(
        self, model: Path, baseline: Path, bounds: Bounds, *, cases: Sequence[str] = (), samples: int = 0,
        full: bool = False,
    ) -> Ran:  # fmt: skip
        """Runs the cases (all that the options select) on both, sample by sample; raises CheckpointError."""
        prints = [
            read_checkpoint(str(path), option=option).fingerprint
            for path, option in ((model, "--model"), (baseline, "--baseline"))
        ]
        text = bounds.as_toml()
        asked = [
            *(f"{CASES}/{case.partition('[')[0]}.py::{case}" for case in cases),
            *self.options, "--samples", str(samples or self.samples), *(["--full"] if full else []),
        ]  # fmt: skip
        name = f"{model.name}-{stable_hash(*prints, text, *asked):016x}"
        gates = self.folder / f"{name}.toml"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(gates, text.encode())
        return run_suite(
            [*asked, "--model", str(model), "--baseline", str(baseline), "--thresholds", str(gates)],
            report=self.folder / f"{name}.json",
            log=self.folder / f"{name}.log",
        )


def asked(
    suite: Suite, model: Path, baseline: Path, bounds: Bounds, cases: Sequence[str]
) -> tuple[StepVerdict, Ran | None]:
    """A checkpoint against the good one; what cannot be measured is skipped, with the reason."""
    try:
        ran = suite.compare(model, baseline, bounds, cases=cases)
    except CheckpointError as error:
        return StepVerdict(word="skipped", reason=str(error)), None
    return answer(ran, bounds), ran


def answer(ran: Ran, bounds: Bounds) -> StepVerdict:
    """What a comparison says of its model."""
    gate = comparison(ran.report)
    if gate is None:
        return StepVerdict(word="skipped", reason=ran.reason or "the run compared nothing")
    if gate["measured"] is None:
        return StepVerdict(word="skipped", reason=gate["reason"])
    assert bounds.clear is not None
    # Undecided only where the run was told to stop early: then the nearer side.
    half_way = -(bounds.drop + bounds.clear) / 2
    lost = {"fail": True, "pass": False}.get(gate["verdict"], gate["measured"] <= half_way)
    return StepVerdict(
        word="bad" if lost else "good",
        difference=gate["measured"],
        interval=(gate["interval"][0], gate["interval"][1]),
        pairs=gate["samples"],
    )


def comparison(report: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The report's one regression gate."""
    gates = report["gates"] if report else []
    return next((gate for gate in gates if gate["kind"] == "regression"), None)
