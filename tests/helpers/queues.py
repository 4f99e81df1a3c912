"""Runs without a model: workers that read known scores in the order of a panel's queue."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from longctx.fixtures.records import Case, CaseResult
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.thresholds.records import Gate, Reference, Thresholds
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured
from longctx.plugins.verdicts.hypotheses import Scope, build_panels
from longctx.plugins.verdicts.panels import ModelRole, Panel, PanelStatus
from longctx.plugins.verdicts.regression import ComparedPanel, PanelDecision, by_gate, decide_together, paired_panels
from tests.helpers.outcomes import outcome_of

LENGTHS = (1024, 2048, 4096)
ASPECTS = {"n1": "retrieval", "n2": "retrieval", "vt": "tracing"}
REFERENCE = Reference(
    source="a model", scores={"mean": 80.0, "retrieval": 90.0, "tracing": 50.0, "aggregation": 50.0, "qa": 50.0}
)
LEVEL = Gate(name="level", kind="level")

Scores = Mapping[SampleRef, float]


def case(task: str, length: int = 1024, samples: int = 4) -> Case:
    return Case(
        id=f"test_ruler[{task}-{length}]", suite="ruler", category=ASPECTS.get(task, "qa"), task=task, length=length,
        samples=samples, source="archive", generation_tokens=8,
    )  # fmt: skip


def result(
    measured_case: Case, *values: float, error: str | None = None, baseline: tuple[float, ...] = ()
) -> CaseResult:
    outcomes = tuple(outcome_of(index, value) for index, value in enumerate(values))
    return CaseResult(case=measured_case, outcomes=outcomes, seconds=1.0, error=error, baseline=baseline)


def thresholds(*gates: Gate) -> Thresholds:
    return Thresholds(references={}, gates=gates)


def draw_scores(panel: Panel, shares: Mapping[str, float], seed: int = 0) -> dict[SampleRef, float]:
    """Return a random score of 0 or 1 for every sample. `shares` gives the probability of a 1 by case id."""
    random = Random(seed)
    return {ref: float(random.random() < shares[ref.case_id]) for ref in panel.order}


def draw_exact_scores(panel: Panel, ones: Mapping[str, int], seed: int = 0) -> dict[SampleRef, float]:
    """Return scores of 0 and 1 for every sample. `ones` gives the exact number of ones by case id."""
    correct_indices = {
        case_id: set(Random(seed + position).sample(range(planned.samples), ones[case_id]))
        for position, (case_id, planned) in enumerate(panel.cases.items())
    }
    return {ref: float(ref.sample_index in correct_indices[ref.case_id]) for ref in panel.order}


@dataclass
class SimulatedRun:
    """A run of one panel whose samples are measured one by one, with scores that are known beforehand."""

    panel: Panel
    """The panel, with its queue and its hypotheses."""
    truth: Mapping[ModelRole, Scores]
    """The scores that the models would reach. A missing sample fails its case; a missing model does not run."""
    final_baseline: Scores | None = None
    """The scores of a baseline that was measured before, if there is one."""
    journal: dict[ModelRole, dict[SampleRef, float]] = field(default_factory=lambda: {"model": {}, "baseline": {}})
    """The scores measured so far."""
    failed: set[str] = field(default_factory=set)
    """The ids of the cases that failed."""

    def status(self) -> PanelStatus:
        running = self.journal["baseline"] if "baseline" in self.truth else None
        baseline = running if self.final_baseline is None else self.final_baseline
        return self.panel.status(
            self.journal["model"], baseline=baseline, final_baseline=self.final_baseline, failed=self.failed
        )

    def measure(self, role: ModelRole, ref: SampleRef) -> None:
        if ref in self.truth[role]:
            self.journal[role][ref] = self.truth[role][ref]
        else:
            self.failed.add(ref.case_id)

    def run_alone(self, most: int | None = None) -> PanelStatus:
        """Measure with one worker until the verdicts are final or `most` samples of the model are measured."""
        while (next_samples := self.status().next_samples) and (most is None or len(self.journal["model"]) < most):
            self.measure(*next_samples[0])
        return self.status()

    def run_ahead(self, most: int | None = None) -> PanelStatus:
        """Measure all samples that are offered at a time; the evidence is that of `run_alone`, in a few steps."""

        def is_open() -> bool:
            return most is None or len(self.journal["model"]) < most

        while (next_samples := self.status().next_samples) and is_open():
            for role, ref in next_samples:
                if is_open():
                    self.measure(role, ref)
        return self.status()

    def run_shared(self, workers: int, random: Random) -> PanelStatus:
        """Measure with several workers of random speeds. A worker may die, or all of them, and lose their samples."""
        speeds = [random.choice((1, 3, 30)) for _ in range(workers)]
        held: dict[int, tuple[ModelRole, SampleRef]] = {}
        status = self.status()
        while status.next_samples:
            claimed = set(held.values())
            free = next((task for task in status.next_samples if task not in claimed), None)
            idle = [worker for worker in range(workers) if worker not in held]
            if idle and free and random.random() < 0.6:
                held[random.choice(idle)] = free
            elif held:
                worker = random.choices(list(held), [speeds[worker] for worker in held])[0]
                task = held.pop(worker)
                if random.random() < 0.9:
                    self.measure(*task)
                    status = self.status()
                if random.random() < 0.02:
                    held.clear()
        for role, ref in held.values():
            self.measure(role, ref)
        return self.status()

    def evidence(self, status: PanelStatus) -> dict[ModelRole, dict[SampleRef, float]]:
        """Return the scores that count as evidence for the verdicts, by model."""
        known: dict[ModelRole, Scores] = {
            "model": self.journal["model"],
            "baseline": self.final_baseline or self.journal["baseline"],
        }
        extents = {"model": status.evidence_counts, "baseline": status.paired_counts}
        return {
            role: {
                ref: scores[ref]
                for name in self.panel.cases
                for ref in self.panel.queue({name}).refs[: extents[role].get(name, 0)]
            }
            for role, scores in known.items()
        }

    def results(self, status: PanelStatus) -> dict[str, CaseResult]:
        """Return the results of all cases by case id, with the evidence only."""
        evidence = self.evidence(status)

        def result_of(planned: Case) -> CaseResult:
            scores = {ref.sample_index: score for ref, score in evidence["model"].items() if ref.case_id == planned.id}
            return CaseResult(
                case=planned,
                outcomes=tuple(outcome_of(index, score) for index, score in scores.items()),
                seconds=0.0,
                error="out of memory" if planned.id in self.failed else None,
                baseline=tuple(score for ref, score in evidence["baseline"].items() if ref.case_id == planned.id),
            )

        return {case_id: result_of(planned) for case_id, planned in self.panel.cases.items()}


def evaluator_of(
    rules: Thresholds,
    scope: Scope,
    shares: Mapping[int, float],
    *,
    most: Mapping[int, int] | None = None,
    baseline: Mapping[int, float] | None = None,
    seed: int = 0,
) -> GateEvaluator:
    """Return the evaluator of a run in which a sample at a length is correct with the probability in `shares`.

    One worker measures in the order of the queue, at most `most` samples of a length. `baseline` gives the
    probabilities of the baseline, if there is one.
    """
    results: dict[str, CaseResult] = {}
    for length, panel in panels_by_length(rules, scope).items():
        truth: dict[ModelRole, Scores] = {"model": draw_scores(panel, dict.fromkeys(panel.cases, shares[length]), seed)}
        if baseline is not None:
            truth["baseline"] = draw_scores(panel, dict.fromkeys(panel.cases, baseline[length]), seed)
        run = SimulatedRun(panel, truth)
        results |= run.results(run.run_ahead((most or {}).get(length)))
    return GateEvaluator(rules, Measured(scope=scope, results=results))


def panels_by_length(rules: Thresholds, scope: Scope) -> dict[int, Panel]:
    """Return the panels of a run of one family, keyed by length."""
    return {panel.length: panel for panel in build_panels(rules, scope).values()}


def scope_of(cases: Collection[Case], **changed: object) -> Scope:
    """Return a scope over three tasks at all lengths. `changed` overrides its fields."""
    fields: dict[str, object] = {"lengths": LENGTHS, "claimed_length": 4096, **changed}
    return Scope(cases=tuple(cases), reference=REFERENCE, ruler_aspects=ASPECTS, **fields)  # type: ignore[arg-type]  # fields are passed by name


def compare_panels(compared: Sequence[ComparedPanel]) -> list[PanelDecision]:
    """Return the decisions on all comparisons of a run, by panel."""
    pairs = paired_panels(compared)
    decisions: dict[int, PanelDecision] = {}
    for group in by_gate(pairs):
        decisions |= dict(zip(map(id, group), decide_together(group), strict=True))
    return [decisions[id(item)] for item in pairs]
