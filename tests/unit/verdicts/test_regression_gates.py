"""Gates that allow a loss of their own, for some tasks or lengths, in points or as a share of the baseline's mean."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from longctx.fixtures.records import Verdict
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.thresholds.records import Gate, RegressionSettings
from longctx.plugins.verdicts.evaluate import GateEvaluator, Measured, blocks
from longctx.plugins.verdicts.hypotheses import build_panels
from longctx.plugins.verdicts.regression import regression_verdicts
from tests.helpers.queues import ASPECTS, SimulatedRun, case, draw_exact_scores, scope_of, thresholds

LENGTH = 1024
CASES = tuple(case(task, LENGTH, 100) for task in ASPECTS)
SCOPE = scope_of(CASES, lengths=(LENGTH,), has_baseline=True, full=True)
NEEDLES = Gate(name="needles", kind="regression", tasks=("n1", "n2"), drop=1.0)
TRACING = Gate(name="tracing", kind="regression", tasks=("vt",), drop=10.0)


def verdicts_of(right: Mapping[str, int], baseline: Mapping[str, int], *gates: Gate) -> dict[str, Verdict]:
    """Return the verdicts of a full run, given how many of 100 samples a task each model has right: the same first."""
    rules = replace(thresholds(*gates), regression=RegressionSettings(drop=20.0))
    (panel,) = build_panels(rules, SCOPE).values()

    def scores(counts: Mapping[str, int]) -> dict[SampleRef, float]:
        tasks = {name: planned.task for name, planned in panel.cases.items()}
        return {ref: float(ref.sample_index * 37 % 100 < counts[tasks[ref.case_id]]) for ref in panel.order}

    run = SimulatedRun(panel, {"model": scores(right), "baseline": scores(baseline)})
    measured = Measured(scope=SCOPE, results=run.results(run.run_ahead()))
    return {verdict.name: verdict for verdict in regression_verdicts(GateEvaluator(rules, measured))}


ALL = {"n1": 90, "n2": 90, "vt": 90}


def test_each_gate_judges_its_tasks_by_its_own_loss() -> None:
    found = verdicts_of({"n1": 60, "n2": 90, "vt": 85}, ALL, NEEDLES, TRACING)
    assert {name: (verdict.verdict, verdict.required, verdict.of) for name, verdict in found.items()} == {
        "regression at 1k": ("pass", -20.0, 300),
        "needles at 1k": ("fail", -1.0, 200),
        "tracing at 1k": ("pass", -10.0, 100),
    }


@pytest.mark.parametrize(("share", "word"), [(5.0, "fail"), (95.0, "pass")])
def test_a_relative_loss_is_one_of_the_baselines_own_mean(share: float, word: str) -> None:
    """The baseline has 40 points; 20 are lost, half of them."""
    gate = Gate(name="relative", kind="regression", relative_drop=share)
    verdict = verdicts_of(dict.fromkeys(ALL, 20), dict.fromkeys(ALL, 40), gate)["relative at 1k"]
    assert verdict.verdict == word
    assert verdict.measured == pytest.approx(-20.0)
    assert verdict.required == pytest.approx(-0.4 * share)


def test_nothing_is_lost_of_a_baseline_of_zero() -> None:
    gate = Gate(name="relative", kind="regression", relative_drop=5.0)
    nothing = dict.fromkeys(ALL, 0)
    assert verdicts_of(nothing, nothing, gate)["relative at 1k"].verdict == "pass"


@pytest.mark.parametrize("gate", [NEEDLES, Gate(name="needles", kind="change", tasks=("n1", "n2"), changed=5.0)])
def test_a_gate_on_a_comparison_is_not_measured_without_a_baseline(gate: Gate) -> None:
    alone, rules = replace(SCOPE, has_baseline=False), thresholds(gate)
    (verdict,) = regression_verdicts(GateEvaluator(rules, Measured(scope=alone, results={})))
    assert (verdict.name, verdict.verdict, verdict.because) == ("needles at 1k", "not measured", "no baseline")
    assert not blocks(verdict, narrowed=False)


def test_a_gate_whose_task_is_not_in_the_run_is_not_measured() -> None:
    other = Gate(name="qa", kind="regression", tasks=("n1", "qa_1"), drop=1.0)
    verdict = verdicts_of(ALL, ALL, other)["qa at 1k"]
    assert (verdict.verdict, verdict.because, verdict.detail) == ("not measured", "missing tasks", "qa_1")


def test_only_blocking_gates_share_the_error() -> None:
    def alphas(*gates: Gate) -> set[float]:
        (panel,) = build_panels(thresholds(*gates), SCOPE).values()
        shares = [comparison.hypothesis.confirmation for comparison in panel.comparisons]
        return {round(0.01 / (share.complete / 0.5), 6) for share in shares if share is not None}

    assert alphas() == alphas(replace(NEEDLES, blocking=False)) == {1.0}
    assert alphas(NEEDLES, TRACING) == {3.0}


def test_samples_are_measured_until_every_gate_is_decided() -> None:
    strict = replace(thresholds(replace(NEEDLES, drop=5.0)), regression=RegressionSettings(drop=50.0))
    counts = {}
    for rules in (strict, replace(strict, gates=())):
        (panel,) = build_panels(rules, replace(SCOPE, full=False)).values()
        ones = draw_exact_scores(panel, dict.fromkeys(panel.cases, 90))
        status = SimulatedRun(panel, {"model": ones, "baseline": ones}).run_ahead()
        assert not status.next_samples
        counts[bool(rules.gates)] = sum(status.paired_counts.values())
    assert counts[True] > counts[False]


@pytest.mark.parametrize(
    ("right", "word"),
    [
        (ALL, "pass"),
        # The same mean, on other samples.
        ({"n1": 60, "n2": 100, "vt": 100}, "fail"),
        ({"n1": 86, "n2": 94, "vt": 86}, "pass"),
    ],
)
def test_a_change_counts_for_the_better_as_for_the_worse(right: dict[str, int], word: str) -> None:
    gate = Gate(name="same", kind="change", changed=5.0)
    verdict = verdicts_of(right, {"n1": 90, "n2": 90, "vt": 80}, gate)["same at 1k"]
    changed = sum(abs(count - before) for count, before in zip(right.values(), (90, 90, 80), strict=True)) / 3
    assert verdict.measured == pytest.approx(changed)
    assert (verdict.verdict, verdict.required) == (word, 5.0)


def test_a_change_of_all_cases_is_asked_for_beside_the_loss() -> None:
    rules = replace(thresholds(), regression=RegressionSettings(changed=5.0))
    (panel,) = build_panels(rules, SCOPE).values()
    assert [comparison.gate for comparison in panel.comparisons] == ["", "change"]
