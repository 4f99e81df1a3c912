"""Compare two checkpoints in one run of the suite: any two steps, and the endpoints of a search before all others."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from longctx.ci.bisect.posterior import EndpointVotes
from longctx.ci.checkpoint_dirs import Step, fingerprint_of
from longctx.ci.launch import Execution
from longctx.ci.suite_process import SuiteRun, run_suite
from longctx.fixtures.atomic_files import write_file
from longctx.fixtures.checkpoints.safetensors import CheckpointError
from longctx.fixtures.records.report import JsonReport, ReportGate
from longctx.fixtures.records.report_parts import Interval
from longctx.fixtures.seeding import stable_hash
from longctx.plugins.thresholds.records import Gate

# The distance between the seed of the survey and that of the search. Few users have two seeds at this distance.
SURVEY_SEED_DISTANCE = 1_000_003
# Enough samples to see which case lost most. Other samples then measure its loss: of many cases, the one that lost most
# has probably lost less on other samples, and may have lost nothing.
SURVEY_SAMPLES = 50
# The comparison that stops early has this part of the search's probability of error. With less certainty it would stop
# so soon that the size of the loss, to which all steps are compared, is a guess.
EARLY_SHARE = 0.1
NOT_COMPARED = "the endpoints cannot be compared"


Cases = tuple[str, ...]
"""Ids of cases."""


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


class EndpointsError(Exception):
    """Endpoints between which nothing can be searched; the message is one line."""

    def __init__(self, exit_code: int, line: str):
        super().__init__(line)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The loss between a good and a bad checkpoint on samples of the searched cases."""

    cases: Cases
    """Ids of the searched cases."""
    loss_points: float
    interval: Interval
    """Confidence interval of the difference bad - good, in points: of the models where all samples are known. Neither
    end is positive if a loss is shown."""
    pairs: int
    """Number of samples that both checkpoints answered."""
    score_good: float
    """Mean score of the good checkpoint, 0 to 100."""
    score_bad: float
    """Mean score of the bad checkpoint, 0 to 100."""
    report: JsonReport
    """The suite's report on this comparison."""
    doubt: str = ""
    """One line that says why no loss is shown; empty if one is."""

    @property
    def evidence(self) -> str:
        """The cases, both scores and the difference in one line."""
        low, high = self.interval
        scores = f"{self.score_good:.1f} to {self.score_bad:.1f}"
        others = len(self.cases) - 1
        cases = f"{others + 1} cases, {self.cases[0]} and others" if others else self.cases[0]
        return f"{cases}: {scores}, {-self.loss_points:+.1f} [{low:+.1f}, {high:+.1f}]"


def choose_cases(suite: Suite, good: Step, bad: Step, gate: Gate | None, confidence: float) -> Cases:
    """Return the cases to search on, which a short run over all cases chooses.

    These are the case that lost most or, with a gate, its cases at the length that lost most. Raises EndpointsError if
    nothing could be compared.
    """
    samples = min(suite.samples, SURVEY_SAMPLES)
    bounds = Bounds(confidence=confidence)
    report = _report_of(suite.compare(bad.path, good.path, bounds, samples=samples, full=True, is_survey=True))
    compared = report.regression.cases if report.regression else {}
    differences = {name: case.difference for name, case in compared.items() if case.difference is not None}
    if not differences:
        raise EndpointsError(3, f"{NOT_COMPARED}: {_first_error(report)}")
    if gate is None:
        return (min(differences, key=lambda name: (differences[name], name)),)
    by_length: dict[int, list[str]] = {}
    suite_name, category = ("ruler", gate.aspect) if gate.category is None else ("helmet", gate.category)
    for case in report.cases:
        is_of_gate = case.suite == suite_name and category in (None, case.category)
        if gate.tasks:
            is_of_gate = case.task in gate.tasks
        if is_of_gate and case.id in differences and (not gate.lengths or case.length in gate.lengths):
            by_length.setdefault(case.length, []).append(case.id)
    if not by_length:
        raise EndpointsError(4, f"--gate: no case of {gate.name!r} was run; see --lengths, --suite and -k")
    worst = min(by_length.values(), key=lambda names: sum(differences[name] for name in names) / len(names))
    return tuple(worst)


def measure_endpoints(suite: Suite, good: Step, bad: Step, cases: Cases, confidence: float) -> Endpoints:
    """Compare the endpoints; raise EndpointsError if they cannot be compared.

    The comparison stops once a loss on the planned samples is certain, if it is then also shown for the models behind
    them; else all samples decide.
    """
    early = Bounds(confidence=1 - EARLY_SHARE * (1 - confidence))
    report = _report_of(suite.compare(bad.path, good.path, early, cases=cases, shared=True))
    gate = regression_gate(report)
    has_failed = gate is not None and gate.verdict == "fail"
    if not has_failed or _votes(report).p_value > (1 - confidence) / 2:
        bounds = Bounds(confidence=confidence)
        report = _report_of(suite.compare(bad.path, good.path, bounds, cases=cases, full=True))
    endpoints, votes = _endpoints(report, cases), _votes(report)
    if votes.p_value <= 1 - confidence:
        low, high = endpoints.interval
        return replace(endpoints, interval=(low, min(high, 0.0)))
    opposite = EndpointVotes(worse=votes.better, better=votes.worse)
    is_better = opposite.p_value <= 1 - confidence
    return replace(endpoints, doubt=_doubt(endpoints, good, bad, is_better=is_better))


def _report_of(run: SuiteRun) -> JsonReport:
    """Return the report of a run; raise EndpointsError if it has none."""
    if run.report is None:
        raise EndpointsError(4 if run.exit_code in (4, 5) else 3, f"{NOT_COMPARED}: {run.reason}")
    return run.report


def _endpoints(report: JsonReport, cases: Cases) -> Endpoints:
    """Return the endpoints that a report compares; raise EndpointsError if it compares nothing."""
    gate = regression_gate(report)
    if gate is None or gate.measured is None or gate.interval is None:
        raise EndpointsError(3, f"{NOT_COMPARED}: {gate.reason if gate else 'no case was run'}")
    scores = [case.score for case in report.cases if case.score is not None]
    if not scores:
        raise EndpointsError(3, f"{NOT_COMPARED}: {_first_error(report)}")
    score_bad = sum(scores) / len(scores)
    # The mean of all planned samples is known, which says nothing about the models.
    is_known = gate.interval[0] == gate.interval[1]
    interval = gate.model_interval if is_known and gate.model_interval else gate.interval
    return Endpoints(
        cases=cases, loss_points=-gate.measured, interval=interval, pairs=gate.samples,
        score_good=score_bad - gate.measured, score_bad=score_bad, report=report,
    )  # fmt: skip


def extended(endpoints: Endpoints, suite: Suite, good: Step, bad: Step, confidence: float) -> Endpoints | None:
    """Return the comparison of the endpoints on twice as many samples; None if all are measured or it failed."""
    per_case = -(-endpoints.pairs // len(endpoints.cases))
    if per_case >= suite.samples:
        return None
    samples, bounds = min(suite.samples, 2 * per_case), Bounds(confidence=confidence)
    run = suite.compare(bad.path, good.path, bounds, cases=endpoints.cases, samples=samples, full=True)
    try:
        more = _endpoints(_report_of(run), endpoints.cases)
    except EndpointsError:
        return None
    return replace(more, pairs=max(more.pairs, endpoints.pairs + 1), doubt=endpoints.doubt)


def _votes(report: JsonReport) -> EndpointVotes:
    """Return the haystacks on which the bad endpoint is worse, and those on which it is better.

    All planned samples have a mean, which is lower for one of two equal models. Only what is shown for the models is a
    loss to search for.
    """
    compared = report.regression.cases.values() if report.regression else ()
    return EndpointVotes(
        worse=sum(case.haystacks_worse for case in compared), better=sum(case.haystacks_better for case in compared)
    )


def _doubt(endpoints: Endpoints, good: Step, bad: Step, *, is_better: bool) -> str:
    evidence = endpoints.evidence
    if is_better:
        return f"--bad {bad.name} is better than --good {good.name} ({evidence}); are they the other way round?"
    if endpoints.score_good < 50:
        return f"--good {good.name} is no better than --bad {bad.name} ({evidence}); give an earlier --good"
    return f"--bad {bad.name} is not shown to be worse than --good {good.name} ({evidence}); nothing to search"


def _first_error(report: JsonReport) -> str:
    return next((f"{case.id}: {case.error}" for case in report.cases if case.error), "no case has a pair")
