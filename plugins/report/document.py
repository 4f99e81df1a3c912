"""The run as one plain document: the JSON report, from which every other report is made.

Scores are 0 to 100 here, lengths are tokens, and a value that was not measured is None.
"""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec
from msgspec import structs

from longctx.fixtures.checkpoints.consistency import text_config
from longctx.fixtures.checkpoints.steps import step_of
from longctx.fixtures.records import Case, CaseResult, FailureKind, Generation, Outcome, PropertyFinding, Verdict
from longctx.fixtures.records.report import (
    DepthScore,
    JsonReport,
    ReportCase,
    ReportGate,
    ReportModel,
    ReportRun,
    WrongExample,
)
from longctx.fixtures.records.results import EngineFacts, GateFacts
from longctx.fixtures.thinking import begins_with_thought
from longctx.plugins.config.run_facts import RunFacts
from longctx.plugins.evidence.points import to_points
from longctx.plugins.report.sections.comparison import regression
from longctx.plugins.report.sections.engine import server_notes, tokens_of
from longctx.plugins.report.sections.gates import diagnosis_text, reason_text, run_verdict
from longctx.plugins.report.sections.likelihood import likelihood
from longctx.plugins.report.sections.ruler import ruler_summary
from longctx.plugins.report.sections.suites import (
    CUT_PART,
    QUESTIONS_TEST,
    frontier,
    helmet,
    question_sets,
    wording_twins,
)
from longctx.plugins.report.tables import DEPTH_BINS
from longctx.plugins.verdicts.diagnoses import case_blocks
from longctx.plugins.verdicts.evaluate import blocks
from longctx.plugins.verdicts.evaluation import Evaluation
from longctx.plugins.verdicts.selection import named_gates

MOST_EXAMPLES = 3
EXAMPLE_CHARACTERS = 200
CASE_FACTS = ("id", "suite", "category", "task", "length", "source", "version", "group", "left_out")
ENGINE_FACTS = ("dtype", "attention", "engine", "prefill", "reuse", "batch_size")
PACKAGES = ("pytest", "pytest-xdist", "transformers", "torch", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A finished run, from which its reports are made."""

    run: RunFacts
    evaluation: Evaluation
    facts: EngineFacts | None
    """The engine's settings and hardware; None if no sample needed a model."""
    execution: Mapping[str, str] | None
    """The execution path, which is part of the journal's key; None if no sample needed a model."""
    baseline_execution: Mapping[str, str] | None = None
    """The same of the baseline; None without one, and for a baseline that is not run again."""
    computed_samples: int
    """The number of samples that were not in the journal before this run."""
    worker_seconds: Mapping[str, float] = field(default_factory=dict)
    """The time of all workers together, by activity."""
    invariance: Sequence[PropertyFinding] | None = None
    started: str
    """ISO 8601, in UTC."""
    seconds: float
    command: str = ""
    """The command line of the run; empty if the run has none."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """The file of every report that the run writes, by the option that asks for it, such as `report_json`."""
    exit_code: int | None = None
    """The exit code of the process before its reports are written; None if the verdicts alone decide it."""

    @property
    def generations(self) -> list[Generation]:
        """The model's answers to all samples that the verdicts rest on."""
        results = self.evaluation.measured.results.values()
        return [outcome.generation for result in results for outcome in result.outcomes]


def document(summary: RunSummary) -> JsonReport:
    evaluation, run = summary.evaluation, summary.run
    findings, narrowed = summary.invariance, evaluation.is_narrowed(run.wanted)
    named = named_gates(evaluation.thresholds, evaluation.measured.scope)
    report = JsonReport(
        schema="longctx-report/1",
        model=_model(summary),
        run=_run(summary),
        cases=tuple(_case(evaluation, case) for case in evaluation.measured.scope.cases),
        gates=tuple(
            _gate(verdict, fails=blocks(verdict, narrowed=narrowed), cases=named[verdict.name].cases)
            for verdict in evaluation.verdicts
        ),
        ruler=ruler_summary(run, evaluation),
        helmet=helmet(evaluation, run),
        frontier=frontier(evaluation.measured, run.cases),
        question_sets=question_sets(evaluation.measured, run.cases),
        wordings=wording_twins(evaluation.measured) or None,
        regression=regression(evaluation, run, summary.baseline_execution, summary.files.get("report_json")),
        likelihood=likelihood(evaluation),
        invariance=None if findings is None else tuple(findings),
        server=server_notes(summary.generations, summary.facts),
    )
    verdict = run_verdict(report, summary.exit_code, summary.files.get("report_html"))
    return structs.replace(report, verdict=verdict)


def _gate(verdict: Verdict, *, fails: bool, cases: tuple[str, ...]) -> ReportGate:
    known = {name: getattr(verdict, name) for name in GateFacts.__struct_fields__}
    if verdict.change is not None:
        known |= {"changed": verdict.change.share, "changed_interval": verdict.change.share_interval}
    return ReportGate(**known, reason=reason_text(verdict), fails=fails, cases=cases)


def _model(summary: RunSummary) -> ReportModel:
    checkpoint, facts, texts = summary.run.checkpoint, summary.facts, [one.text for one in summary.generations]
    return ReportModel(
        name=summary.run.options.model,
        path=checkpoint.path if checkpoint.source is None else checkpoint.source.path,
        fingerprint=checkpoint.fingerprint,
        claimed_length=checkpoint.claimed_length,
        architecture=checkpoint.architecture,
        parameters=checkpoint.parameters,
        **{name: getattr(facts, name, None) for name in ENGINE_FACTS},
        execution=summary.execution and dict(summary.execution),
        chat_template=summary.run.chat,
        calibration=checkpoint.calibration,
        source=checkpoint.source,
        quantization=quantization(checkpoint.config),
        thought=(facts.thought or None) if facts else None,
        thought_warning=summary.run.thought_warning or None,
        checkpoint_warnings=summary.run.checkpoint_warnings,
        answers_with_thought=0 if summary.run.options.thinking_budget else sum(map(begins_with_thought, texts)),
    )


def quantization(config: Mapping[str, Any]) -> str | None:
    """Return the quantization that a config declares, such as "gptq, 4 bits"; None if it declares none."""
    declared = config.get("quantization_config") or text_config(config).get("quantization_config")
    if not isinstance(declared, dict) or not declared:
        return None
    method, bits = str(declared.get("quant_method", "of an unnamed kind")), declared.get("bits")
    return f"{method}, {bits} bits" if bits else method


def _run(summary: RunSummary) -> ReportRun:
    run, measured = summary.run, summary.evaluation.measured
    cases = measured.scope.cases
    endings = [one.has_ended for one in summary.generations if one.has_ended is not None]
    return ReportRun(
        started=summary.started,
        seconds=round(summary.seconds, 3),
        command=summary.command,
        step=run.options.step if run.options.step is not None else step_of(run.options.model_path),
        seed=run.options.seed,
        corpora=run.corpora,
        prompts=run.prompts,
        samples=run.samples,
        options=msgspec.to_builtins(run.options),
        versions={"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        hardware=summary.facts.hardware if summary.facts else None,
        partial=summary.evaluation.is_narrowed(run.wanted) or any(c.id not in measured.results for c in cases),
        interrupted=bool(measured.unfinished),
        deselected=len(run.available) - len(cases),
        tokens=tokens_of(measured, summary.generations),
        confidence=summary.evaluation.thresholds.verdict.confidence,
        computed_samples=summary.computed_samples,
        answers_to_the_end=len(endings),
        ended_answers=sum(endings),
        worker_seconds={name: round(seconds, 3) for name, seconds in summary.worker_seconds.items()},
    )


def _case(evaluation: Evaluation, case: Case) -> ReportCase:
    """Return a case's entry, with the results of its tests against its floor and the baseline."""
    entry = _case_entry(case, evaluation.measured.results.get(case.id))
    is_unfinished = case.id in evaluation.measured.unfinished
    if entry.verdict == "undecided" and (is_unfinished or evaluation.measured.scope.signal == "likelihood"):
        entry = structs.replace(entry, verdict="not measured")
    if is_unfinished:
        entry = structs.replace(entry, decided_by=f"interrupted after {entry.samples} of {entry.planned} samples")
    diagnosis = evaluation.diagnoses.get(case.id)
    if diagnosis is None:
        return entry
    return structs.replace(
        entry,
        interval=diagnosis.interval,
        floor=diagnosis.floor,
        verdict="fail" if diagnosis.bad else entry.verdict,
        decided_by=diagnosis_text(diagnosis) or entry.decided_by,
        fails=entry.fails or case_blocks(diagnosis, evaluation.thresholds),
        haystacks=diagnosis.haystacks,
        haystack_correlation=diagnosis.correlation and diagnosis.correlation.value,
    )


def _case_entry(case: Case, result: CaseResult | None) -> ReportCase:
    """Return a case's entry before it is tested against its floor and the baseline; without a result it is an error."""
    outcomes = result.outcomes if result else ()
    score = result.score if result else None
    error = result.error if result else "no result came back"
    generations = [outcome.generation for outcome in outcomes if outcome.generation.prompt_tokens]
    fills = [100 * (generation.prompt_tokens + case.generation_tokens) / case.length for generation in generations]
    cut_texts = sum(CUT_PART in outcome.score.parts for outcome in outcomes)
    failures, examples = Counter[FailureKind](), list[WrongExample]()
    for outcome in outcomes:
        if (failure := outcome.score.failure) is None:
            continue
        failures[failure] += 1
        if failures.total() <= MOST_EXAMPLES:
            excerpt = outcome.excerpt if case.source == "own" else None
            examples.append(WrongExample(
                index=outcome.index,
                question=excerpt.question[-EXAMPLE_CHARACTERS:] if excerpt else "",
                failure=failure,
                expected=outcome.references,
                got=outcome.generation.text[:EXAMPLE_CHARACTERS],
                depth=outcome.depths[0] if outcome.depths else None,
            ))  # fmt: skip
    decided_by = "all planned samples"
    if len(outcomes) != len(case.planned):
        decided_by = f"{len(outcomes)} of {len(case.planned)} samples, when its gates were decided"
    return ReportCase(
        **{name: getattr(case, name) for name in CASE_FACTS},
        score=None if score is None else to_points(score),
        interval=None,
        samples=len(outcomes),
        planned=len(case.planned),
        fill=(median(fills), min(fills)) if fills else None,
        cut=100 * cut_texts / len(outcomes) if case.id.startswith(QUESTIONS_TEST) and outcomes else None,
        floor=None,
        verdict="error" if error else "undecided" if score is None else "pass",
        decided_by=None if score is None else decided_by,
        by_depth=by_depth(outcomes),
        parts=part_means(outcomes) if case.suite == "helmet" else {},
        failures=dict(sorted(failures.items())),
        examples=tuple(examples),
        error=error,
        fails=error is not None,
        seconds=round(result.seconds, 3) if result else None,
    )


def part_means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the means of the parts that every score has, if they are several; parts by reference are no names."""
    if not outcomes:
        return {}
    names = [name for name in outcomes[0].score.parts if name not in outcomes[0].references]
    for outcome in outcomes:
        names = [name for name in names if name in outcome.score.parts]
    if len(names) < 2:
        return {}
    return {name: to_points(fmean(outcome.score.parts[name] for outcome in outcomes)) for name in names}


def by_depth(outcomes: Sequence[Outcome]) -> tuple[DepthScore, ...]:
    """Return the mean score of the references in every tenth of the context; `depth` is the middle of the tenth.

    Every required reference counts, or the first one if the references are alternatives.
    """
    scores: dict[int, list[float]] = {}
    for outcome in outcomes:
        if not outcome.depths:
            continue
        parts = outcome.score.parts
        depths, values = outcome.depths[:1], [outcome.score.value]
        if all(reference in parts for reference in outcome.references):
            depths, values = outcome.depths, [parts[reference] for reference in outcome.references]
        for depth, value in zip(depths, values, strict=False):
            tenth = min(DEPTH_BINS - 1, int(depth * DEPTH_BINS))
            scores.setdefault(tenth, []).append(value)
    tenths = []
    for tenth, values in sorted(scores.items()):
        mean = to_points(sum(values) / len(values))
        tenths.append(DepthScore(depth=(tenth + 0.5) / DEPTH_BINS, score=mean, samples=len(values)))
    return tuple(tenths)
