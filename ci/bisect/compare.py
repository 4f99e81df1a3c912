"""Compare two checkpoints in one pytest run of the suite, and read the verdict from its report."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from longctx.ci.checkpoint_dirs import fingerprint_of
from longctx.ci.launch import Execution
from longctx.ci.suite_process import SuiteRun, run_suite
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.records.report import JsonReport, ReportGate
from longctx.fixtures.seeding import stable_hash

# The distance between the seed of the survey and that of the search. Few users have two seeds at this distance.
SURVEY_SEED_DISTANCE = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The [regression] table of a comparison's thresholds file."""

    confidence: float
    """Probability that the verdict is right, 0 to 1."""
    drop_points: float = 2.0
    """Loss, in points, from which the checkpoint is bad. Up to half of it it is good."""

    def as_toml(self) -> str:
        return (
            f"[verdict]\nconfidence = {self.confidence!r}\n\n[regression]\ndrop = {self.drop_points!r}\n"
            'about = "samples"\ncases = "report"\nblocking = false\n'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The suite as the user called it: its options and a folder for reports, logs and thresholds files."""

    folder: Path
    options: Sequence[str]
    """The user's pytest options, passed on unchanged."""
    samples: int
    """Most samples of a case."""
    execution: Execution = field(default_factory=Execution)
    """Runs pytest, and several runs at a time that share a comparison."""
    _fingerprints: dict[Path, str] = field(default_factory=dict)
    """The fingerprints of all checkpoints that were compared, by path."""
    _journal_fingerprints: dict[str, str] = field(default_factory=dict)
    """Those under which the journal has their results, by those of the directories."""

    @property
    def survey_seed(self) -> list[str]:
        """The option that draws other samples than all comparisons but the survey; empty for an unreadable --seed."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--seed", default="0")
        seed = parser.parse_known_args(list(self.options))[0].seed
        return ["--seed", str(int(seed) + SURVEY_SEED_DISTANCE)] if seed.isdecimal() else []

    def compare(
        self, model: Path, baseline: Path, bounds: Bounds, *, cases: Sequence[str] = (), samples: int = 0,
        full: bool = False, shared: bool = False, is_survey: bool = False, only: Sequence[str] = (),
    ) -> SuiteRun:  # fmt: skip
        """Run cases on two checkpoints and compare them sample by sample.

        Without `cases` the run has all that the user's options select; `samples` 0 means the suite's number. A survey
        has samples of its own; `only` are values of `--only-samples`. The same comparison runs once: its report is read
        afterwards. If several runs are allowed at a time, they share a full comparison of all samples through the
        journal, and one that is `shared`. Raises CheckpointError.
        """
        fingerprints = [self.fingerprint(model, option="--model"), self.fingerprint(baseline, option="--baseline")]
        thresholds = bounds.as_toml()
        selection = [*cases, *self.options, "--samples", str(samples or self.samples)]
        if full:
            selection.append("--full")
        if is_survey:
            selection += self.survey_seed
        selection += [f"--only-samples={text}" for text in only]
        name = f"{model.name}-{stable_hash(*fingerprints, thresholds, *selection):016x}"
        thresholds_path = self.folder / f"{name}.toml"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(thresholds_path, thresholds.encode())
        arguments = [*selection, "--model", str(model), "--baseline", str(baseline)]
        arguments += ["--thresholds", str(thresholds_path)]
        if only or not (full or shared) or (self.folder / f"{name}.json").exists():
            return self._run(arguments, name, fingerprints)
        parts = [name] + [f"{name}.{number}" for number in range(2, self.execution.parallel + 1)]
        running = [self.execution.submit(self._run, arguments, part, fingerprints) for part in parts]
        run, *_ = [part.result() for part in running]
        return run

    def _run(self, arguments: Sequence[str], name: str, fingerprints: Sequence[str]) -> SuiteRun:
        report, executor = self.folder / f"{name}.json", self.execution.executor
        run = run_suite(arguments, report=report, fingerprints=fingerprints, executor=executor)
        for model in run.report.models if run.report else ():
            # They differ for adapters and raw checkpoints, which the run makes a model of.
            source = model.source.fingerprint if model.source else model.fingerprint
            self._journal_fingerprints[source] = model.fingerprint
        return run

    def fingerprint(self, path: Path, *, option: str = "--model") -> str:
        """Return a checkpoint's fingerprint; raise CheckpointError if it cannot be read or changed in the search."""
        fingerprint = fingerprint_of(path, option=option, options=self.options)
        if self._fingerprints.setdefault(path, fingerprint) != fingerprint:
            raise CheckpointError(
                f"{option}: {path} was replaced during the search; give each checkpoint a directory of its own, "
                "and start again"
            )
        return fingerprint

    def journal_fingerprint(self, path: Path) -> str:
        """Return the fingerprint under which the journal has a checkpoint's results; raise CheckpointError."""
        fingerprint = self.fingerprint(path)
        return self._journal_fingerprints.get(fingerprint, fingerprint)


def regression_gate(report: JsonReport | None) -> ReportGate | None:
    """Return the report's only regression gate, None if it has no such gate."""
    gates = report.gates if report else []
    return next((gate for gate in gates if gate.kind == "regression"), None)
