"""Summaries of runs with made-up answers; the code that scores, evaluates and reports them is the real one."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any, get_args

from longctx.fixtures.checkpoints.checkpoint import Checkpoint
from longctx.fixtures.records import (
    BaselineAnswer,
    Case,
    CaseResult,
    EngineFacts,
    Excerpt,
    FailureKind,
    Options,
    Outcome,
    Score,
)
from longctx.fixtures.tasks import NAMED_SUITES, TASKS
from longctx.plugins.config.run_facts import Baseline
from longctx.plugins.report.document import RunSummary
from longctx.plugins.verdicts.evaluate import Measured
from longctx.plugins.verdicts.evaluation import evaluate
from longctx.plugins.verdicts.hypotheses import PanelKey, build_panels
from longctx.plugins.verdicts.panels import Panel
from tests.helpers import workers
from tests.helpers.outcomes import case_of, generation_of

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
# How much more frequent than the others these kinds of failure are.
WEIGHTS = {"incomplete": 5, "distractor": 4, "wrong": 6, "copied": 2}
LENGTHS = (4096, 8192, 16384, 32768)
CHECKPOINT = Checkpoint(
    name="step_1000", path="/models/run/step_1000", architecture="MadeUpForCausalLM", model_type="made-up",
    claimed_length=131072, dtype="bfloat16", parameters=7_000_000_000, weight_bytes=14_000_000_000,
    fingerprint="f" * 32, config={}, calibration=None,
)  # fmt: skip
FACTS = EngineFacts(
    engine="hf", device="cuda:0", dtype="bfloat16", attention="sdpa", batch_size=0, prefill="whole", reuse="prefixes",
    hardware="none",
)  # fmt: skip
# Answers that could break a report.
NASTY = (
    "<script>document.title='run'</script>", "</script><img src=x onerror=alert(1)>", "&lt;b&gt; &amp; &#x3c;i&#62;",
    "\u202egnp.exe \u2066\u200f\u061c", "\ud800 and \udfff", "a\x00b\x1b[31mred", "]]>--><!--", "\u2028\u2029\ufeff",
    "| a | b |\n|---|---|\n`code` **bold** [x](javascript:alert(1))", "long " * 20_000, "${7*7}{{ 7*7 }}{% raw %}",
)  # fmt: skip


def options_of(**changed: Any) -> Options:
    """Return the options of a made-up run."""
    settings = {"suite": "all", "lengths": LENGTHS, "samples": 20, "device": "auto", "journal": "/nonexistent"}
    return workers.options_of(CHECKPOINT.path, **settings | changed)


def cases_of(options: Options) -> tuple[Case, ...]:
    """Return all cases that the options select."""
    return tuple(
        case_of(task.name, length, options.samples, id=f"test_{task.suite}[{task.name}-{length}]", generation_tokens=32)
        for task in TASKS.values()
        if options.suite == task.suite or (options.suite == "all" and task.suite not in NAMED_SUITES)
        for length in options.lengths
    )


def accuracy_of(case: Case, lengths: tuple[int, ...]) -> float:
    """Return how often the made-up model is right, 0 to 1: always at the shortest length, less at longer ones."""
    rank = lengths.index(case.length) / max(1, len(lengths) - 1)
    weakness = Random(case.task).random()
    return max(0.0, min(1.0, 1.02 - rank**2 * (0.15 + 0.6 * weakness) - 0.15 * weakness**2))


def outcome_of(case: Case, index: int, accuracy: float, text: str | None, random: Random) -> Outcome:
    """Return a scored sample; `text` replaces the answer but not its score."""
    reference, depth = f"value-{random.randrange(10**6)}", random.random()
    is_right = random.random() < accuracy * (1.12 - 0.3 * depth * (1 - depth))
    failure = random.choices(KINDS, [WEIGHTS.get(kind, 1) for kind in KINDS])[0]
    value = 1.0 if is_right else 0.5 if failure == "incomplete" else 0.0
    answer = f"The answer is {reference}." if is_right else f"It is value-{random.randrange(10**6)}, I believe."
    return Outcome(
        index=index,
        score=Score(value=value, parts={reference: value}, failure=None if is_right else failure),
        generation=generation_of(answer if text is None else text, case.length, 9, seconds=0.01),
        references=(reference,),
        depths=(depth,),
        excerpt=None if is_right and index > 2 else Excerpt(
            question=f"What is the value of key {index}?", head="The grass is green. The sky is blue. " * 4,
            before="Here we go. There and back again. One of the special values is ", needle=reference,
            after=". The grass is green again.", tail="The sun is yellow. Here we go. " * 4,
        ),
    )  # fmt: skip


def result_of(case: Case, lengths: tuple[int, ...], texts: tuple[str, ...], paired: bool) -> CaseResult:
    """Return a case's result with all its samples; with `paired`, the baseline scored better on some of them."""
    random = Random(f"{case.task}-{case.length}")
    accuracy = accuracy_of(case, lengths)
    outcomes = tuple(
        outcome_of(case, index, accuracy, texts[index % len(texts)] if texts else None, random)
        for index in range(case.samples)
    )
    if not paired:
        return CaseResult(case=case, outcomes=outcomes, seconds=1.0)
    draws = [random.random() for _ in outcomes]
    baseline = tuple(
        1.0 if draw < 0.10 else 0.0 if draw > 0.97 else outcome.score.value
        for outcome, draw in zip(outcomes, draws, strict=True)
    )
    flipped = [outcome for outcome, score in zip(outcomes, baseline, strict=True) if score != outcome.score.value]
    answers = tuple(
        BaselineAnswer(index=outcome.index, text=f"I say {outcome.references[0]}", failure=None) for outcome in flipped
    )
    return CaseResult(case=case, outcomes=outcomes, seconds=1.0, baseline=baseline, flipped=answers)


def first_samples(by_key: Mapping[PanelKey, Panel], result: CaseResult, most: int) -> CaseResult:
    """Return the result with only those samples that are among the first `most` of their panel's queue."""
    order = by_key[result.case.family, result.case.length].order[:most]
    by_index = {outcome.index: outcome for outcome in result.outcomes}
    return replace(result, outcomes=tuple(by_index[ref.sample_index] for ref in order if ref.case_id == result.case.id))


def run_summary(*, results: Mapping[str, CaseResult] | None = None, **changed: Any) -> RunSummary:
    """Return the summary of a run with these options, made once for all tests; see `_summary` for the others.

    Its evaluation, which takes longest, does not depend on the model's name nor on the step.
    """
    if results is not None:
        return _summary(results=results, **changed)
    names = {name: changed.pop(name) for name in ("step", "model", "model_path") if name in changed}
    summary = _cached_summary(**changed)
    options = replace(summary.run.options, **names)
    checkpoint = replace(summary.run.checkpoint, path=options.model_path)
    return replace(summary, run=replace(summary.run, options=options, checkpoint=checkpoint))


def _summary(
    *,
    texts: tuple[str, ...] = (),
    paired: bool = False,
    results: Mapping[str, CaseResult] | None = None,
    most: int | None = None,
    **changed: Any,
) -> RunSummary:
    """Return the summary of a run with these options; `texts` are the model's answers, in turn.

    With `paired`, the run has a baseline. With `most`, only so many samples of every panel's queue were answered.
    """
    options = options_of(**changed)
    cases = cases_of(options)
    baseline = Baseline(name="runs/step_500", fingerprint="b" * 32, journal="/nonexistent", checkpoint=CHECKPOINT)
    checkpoint = replace(CHECKPOINT, path=options.model_path)
    run = workers.run_with(options, checkpoint=checkpoint, cases=cases, baseline=baseline if paired else None)
    measured = results or {case.id: result_of(case, options.lengths, texts, paired) for case in cases}
    scope = run.scope(cases)
    if most is not None:
        by_key = build_panels(run.thresholds, scope)
        measured = {case_id: first_samples(by_key, result, most) for case_id, result in measured.items()}
    return RunSummary(
        run=run,
        evaluation=evaluate(run.thresholds, Measured(scope=scope, results=measured)),
        facts=FACTS,
        execution={"engine": "hf"},
        computed_samples=sum(case.samples for case in cases),
        started="2026-01-01T00:00:00+00:00",
        seconds=12.5,
    )


_cached_summary = lru_cache(maxsize=8)(_summary)


def shown(score: float | None) -> str:
    """Return a score as all reports show it."""
    return "-" if score is None else f"{score:.1f}"


def markdown_rows(markdown: str) -> dict[str, list[str]]:
    """Return the cells of Markdown tables by the first cell of their row."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in markdown.splitlines() if line.startswith("| ")]
    return {row[0].strip().replace("\\", "").strip("*"): [cell.strip() for cell in row[1:]] for row in rows}
