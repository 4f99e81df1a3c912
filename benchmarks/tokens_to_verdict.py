"""How many tokens a verdict takes, end to end, beside a run of all samples.

    python -m benchmarks.tokens_to_verdict [--samples 60] [--lengths 1k,2k] [--json FILE]

Runs the needle tasks on calibration checkpoints of known effective length, each with its gates deciding when it
is enough and once more with --full, every time with a journal of its own, and compares what the model computed.
Both runs use all else that saves tokens; `plain` is what all planned samples would take without any of it. Exits
with 1 when the two verdicts differ, or the sequential run takes more than an eighth of the full one's tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
MOST = 1 / 8
MODELS = ("calibration:full", "calibration:512")
GATES = """
[[gate]]
name = "needles"
kind = "level"
tasks = [
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
]
above = 85.6
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One checkpoint: its verdicts both ways, and the tokens that went through the model."""

    model: str
    verdicts: tuple[str, ...]
    full_verdicts: tuple[str, ...]
    computed_tokens: int
    full_computed_tokens: int
    plain_tokens: int

    @property
    def share(self) -> float:
        return self.computed_tokens / self.full_computed_tokens

    @property
    def holds(self) -> bool:
        return self.verdicts == self.full_verdicts and self.share <= MOST


def report_of(model: str, lengths: str, samples: int, *further: str) -> dict[str, Any]:
    """The report of one run with an empty journal; raises RuntimeError where it wrote none."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        report, gates = Path(folder, "report.json"), Path(folder, "gates.toml")
        gates.write_text(GATES)
        command = [
            sys.executable, "-m", "pytest", "--model", model, "--suite", "ruler", "--lengths", lengths,
            "--samples", str(samples), "-k", "single or multikey", "-n", "2", "-q", "--thresholds", str(gates),
            *further, "--journal", f"{folder}/journal", "--report-json", str(report),
        ]  # fmt: skip
        ended = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, check=False)
        if not report.exists():
            raise RuntimeError((ended.stdout + ended.stderr).decode(errors="replace")[-2000:])
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return found


def words(report: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{gate['name']}: {gate['verdict']}" for gate in report["gates"])


def measured(model: str, lengths: str, samples: int) -> Row:
    stopped = report_of(model, lengths, samples)
    full = report_of(model, lengths, samples, "--full")
    return Row(
        model=model,
        verdicts=words(stopped),
        full_verdicts=words(full),
        computed_tokens=stopped["run"]["tokens"]["computed"],
        full_computed_tokens=full["run"]["tokens"]["computed"],
        plain_tokens=full["run"]["tokens"]["full_run_equivalent"],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--lengths", default="1k,2k")
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    rows = []
    print(f"{'checkpoint':18} {'computed':>10} {'in full':>10} {'plain':>10} {'share':>7}  verdicts", flush=True)
    for model in MODELS:
        row = measured(model, asked.lengths, asked.samples)
        rows.append(row)
        said = "; ".join(row.verdicts) if row.verdicts == row.full_verdicts else "NOT the full run's"
        print(
            f"{model:18} {row.computed_tokens:>10,} {row.full_computed_tokens:>10,} {row.plain_tokens:>10,} "
            f"{'1/' + format(1 / row.share, '.1f'):>7}  {said}{'' if row.holds else '  NOT MET'}",
            flush=True,
        )
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
