"""Runs without a model: scores that are known beforehand, and workers that take them from a panel's queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from random import Random

from fixtures.records import Case, CaseResult, Generation, Outcome, Score
from plugins.gates.clusters import SampleRef
from plugins.gates.evaluate import GateEvaluator, Measured
from plugins.gates.hypotheses import Scope, build_panels
from plugins.gates.panels import ModelRole, Panel, PanelStatus
from plugins.gates.thresholds import Gate, Reference, Thresholds

LENGTHS = (1024, 2048, 4096)
ASPECTS = {"n1": "retrieval", "n2": "retrieval", "vt": "tracing"}
REFERENCE = Reference(
    source="a model", scores={"mean": 80.0, "retrieval": 90.0, "tracing": 50.0, "aggregation": 50.0, "qa": 50.0}
)
LEVEL = Gate(
    name="level", kind="level", aspect=None, category=None, tasks=(), above=None, blocking=True, lengths=(),
    at_least=None, rising=False,
)  # fmt: skip
GENERATION = Generation(
    text="", prompt_tokens=1, generated_tokens=1, computed_tokens=2, reused_tokens=0, finish="stop", seconds=0.0
)

Scores = Mapping[SampleRef, float]


def case(task: str, length: int = 1024, samples: int = 4) -> Case:
    return Case(
        id=f"test_ruler[{task}-{length}]", suite="ruler", category=ASPECTS.get(task, "qa"), task=task, length=length,
        samples=samples, source="archive", generation_tokens=8,
    )  # fmt: skip


def outcome(index: int, value: float) -> Outcome:
    return Outcome(index=index, score=Score(value=value), generation=GENERATION, references=("a",), depths=())


def result(of: Case, *values: float, error: str | None = None, baseline: tuple[float, ...] = ()) -> CaseResult:
    outcomes = tuple(outcome(index, value) for index, value in enumerate(values))
    return CaseResult(case=of, outcomes=outcomes, seconds=1.0, error=error, baseline=baseline)


def thresholds(*gates: Gate) -> Thresholds:
    return Thresholds(references={}, gates=gates)


def drawn(panel: Panel, shares: Mapping[str, float], seed: int = 0) -> dict[SampleRef, float]:
    """A score of 0 or 1 for every element, 1 with its case's share."""
    random = Random(seed)
    return {element: float(random.random() < shares[element.case_id]) for element in panel.order}


def exactly(panel: Panel, ones: Mapping[str, int], seed: int = 0) -> dict[SampleRef, float]:
    """As `drawn`, with exactly so many ones in each case."""
    right = {
        name: set(Random(seed + at).sample(range(of.samples), ones[name]))
        for at, (name, of) in enumerate(panel.cases.items())
    }
    return {element: float(element.sample_index in right[element.case_id]) for element in panel.order}


@dataclass
class Work:
    """A panel under way. `truth` holds what each side would score; an element it lacks fails its case.

    `control` are a finished baseline's scores; a side that is not in `truth` is not run.
    """

    panel: Panel
    truth: Mapping[ModelRole, Scores]
    control: Scores | None = None
    journal: dict[ModelRole, dict[SampleRef, float]] = field(default_factory=lambda: {"model": {}, "baseline": {}})
    failed: set[str] = field(default_factory=set)

    def standing(self) -> PanelStatus:
        running = self.journal["baseline"] if "baseline" in self.truth else None
        baseline = running if self.control is None else self.control
        return self.panel.status(
            self.journal["model"], baseline=baseline, control_variate=self.control, failed=self.failed
        )

    def do(self, who: ModelRole, element: SampleRef) -> None:
        if element in self.truth[who]:
            self.journal[who][element] = self.truth[who][element]
        else:
            self.failed.add(element.case_id)

    def in_order(self, most: int | None = None) -> PanelStatus:
        """One worker, one element at a time, until nothing is wanted or `most` were done."""
        while (wanted := self.standing().next_samples) and (most is None or len(self.journal["model"]) < most):
            self.do(*wanted[0])
        return self.standing()

    def shared(self, workers: int, random: Random) -> PanelStatus:
        """Many workers of random speeds; single ones die, and all of them, with what they hold."""
        speeds = [random.choice((1, 3, 30)) for _ in range(workers)]
        held: dict[int, tuple[ModelRole, SampleRef]] = {}
        standing = self.standing()
        while standing.next_samples:
            taken = set(held.values())
            free = next((each for each in standing.next_samples if each not in taken), None)
            idle = [worker for worker in range(workers) if worker not in held]
            if idle and free and random.random() < 0.6:
                held[random.choice(idle)] = free
            elif held:
                worker = random.choices(list(held), [speeds[worker] for worker in held])[0]
                task = held.pop(worker)
                if random.random() < 0.9:
                    self.do(*task)
                    standing = self.standing()
                if random.random() < 0.02:
                    held.clear()
        for who, element in held.values():
            self.do(who, element)
        return self.standing()

    def counted(self, standing: PanelStatus) -> dict[ModelRole, dict[SampleRef, float]]:
        """The scores that the evidence rests on."""
        known: dict[ModelRole, Scores] = {
            "model": self.journal["model"],
            "baseline": self.control or self.journal["baseline"],
        }
        extents = {"model": standing.evidence_counts, "baseline": standing.paired_counts}
        return {
            who: {
                element: scores[element]
                for name in self.panel.cases
                for element in self.panel.sample_refs({name})[: extents[who].get(name, 0)]
            }
            for who, scores in known.items()
        }

    def results(self, standing: PanelStatus) -> dict[str, CaseResult]:
        """By case id, as workers hand them in."""
        counted = self.counted(standing)

        def result_of(of: Case) -> CaseResult:
            mine = {
                element.sample_index: score for element, score in counted["model"].items() if element.case_id == of.id
            }
            return CaseResult(
                case=of,
                outcomes=tuple(outcome(index, score) for index, score in mine.items()),
                seconds=0.0,
                error="out of memory" if of.id in self.failed else None,
                baseline=tuple(score for element, score in counted["baseline"].items() if element.case_id == of.id),
            )

        return {name: result_of(of) for name, of in self.panel.cases.items()}


def judge(
    given: Thresholds,
    scope: Scope,
    shares: Mapping[int, float],
    *,
    most: Mapping[int, int] | None = None,
    baseline: Mapping[int, float] | None = None,
    seed: int = 0,
) -> GateEvaluator:
    """A run in which all tasks score a share at a length, in order, ended after `most` elements of a length."""
    results: dict[str, CaseResult] = {}
    for length, panel in by_length(given, scope).items():
        truth: dict[ModelRole, Scores] = {"model": drawn(panel, dict.fromkeys(panel.cases, shares[length]), seed)}
        if baseline is not None:
            truth["baseline"] = drawn(panel, dict.fromkeys(panel.cases, baseline[length]), seed)
        work = Work(panel, truth)
        results |= work.results(work.in_order((most or {}).get(length)))
    return GateEvaluator(given, Measured(scope=scope, results=results))


def by_length(given: Thresholds, scope: Scope) -> dict[int, Panel]:
    """The panels of a run of one family."""
    return {panel.length: panel for panel in build_panels(given, scope).values()}


def scope_of(cases: Collection[Case], **changed: object) -> Scope:
    """A scope over three tasks at all lengths; `changed` are its other fields."""
    fields: dict[str, object] = {"lengths": LENGTHS, "claimed_length": 4096, **changed}
    return Scope(cases=tuple(cases), reference=REFERENCE, ruler_aspects=ASPECTS, **fields)  # type: ignore[arg-type]  # by name
