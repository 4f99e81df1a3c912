"""Measure how many tokens a sequential gate needs for its verdict, against a run of all samples.

    python -m benchmarks.tokens_to_verdict [--samples 60] [--lengths 1k,2k] [--above 85.6] [--json FILE]

Runs the needle tasks on calibration checkpoints of known effective length, once with early stopping and once with
--full, always with an empty journal, and compares the tokens that the model computed. Both runs share prefixes and use
everything else that saves tokens; `plain` is the cost of all planned samples without any of it. Limits: exit code 1 if
the two verdicts differ, or if the sequential run takes more than an eighth of the full run's tokens.
"""

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
MAX_SHARE = 1 / 8
MODELS = ("calibration:full", "calibration:512")
GATES = """
[[gate]]
name = "needles"
kind = "level"
tasks = [
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
]
above = {above}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The verdicts and the tokens of both runs on one checkpoint; the field names are keys of the JSON file."""

    model: str
    verdicts: tuple[str, ...]
    full_verdicts: tuple[str, ...]
    computed_tokens: int
    """Tokens that went through the model in the sequential run."""
    full_computed_tokens: int
    """Tokens that went through the model in the full run."""
    plain_tokens: int
    """Tokens of all planned samples without shared prefixes."""

    @property
    def share(self) -> float:
        """Tokens of the sequential run divided by those of the full run."""
        return self.computed_tokens / self.full_computed_tokens

    @property
    def is_within_limits(self) -> bool:
        return self.verdicts == self.full_verdicts and self.share <= MAX_SHARE


def report_of(model: str, lengths: str, samples: int, above: float, *further: str) -> dict[str, Any]:
    """Return the report of one run with an empty journal; raise RuntimeError if it wrote none."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with tempfile.TemporaryDirectory(prefix="verdict-") as folder:
        report, gates = Path(folder, "report.json"), Path(folder, "gates.toml")
        gates.write_text(GATES.format(above=above))
        command = [
            sys.executable, "-m", "pytest", "--model", model, "--suite", "ruler", "--lengths", lengths,
            "--samples", str(samples), "-k", "single or multikey", "-n", "2", "-q", "--thresholds", str(gates),
            *further, "--journal", f"{folder}/journal", "--report-json", str(report),
        ]  # fmt: skip
        ended = subprocess.run(command, cwd=REPOSITORY, env=inherited, capture_output=True, check=False)
        if not report.exists():
            raise RuntimeError((ended.stdout + ended.stderr).decode(errors="replace")[-2000:])
        written: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
        return written


def verdict_lines(report: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{gate['name']}: {gate['verdict']}" for gate in report["gates"])


def measure(model: str, lengths: str, samples: int, above: float) -> Row:
    sequential = report_of(model, lengths, samples, above)
    full = report_of(model, lengths, samples, above, "--full")
    return Row(
        model=model,
        verdicts=verdict_lines(sequential),
        full_verdicts=verdict_lines(full),
        computed_tokens=sequential["run"]["tokens"]["computed"],
        full_computed_tokens=full["run"]["tokens"]["computed"],
        plain_tokens=full["run"]["tokens"]["prompt"] + full["run"]["tokens"]["generated"],
    )


def main() -> int:
    """Print one line for every checkpoint; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--lengths", default="1k,2k")
    parser.add_argument("--above", type=float, default=85.6, metavar="SCORE", help="threshold (default: 85.6)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    rows = []
    print(f"{'checkpoint':18} {'computed':>10} {'in full':>10} {'plain':>10} {'share':>7}  verdicts", flush=True)
    for model in MODELS:
        row = measure(model, args.lengths, args.samples, args.above)
        rows.append(row)
        verdicts = "; ".join(row.verdicts) if row.verdicts == row.full_verdicts else "NOT the full run's"
        print(
            f"{model:18} {row.computed_tokens:>10,} {row.full_computed_tokens:>10,} {row.plain_tokens:>10,} "
            f"{'1/' + format(1 / row.share, '.1f'):>7}  {verdicts}{'' if row.is_within_limits else '  NOT MET'}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0 if all(row.is_within_limits for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
