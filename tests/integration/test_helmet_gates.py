"""Gates on the categories of HELMET: their tables in a thresholds file and their verdicts."""

from dataclasses import replace
from pathlib import Path

import pytest

from longctx.fixtures.records import Case
from longctx.fixtures.tasks import FAMILIES, TASKS
from longctx.plugins.config.cases import concerning
from longctx.plugins.thresholds.records import CATEGORIES, Gate, VerdictSettings, load_thresholds
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured
from longctx.plugins.verdicts.hypotheses import build_panels, estimate_gate
from tests.helpers.queues import LEVEL, case, evaluator_of, result, scope_of, thresholds

RERANK = ("msmarco",)
CITE = ("asqa", "qampari")
LENGTH = 8192
GATE = replace(LEVEL, name="cite", kind="category", category="cite", above=50.0)


def helmet_case(task: str, length: int = LENGTH, samples: int = 40) -> Case:
    definition = TASKS[task]
    return replace(
        case(task, length, samples),
        id=f"test_{definition.category}[{task}-8k]",
        suite="helmet",
        category=definition.category,
    )


def evaluator_with(gate: Gate, cases: list[Case], values: dict[str, float], missing: str = "") -> GateEvaluator:
    scope = scope_of(cases, lengths=(LENGTH,), task_families=FAMILIES)
    results = {
        planned.id: result(planned, *[values[planned.task]] * planned.samples)
        for planned in cases
        if planned.task != missing
    }
    return GateEvaluator(thresholds(gate), Measured(scope=scope, results=results))


def read_gates(tmp_path: Path, text: str) -> tuple[Gate, ...]:
    path = tmp_path / "gates.toml"
    path.write_text(text)
    return load_thresholds(path, known_tasks=FAMILIES).gates


def table(**fields: str) -> str:
    return "[[gate]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


# The thresholds file


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_gate_may_name_any_category(category: str, tmp_path: Path) -> None:
    (gate,) = read_gates(
        tmp_path, table(name="'c'", kind="'category'", category=f"'{category}'", above="40", lengths="['8k']")
    )
    assert (gate.kind, gate.category, gate.above, gate.lengths) == ("category", category, 40.0, (LENGTH,))
    tasks = scope_of([], task_families=FAMILIES).tasks_of(gate)
    assert set(tasks) == {name for name, task in TASKS.items() if task.suite == "helmet" and task.category == category}


# The verdict


@pytest.mark.parametrize(
    ("values", "word", "score"),
    [((1.0, 0.0), "fail", 50.0), ((1.0, 0.1), "pass", 55.0)],
)
def test_a_category_passes_above_its_threshold(values: tuple[float, float], word: str, score: float) -> None:
    cases = [helmet_case(task) for task in CITE]
    (verdict,) = evaluator_with(GATE, cases, dict(zip(CITE, values, strict=True))).verdicts()
    assert (verdict.name, verdict.kind, verdict.length) == ("cite at 8k", "category", LENGTH)
    assert verdict.verdict == word
    assert verdict.measured == pytest.approx(score)


def test_data_sets_of_a_category_have_equal_weight_at_any_size() -> None:
    cases = [helmet_case("asqa", samples=80), helmet_case("qampari", samples=20)]
    (verdict,) = evaluator_with(GATE, cases, {"asqa": 1.0, "qampari": 0.2}).verdicts()
    assert verdict.verdict == "pass"
    assert verdict.measured == pytest.approx(60)


def test_a_category_without_one_of_its_data_sets_is_not_measured() -> None:
    (verdict,) = evaluator_with(GATE, [helmet_case("asqa")], {"asqa": 1.0}).verdicts()
    assert (verdict.verdict, verdict.measured) == ("not measured", None)
    assert "qampari" in verdict.detail


def test_every_category_has_its_own_panel() -> None:
    cases = [helmet_case(task) for task in (*CITE, *RERANK)]
    panels = build_panels(thresholds(GATE), scope_of(cases, lengths=(LENGTH,), task_families=FAMILIES))
    assert set(panels) == {("cite", LENGTH), ("rerank", LENGTH)}
    assert [hypothesis.threshold for hypothesis in panels["cite", LENGTH].hypotheses] == [0.5]
    assert [hypothesis.threshold for hypothesis in panels["rerank", LENGTH].hypotheses] == [None]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_category_without_a_gate_is_measured_to_the_given_precision(share: float) -> None:
    """The reported interval is the one that ended the measurement, not a wider one from fewer samples."""
    cases = [helmet_case(task, samples=300) for task in CITE]
    scope = scope_of(cases, lengths=(LENGTH,), task_families=FAMILIES)
    finding = evaluator_of(thresholds(), scope, {LENGTH: share}).finding(estimate_gate("cite"), LENGTH)
    assert 12 <= finding.samples < 300
    assert finding.confidence == 0.95
    assert finding.interval is not None
    low, high = finding.interval
    assert 10 < high - low <= 2 * VerdictSettings().precision
    assert low <= 100 * share <= high


def test_gates_on_families_that_a_run_lacks_are_left_out() -> None:
    both = thresholds(LEVEL, GATE)
    ruler, helmet = [case("niah_single_1")], [helmet_case("asqa")]
    assert concerning(both, ruler).gates == (LEVEL,)
    assert concerning(both, helmet).gates == (GATE,)
    assert concerning(both, [*ruler, *helmet]).gates == (LEVEL, GATE)
