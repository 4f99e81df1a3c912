"""A fake of the suite for tests of the watch."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from longctx.ci.suite_process import SuiteRun
from tests.helpers.report_records import report_of

REASONS = {"not shown": "not shown", "short baseline": "short baseline"}
"""The words of a comparison that stand for the reason of an undecided one."""


@dataclass
class FakeSuite:
    """A fake of the suite that fails the given steps and records its calls."""

    failing: Sequence[int] = ()
    broken: Sequence[int] = ()
    _: KW_ONLY
    scores: Mapping[int, float] = field(default_factory=dict)
    samples: Mapping[int, int] = field(default_factory=dict)
    forgetful: Sequence[int] = ()
    """The steps whose engine fails a property of --invariance."""
    suspected: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The words of the comparison of a step on 100 samples, on 200, ...; a loss that is not shown is suspected."""
    most_samples: int = 1000
    asked: list[tuple[int, str | None, str | None]] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    seeds: list[str | None] = field(default_factory=list)
    baselines: list[str | None] = field(default_factory=list)
    series: list[str | None] = field(default_factory=list)
    runs: list[tuple[int, str | None]] = field(default_factory=list)
    environments: list[Mapping[str, str] | None] = field(default_factory=list)

    def __call__(
        self, arguments: Sequence[str], *, report: Path, environment: Mapping[str, str] | None, **_: object
    ) -> SuiteRun:
        option = {name: value for name, value in itertools.pairwise(arguments) if name.startswith("--")}
        step = int(option["--model"].rpartition("-")[2])
        baseline = option.get("--baseline")
        if "--invariance" in option:
            self.checked.append(step)
            return self._check(step)
        compared = baseline and Path(baseline).name.partition("-")[2].partition("-")[0]
        self.runs.append((step, compared))
        self.environments.append(environment)
        self.baselines.append(baseline)
        self.seeds.append(option.get("--seed"))
        self.series.append(option.get("--series"))
        self.asked.append((step, option.get("--samples"), option.get("--series")))
        if step in self.broken:
            return SuiteRun(exit_code=4, report=None, reason="--lengths: unknown '8kb'; write 8k")
        fails = step in self.failing
        gate = {
            "name": "mean at 8k", "kind": "level", "blocking": True, "verdict": "fail" if fails else "pass",
            "fails": fails, "reason": "70.1 is not", "cases": ["test_ruler[qa_1-8k]"],
        }  # fmt: skip
        # Runs that -k narrows leave blocking gates unmeasured, which fail nothing.
        unmeasured = {
            "name": "effective length", "kind": "effective_length", "blocking": True, "verdict": "not measured",
            "fails": False, "reason": "partial: vt not run at 8k",
        }  # fmt: skip
        report.parent.mkdir(exist_ok=True, parents=True)
        report.write_text("{}")
        report.with_suffix(".html").write_text("")
        looks = [ran for ran, _ in self.runs].count(step)
        comparison = self.suspected[step][looks - 1] if step in self.suspected else "pass"
        regression = {
            "name": "regression at 8k", "kind": "regression", "blocking": True,
            "verdict": "undecided" if comparison in REASONS else comparison, "because": REASONS.get(comparison),
            "reason": "worse", "measured": 0.0,
            "fails": comparison not in ("pass", "not shown"), "cases": ["test_ruler[qa_1-8k]"],
            "suspected": comparison == "not shown",
        }  # fmt: skip
        samples = int(option.get("--samples", 100))
        case = {
            "id": "test_ruler[qa_1-8k]", "suite": "ruler", "length": 8192, "haystacks": 30, "verdict": "pass",
            "score": self.scores.get(step, 90.0), "samples": self.samples.get(step, 40),
            "planned": min(samples, self.most_samples),
        }  # fmt: skip
        written: dict[str, Any] = {
            "gates": [gate, unmeasured, regression],
            "cases": [case],
            "ruler": {"effective_length_label": "8192"},
            "run": {"tokens": {"computed": 9000}, "options": {"samples": samples, "thresholds": "t.toml"}},
        }
        if compared:
            difference = self.scores.get(step, 90.0) - self.scores.get(int(compared), 90.0)
            pairs = min(self.samples.get(each, 40) for each in (step, int(compared)))
            written["regression"] = {"cases": {case["id"]: {"difference": difference, "pairs": pairs}}}
        return SuiteRun(exit_code=int(bool(fails or regression["fails"])), report=report_of(written))

    def _check(self, step: int) -> SuiteRun:
        """Return a run of --invariance alone."""
        facts = {"sample": "niah_single_2 of 1024 tokens, 0", "token": 2, "expected": " 12", "got": " 17"}
        warm = {"name": "warm", "verdict": "fail", "reason": "token 2 of the answer: logits differ by 0.5", **facts}
        batch = {"name": "batch", "verdict": "pass", "reason": "logits differ by 1e-06"}
        findings = [warm, batch] if step in self.forgetful else [batch]
        return SuiteRun(
            exit_code=int(step in self.forgetful), report=report_of({"gates": [], "cases": [], "invariance": findings})
        )
