"""A fake of the suite for searches: checkpoints on disk whose scores are known, compared without a model."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longctx.ci.checkpoint_dirs import fingerprint_of
from longctx.ci.suite_process import SuiteRun
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.plugins.config.cases import only_samples
from longctx.plugins.evidence.clusters import SampleRef
from longctx.plugins.evidence.e_process import Strata
from longctx.plugins.evidence.sequential import NonInferiority
from longctx.plugins.evidence.statistics import paired_interval
from longctx.plugins.journal import Entry, Subject, sample_key
from longctx.plugins.journal.lines import encode_line, encode_record
from longctx.plugins.verdicts.panels import Comparison, Panel
from tests.helpers.checkpoints import CONFIG, TENSORS, safetensors
from tests.helpers.outcomes import case_of, generation_of, outcome_of
from tests.helpers.report_records import report_of

SAMPLES = 100
CASE = case_of("niah_single_2", 512, SAMPLES)


class Chain:
    """A series of checkpoints on disk, and a fake of the suite that knows how many samples every one of them solves.

    The fake decides like the suite's regression gate, without a model. All checkpoints hold the same weights; those in
    `broken` have none and cannot be read. `raw` checkpoints are in a format of their own: the journal has the results
    of what --convert makes of them.
    """

    def __init__(self, folder: Path, solved: Sequence[int], broken: Sequence[int] = (), *, raw: bool = False):
        self.folder = folder
        self.raw = raw
        self.solved = {f"step-{number}": right for number, right in enumerate(solved)}
        self.measured: list[str] = []
        for number in range(len(solved)):
            checkpoint = folder / f"step-{number}"
            checkpoint.mkdir()
            if raw:
                (checkpoint / "weights.distcp").write_text(str(number))
                continue
            (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"step": number}))
            (checkpoint / "tokenizer.json").write_text("{}")
            if number not in broken:
                (checkpoint / "model.safetensors").write_bytes(safetensors(TENSORS))

    def run_suite(self, arguments: Sequence[str], *, report: Path, **more: Any) -> SuiteRun:
        option = dict(itertools.pairwise(arguments))
        model, baseline = Path(option["--model"]).name, Path(option["--baseline"]).name
        self.measured.append(model)
        text = Path(option["--thresholds"]).read_text()
        bounds = dict(line.split(" = ") for line in text.splitlines() if " = " in line)
        (case,) = only_samples([CASE], [word[15:] for word in arguments if word.startswith("--only-samples=")])
        samples = len(case.planned)
        pairing = NonInferiority(drop=float(bounds["drop"]) / 100, alpha=1 - float(bounds["confidence"]))
        comparisons = [Comparison(hypothesis=pairing)]
        panel = Panel("ruler", 512, [case], seed=0, hypotheses=(), comparisons=comparisons, full="--full" in arguments)
        order = [ref.sample_index for ref in panel.order]
        difference = [self._right(model, sample) - self._right(baseline, sample) for sample in order]
        scores, other = (
            {SampleRef(CASE.id, sample): self._right(name, sample) for sample in order} for name in (model, baseline)
        )
        analysis = panel.analyze_pairs(panel.comparisons[0], scores, other)
        seen = difference[: analysis.clusters]
        mean = sum(seen) / len(seen)
        planned, of_model = (
            [100 * end for end in paired_interval(np.array(seen), Strata.single(population), alpha=pairing.alpha)]
            # So many samples are as good as unlimited ones.
            for population in (samples, 1000 * samples)
        )
        gate = {
            "kind": "regression", "measured": 100 * mean, "interval": planned, "model_interval": of_model,
            "samples": analysis.samples, "verdict": analysis.decision.verdict if analysis.decision else "undecided",
            "reason": "",
        }  # fmt: skip
        shown: Mapping[str, Any] = {
            "id": CASE.id, "task": CASE.task, "length": 512, "suite": "ruler", "category": "retrieval",
            "score": 100 * sum(self._right(model, sample) for sample in order[: analysis.clusters]) / analysis.clusters,
            "planned": samples, "error": None,
        }  # fmt: skip
        run = {"options": {"journal": str(self.folder / "journal")}, "samples": "s", "seed": 0}
        for name, seen_by in ((model, analysis.samples), (baseline, analysis.samples)):
            self._write_journal(name, order[:seen_by])
        votes = {"haystacks_worse": sum(d < 0 for d in seen), "haystacks_better": sum(d > 0 for d in seen)}
        regression = {
            "baseline": self._described(baseline), "cases": {CASE.id: {"difference": 100 * mean} | votes},
        }  # fmt: skip
        return SuiteRun(exit_code=0, report=report_of({
            "gates": [gate], "cases": [shown], "run": run, "regression": regression,
            "model": self._described(model) | {"execution": {}},
        }))  # fmt: skip

    def _described(self, name: str) -> dict[str, Any]:
        """Return what a report says about a model."""
        path = self.folder / name
        if not self.raw:
            return {"fingerprint": read_checkpoint(str(path)).fingerprint, "source": None}
        source = fingerprint_of(path, option="--model", options=["--convert=x"])
        return {"fingerprint": f"converted {source}", "source": {"fingerprint": source}}

    def _write_journal(self, name: str, samples: Sequence[int]) -> None:
        """Append the answers to the journal, from which costs and flips are read."""
        subject = Subject(model=name, fingerprint=self._described(name)["fingerprint"], execution={})
        folder = self.folder / "journal" / subject.key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "subject.json").write_bytes(encode_record(subject))
        lines = [encode_line(self._entry(name, sample)) for sample in samples]
        with (folder / "worker.jsonl").open("ab") as file:
            file.writelines(lines)

    def _entry(self, name: str, sample: int) -> Entry:
        key = sample_key("s", "", 0, CASE.task, 512, sample)
        generation = generation_of(f"said by {name}", 500, 10, computed_tokens=510, seconds=0.1)
        outcome = outcome_of(
            sample, self._right(name, sample), generation=generation, references=("4711",), depths=(0.5,)
        )
        return Entry(key=key, prompt=key, case=CASE.id, index=sample, outcome=outcome)

    def _right(self, name: str, sample: int) -> float:
        return float(sample < self.solved[name])
