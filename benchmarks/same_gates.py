"""Compare a checkpoint with itself in other forms and batch sizes: no gate may fail.

    python -m benchmarks.same_gates CKPT [CKPT ...] [--gates 200] [--samples 48] [--batch-sizes 1,8,32]

Each gate is one run by the command that users start, on samples of its own (`--seed`), with the shipped thresholds'
comparison: the checkpoint against its path, a copy, the same weights in two files, the same weights written again, or
the report of a run with another batch size. The forms, batch sizes and checkpoints take turns. A name such as
`calibration:512-blind=0.1` stands for a calibration checkpoint.

Limits: exit code 1 if a gate fails, or if a run does not compare.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harmless_changes import save_again, shard
from benchmarks.same_answers import numbers
from longctx.fixtures.calibration.recipe import build, parse_spec
from tests.helpers.preloaded import preloaded, start_server

FORMS: dict[str, Callable[[Path], object]] = {
    "its path": lambda _: None, "copy": lambda _: None, "two files": shard, "written again": save_again,
    "report of another batch size": lambda _: None,
}  # fmt: skip
TASKS = "niah_single_2 or niah_multikey_1"
THRESHOLDS = "[regression]\ndrop = 2\n"


def run_gate(model: Path, form: str, sizes: tuple[int, int], seed: int, options: Sequence[str], work: Path) -> str:
    """Run one gate with a journal of its own; return the verdict of its comparison, or what went wrong."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    (work / "gates.toml").write_text(THRESHOLDS)
    baseline = model
    common = [*options, f"--seed={seed}", f"--thresholds={work / 'gates.toml'}", f"--journal={work / 'journal'}"]
    if form == "report of another batch size":
        baseline = work / "baseline.json"
        _run(["--model", str(model), f"--batch-size={sizes[1]}", f"--report-json={baseline}", "--full", *common])
    elif form != "its path":
        baseline = work / "baseline"
        shutil.copytree(model, baseline)
        FORMS[form](baseline)
    report = work / "report.json"
    words = ["--model", str(model), "--baseline", str(baseline), f"--batch-size={sizes[0]}", f"--report-json={report}"]
    printed = _run([*words, *common])
    try:
        gates = [gate for gate in json.loads(report.read_text())["gates"] if gate["kind"] == "regression"]
    except OSError:
        return f"no report: {printed.strip().splitlines()[-1:]}"
    return ", ".join(sorted({gate["verdict"] for gate in gates})) or "no comparison"


def _run(words: Sequence[str]) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_CURRENT")}
    ended = subprocess.run(
        [str(preloaded("longctx")), "run", *words], env=inherited, check=False, capture_output=True, text=True
    )
    return ended.stdout + ended.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each gate and a summary; return 1 if a limit is exceeded, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", metavar="CKPT", help="a directory, or calibration:SPEC")
    parser.add_argument("--gates", type=int, default=200, help="default: 200")
    parser.add_argument("--samples", default="48", help="of each task (default: 48)")
    parser.add_argument("--batch-sizes", type=numbers, default=(1, 8, 32), help="default: 1,8,32")
    parser.add_argument("-k", dest="tasks", default=TASKS, help=f"default: {TASKS}")
    parser.add_argument("--length", default="512", help="default: 512")
    parser.add_argument("--dtype", default="bfloat16", help="default: bfloat16")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first gate (default: 0)")
    args = parser.parse_args(arguments)
    start_server()
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        models = []
        for number, name in enumerate(args.checkpoints):
            kind, _, spec = name.partition(":")
            if kind == "calibration" and spec:
                build(parse_spec(spec), Path(folder, str(number)))
            models.append(Path(folder, str(number)) if kind == "calibration" and spec else Path(name).resolve())
        options = [
            "--suite=ruler", "-k", args.tasks, "--lengths", args.length, "--samples", args.samples,
            "--dtype", args.dtype,
        ]  # fmt: skip
        for number in range(args.gates):
            form = list(FORMS)[number % len(FORMS)]
            turn = number // len(FORMS)
            size, other = (args.batch_sizes[(turn + shift) % len(args.batch_sizes)] for shift in (0, 1))
            place = turn // len(args.batch_sizes) % len(models)
            verdict = run_gate(models[place], form, (size, other), args.seed + number, options, Path(folder, "work"))
            verdicts[verdict] += 1
            print(f"{args.checkpoints[place]}, {form}, --batch-size {size}: {verdict}", flush=True)
    print("; ".join(f"{verdict}: {count}" for verdict, count in verdicts.most_common()))
    return 0 if set(verdicts) <= {"pass", "lost here"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
