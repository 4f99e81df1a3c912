"""A training run with drawn scores, and a stand-in for pytest that evaluates them with the code of the gates."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.simulated_panels import task_accuracies
from longctx.ci.suite_process import SuiteRun
from longctx.fixtures.records import Case, CaseResult, Generation, Outcome, Score
from longctx.fixtures.tasks import FAMILIES, TASKS
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.sequential import Hypothesis, InterimAnalysis
from longctx.plugins.thresholds.records import Gate, Thresholds
from longctx.plugins.verdicts import regression
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured, blocks
from longctx.plugins.verdicts.hypotheses import PanelKey, Scope, build_panels
from longctx.plugins.verdicts.panels import ModelRole, Panel, PanelStatus
from longctx.plugins.verdicts.regression import regression_verdicts
from tests.helpers.report_records import report_of

LENGTH = 4096
MEAN = 0.88
# Samples that are answered between two looks, as by several workers.
BATCH = 128
# The pairs on which a comparison is tried first.
FEW_PAIRS = 512
GENERATION = Generation(
    text="", prompt_tokens=1, generated_tokens=1, computed_tokens=2, reused_tokens=0, finish="stop", seconds=0.0
)
RULER = {name: task.category for name, task in TASKS.items() if task.suite == "ruler"}
Bools = NDArray[np.bool_]
Ints = NDArray[np.intp]
Known = dict[ModelRole, dict[SampleRef, float]]
"""The scores of a checkpoint and of its baseline."""
PANELS: dict[tuple[tuple[Gate, ...], int, int, bool], dict[PanelKey, Panel]] = {}
"""The panels of all runs so far by their gates, samples and series, without a baseline and with one."""


class _Outcomes(dict[tuple[int, float], Outcome]):
    """The outcomes of all runs so far by their sample's index and score."""

    def __missing__(self, key: tuple[int, float]) -> Outcome:
        index, score = key
        self[key] = Outcome(index=index, score=Score(value=score), generation=GENERATION, references=(), depths=())
        return self[key]


OUTCOMES = _Outcomes()


class SimulatedRun:
    """The answers of one training run: they are drawn when a checkpoint is first measured."""

    def __init__(self, *, samples: int, flips: float, correlation: float, loss: Callable[[int], float], seed: int):
        self.rng = np.random.default_rng(seed)
        self.cases = [
            Case(
                id=f"test_ruler[{task}-4k]", suite="ruler", category=category, task=task, length=LENGTH,
                samples=samples, source="archive", generation_tokens=32, shares_haystacks=TASKS[task].shares_haystacks,
            )
            for task, category in RULER.items()
        ]  # fmt: skip
        refs = [SampleRef(case.id, index) for case in self.cases for index in range(samples)]
        self.places = {ref: place for place, ref in enumerate(refs)}
        # The number of its haystack by sample.
        numbers: dict[tuple[str, int], int] = {}
        self.haystacks = np.array(
            [
                numbers.setdefault((case.id, case.haystack(index)), len(numbers))
                for case in self.cases
                for index in range(samples)
            ]
        )
        accuracies = task_accuracies(self.rng, MEAN, len(self.cases)).repeat(samples)
        self.solved: Bools = self.rng.random(len(refs)) < accuracies
        self.losing = self.rng.permutation(np.flatnonzero(self.solved))
        self.gaining = np.random.default_rng([seed, 8]).permutation(np.flatnonzero(~self.solved))
        self.flips, self.shared, self.loss = flips / 2, correlation**0.5, loss
        self._right: dict[int, Bools] = {}

    def right(self, step: int) -> Bools:
        """Return which of all samples a step answers rightly, in the order of `places`."""
        if step not in self._right:
            solved = self.solved.copy()
            count = round(self.loss(step) / 100 * solved.size)
            if count >= 0:
                solved[self.losing[:count]] = False
            else:
                solved[self.gaining[:-count]] = True
            together = self.rng.random(self.haystacks.max() + 1)[self.haystacks]
            draws = np.where(self.rng.random(solved.size) < self.shared, together, self.rng.random(solved.size))
            self._right[step] = solved ^ (draws < self.flips)
        return self._right[step]


class SimulatedSuite:
    """Stand in for pytest: answer the samples that the panels ask for, and evaluate them.

    `samples` of each task are planned, unless a run asks for more. With `verdicts_only` they are all answered at once,
    those of a baseline as far as the comparison needs them. That changes no verdict, because verdicts rest on the start
    of the queue alone.
    """

    def __init__(self, training: SimulatedRun, thresholds: Thresholds, *, samples: int, verdicts_only: bool):
        self.training = training
        self.samples = samples
        self.verdicts_only = verdicts_only
        self.thresholds = thresholds
        self.journal: dict[int, dict[SampleRef, float]] = {}
        self.runs = 0
        # By the number of samples, the places of a panel's samples among all answers.
        self._places: dict[int, Ints] = {}

    @property
    def answered(self) -> int:
        """The number of answers of all checkpoints."""
        return sum(map(len, self.journal.values()))

    def __call__(self, arguments: Sequence[str], *, report: Path, **_: Any) -> SuiteRun:
        self.runs += 1
        option = {name: value for name, value in itertools.pairwise(arguments) if name.startswith("--")}
        baseline = _step(option["--baseline"]) if "--baseline" in option else None
        samples = int(option.get("--samples", self.samples))
        written = self._report(_step(option["--model"]), baseline, samples, series=int(option["--series"]))
        report.parent.mkdir(parents=True, exist_ok=True)
        report.touch()
        failed = any(gate["fails"] for gate in written["gates"])
        return SuiteRun(exit_code=int(failed), report=report_of(written))

    def _report(self, step: int, baseline: int | None, samples: int, *, series: int) -> dict[str, Any]:
        thresholds, cases = self.thresholds, [replace(case, samples=samples) for case in self.training.cases]
        scope = Scope(
            lengths=(LENGTH,), cases=cases, reference=thresholds.references["base"], ruler_aspects=RULER,
            claimed_length=LENGTH, has_baseline=baseline is not None, series=series, task_families=FAMILIES,
        )  # fmt: skip
        # The order of a panel's samples takes longer than its decisions, and is that of all histories.
        key = thresholds.gates, samples, series, baseline is None
        if key not in PANELS:
            PANELS[key] = build_panels(thresholds, scope)
        panels = PANELS[key]
        (panel,) = panels.values()
        steps: dict[ModelRole, int] = {"model": step}
        if baseline is not None:
            steps["baseline"] = baseline
        if self.verdicts_only:
            known, status = self._answer_at_once(panel, steps)
        else:
            known = {role: self.journal.setdefault(number, {}) for role, number in steps.items()}
            status = self._answer_in_batches(panel, steps, known)
        results = {
            case.id: _result(
                case,
                panel.queue({case.id}).refs[: status.evidence_counts.get(case.id, 0)],
                known,
                status.paired_counts.get(case.id, 0),
            )
            for case in cases
        }
        measured = Measured(scope=scope, results=results)
        # The loss that can be detected is for readers alone, and takes an eighth of the time.
        with patch.object(regression, "detectable_panel_loss", return_value=None):
            return _document(_Evaluator(thresholds, measured, panels, known, status.analyses))

    def _answer_at_once(self, panel: Panel, steps: Mapping[ModelRole, int]) -> tuple[Known, PanelStatus]:
        if len(panel.order) not in self._places:
            self._places[len(panel.order)] = np.array([self.training.places[ref] for ref in panel.order])
        places = self._places[len(panel.order)]
        answers = {
            role: dict(zip(panel.order, self.training.right(number)[places].astype(float).tolist(), strict=True))
            for role, number in steps.items()
        }
        if "baseline" in answers:
            answers["baseline"] = _as_far_as_needed(panel, answers["model"], answers["baseline"])
        return answers, panel.status(answers["model"], baseline=answers.get("baseline"))

    def _answer_in_batches(self, panel: Panel, steps: Mapping[ModelRole, int], known: Known) -> PanelStatus:
        while True:
            status = panel.status(known["model"], baseline=known.get("baseline"))
            if not status.next_samples:
                return status
            for role, ref in status.next_samples[:BATCH]:
                known[role][ref] = float(self.training.right(steps[role])[self.training.places[ref]])


def _as_far_as_needed(
    panel: Panel, model: dict[SampleRef, float], baseline: dict[SampleRef, float]
) -> dict[SampleRef, float]:
    """Return the first scores of a baseline, as many as the verdict takes or twice as many."""
    count = FEW_PAIRS
    while count < len(baseline):
        first = {ref: baseline[ref] for ref in panel.order[:count]}
        if panel.analyze_pairs(panel.comparisons[0], model, first).decision is not None:
            return first
        count *= 2
    return baseline


class _Evaluator(GateEvaluator):
    """The gates of a run whose panels are known, and whose tests the status of the panel has made."""

    def __init__(
        self, thresholds: Thresholds, measured: Measured, panels: dict[PanelKey, Panel], known: Known,
        made: Mapping[Hypothesis, InterimAnalysis],
    ):  # fmt: skip
        # Not that of the base class, which builds the panels and collects the scores again.
        self.thresholds, self.measured, self.panels, self.scores = thresholds, measured, panels, known["model"]
        self._known, self._made = known, made
        self._analyses = {}

    def compared_panels(self) -> Iterator[tuple[Panel, dict[SampleRef, float], dict[SampleRef, float]]]:
        for panel in self.panels.values():
            if panel.comparisons:
                yield panel, self.scores, self._known["baseline"]

    def analysis(self, panel: Panel, hypothesis: Hypothesis) -> InterimAnalysis:
        return self._made.get(hypothesis) or super().analysis(panel, hypothesis)


def _step(path: str) -> int:
    return int(Path(path).name.split("-")[1].split(".")[0])


def _result(case: Case, refs: Sequence[SampleRef], known: Known, paired: int) -> CaseResult:
    scores = known["model"]
    outcomes = tuple(OUTCOMES[ref.sample_index, scores[ref]] for ref in refs)
    baseline = tuple(known["baseline"][ref] for ref in refs[:paired])
    return CaseResult(case=case, outcomes=outcomes, seconds=0.0, baseline=baseline)


def _document(evaluator: GateEvaluator) -> dict[str, Any]:
    """Return the parts of a report that a watch reads."""
    verdicts, results = (*evaluator.verdicts(), *regression_verdicts(evaluator)), evaluator.measured.results
    return {
        "gates": [
            msgspec.to_builtins(verdict)
            | {"fails": blocks(verdict, narrowed=False), "cases": list(results)}
            for verdict in verdicts
        ],
        "cases": [
            {
                "id": case.id, "suite": case.suite, "category": case.category, "task": case.task, "length": case.length,
                "score": result.score and 100 * result.score, "verdict": "pass", "decided_by": "", "error": None,
                "samples": len(result.outcomes), "planned": case.samples, "group": case.group, "fails": False,
            }
            for case, result in ((result.case, result) for result in results.values())
        ],
        "regression": {
            "cases": {
                result.case.id: {
                    "difference": 100 * sum(differences) / len(differences),
                    "pairs": len(differences),
                    "worse": sum(difference < 0 for difference in differences),
                    "better": sum(difference > 0 for difference in differences),
                }
                for result in results.values()
                if (differences := result.differences)
            }
        },
        "ruler": {"effective_length_label": None},
        "run": {
            "tokens": {"computed": None},
            "options": {
                "journal": "", "thresholds": "", "samples": max(result.case.samples for result in results.values()),
            },
        },
        "likelihood": None,
    }  # fmt: skip
