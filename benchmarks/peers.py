"""Compare a run of the suite with lm-evaluation-harness at equal work: checkpoint, prompts, number format and threads.

    python -m benchmarks.peers path/to/ckpt --peer-python ENV/bin/python --out DIR [--length 1k] [--samples 24]

`--peer-python` is the Python of an environment in which lm_eval is installed. Both programs answer the same prompts,
which this suite builds, greedily and with the same limit of tokens; both answers are graded by this suite. Start-up
counts. The programs take turns for `--rounds` rounds; without `--peer-python`, only this suite runs. Every finished run
is kept in DIR/rows.jsonl, and the same command continues after a stop. The table, also in DIR/table.md, has medians,
with the least and the most in brackets. CPU seconds are those of the process and its children.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.kept_rows import KeptRows
from longctx.fixtures.corpora import Corpora
from longctx.fixtures.lengths import parse_length
from longctx.fixtures.records import Sample
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization.load import load_tokenizer
from longctx.fixtures.tokenization.prompts import PromptFormatter

REPOSITORY = Path(__file__).parents[1]
OURS = "longctx"
# A task of lm-evaluation-harness that sends prompts as they stand and keeps the answers.
PEER_TASK = """task: longctx_prompts
dataset_path: json
dataset_kwargs:
  data_files:
    test: {prompts}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: ""
generation_kwargs:
  until: []
  max_gen_toks: {tokens}
  do_sample: false
metric_list:
  - metric: bypass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of both programs."""

    checkpoint: str
    tasks: tuple[str, ...]
    length: str
    samples: tuple[Sample, ...]
    """All samples, by task and index."""
    count: int
    """Samples of each task."""
    dtype: str
    threads: int
    out: Path

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts together."""
        return sum(len(sample.prompt.token_ids) for sample in self.samples)


def make_work(given: argparse.Namespace) -> Work:
    """Build the samples, and write what the other program reads into the output folder."""
    tasks = tuple(given.tasks.split(","))
    formatter = PromptFormatter(load_tokenizer(given.checkpoint), chat="off")
    length, corpora = parse_length(given.length), Corpora()
    samples = tuple(
        TASKS[task].sample(length, index, seed=0, tokenizer=formatter, corpora=corpora)
        for task in tasks
        for index in range(given.samples)
    )
    folder = given.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": sample.prompt.text}) + "\n" for sample in samples))
    answer_tokens = max(sample.prompt.generation_tokens for sample in samples)
    (folder / "longctx_prompts.yaml").write_text(PEER_TASK.format(prompts=prompts, tokens=answer_tokens))
    return Work(
        checkpoint=str(Path(given.checkpoint).absolute()), tasks=tasks, length=given.length, samples=samples,
        count=given.samples, dtype=given.dtype, threads=given.threads, out=folder,
    )  # fmt: skip


def run_timed(command: Sequence[str], work: Work, name: str) -> dict[str, float]:
    """Run a program and return its wall and CPU seconds; raise RuntimeError with its last lines if it fails."""
    log = work.out / f"{name}.log"
    threads = str(work.threads)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")} | {
        "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
    }  # fmt: skip
    started = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=file, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1) or (process.returncode and name != OURS):
        raise RuntimeError(f"{name}: exit code {process.returncode}\n{log.read_text()[-2000:]}")
    return {"wall_seconds": time.monotonic() - started, "cpu_seconds": usage.ru_utime + usage.ru_stime}


def run_ours(work: Work, batch: str) -> dict[str, Any]:
    """Run the suite with a new journal; return its times, tokens and scores."""
    journal, report = work.out / "journal", work.out / "report.json"
    shutil.rmtree(journal, ignore_errors=True)
    command = [
        sys.executable, "-m", "longctx", "run", "--model", work.checkpoint, "--lengths", work.length, "--full",
        "--samples", str(work.count), "-k", " or ".join(work.tasks), "--chat", "off", "--dtype", work.dtype,
        "--batch-size", batch, "--device", "cpu", "--journal", str(journal), "--report-json", str(report),
    ]  # fmt: skip
    times = run_timed(command, work, OURS)
    document = json.loads(report.read_text())
    phases = {name: seconds for name, seconds in document["run"]["worker_seconds"].items() if seconds >= 0.05}
    tokens = document["run"]["tokens"]
    scores = {case["task"]: case["score"] for case in document["cases"] if case["score"] is not None}
    assert set(scores) == set(work.tasks), scores
    return {**times, "computed_tokens": tokens["computed"], "phases": phases, "scores": scores}


def run_peer(work: Work, batch: str, python: str) -> dict[str, Any]:
    """Run lm-evaluation-harness on the same prompts; return its times, and scores by this suite's rules."""
    results = work.out / "lm_eval"
    shutil.rmtree(results, ignore_errors=True)
    command = [
        python, "-m", "lm_eval", "run", "--model", "hf", "--model_args",
        f"pretrained={work.checkpoint},dtype={work.dtype}", "--tasks", "longctx_prompts", "--include_path",
        str(work.out), "--batch_size", batch, "--device", "cpu", "--output_path", str(results), "--log_samples",
    ]  # fmt: skip
    times = run_timed(command, work, "lm_eval")
    (file,) = results.rglob("samples_*.jsonl")
    lines = sorted(map(json.loads, file.read_text().splitlines()), key=lambda line: int(line["doc_id"]))
    values: dict[str, list[float]] = {}
    for sample, line in zip(work.samples, lines, strict=True):
        values.setdefault(sample.task, []).append(TASKS[sample.task].score(sample, line["resps"][0][0]).value)
    return {**times, "scores": {task: 100 * mean(scores) for task, scores in values.items()}}


def table(rows: Sequence[Mapping[str, Any]], work: Work) -> list[str]:
    """Return the table in Markdown: one line for each program and batch."""
    lines = [
        "| program | rounds | CPU s | wall s | prompt tokens per CPU s | CPU time, ours = 1 | scores |",
        "|---|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys(row["name"] for row in rows)
    own = [row["cpu_seconds"] for row in rows if row["name"] == f"{OURS}, batch 0"]
    for name in names:
        of_name = [row for row in rows if row["name"] == name]
        cells = []
        for key in ("cpu_seconds", "wall_seconds"):
            values = [row[key] for row in of_name]
            cells.append(f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
        cpu = median(row["cpu_seconds"] for row in of_name)
        ratio = f"{cpu / median(own):.2f}" if own else ""
        scores = ", ".join(f"{score:.1f}" for score in of_name[-1]["scores"].values())
        rate = f"{work.prompt_tokens / cpu:.0f}"
        lines.append(f"| {name} | {len(of_name)} | {' | '.join(cells)} | {rate} | {ratio} | {scores} |")
    for name in names:
        last = next(row for row in reversed(rows) if row["name"] == name)
        if "phases" in last:
            share = last["computed_tokens"] / work.prompt_tokens
            phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in last["phases"].items())
            lines.append(f"\n{name}: computed {share:.2f} of the prompts' tokens; {phases}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and print the table after every run; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint")
    parser.add_argument("--peer-python")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default="niah_single_2,niah_multikey_1")
    parser.add_argument("--length", default="1k")
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own-batches", default="0", help="numbers of prompts, 0 for the automatic one")
    parser.add_argument("--peer-batches", default="1,8")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    work = make_work(given)
    kept = KeptRows(work.out / "rows.jsonl", ("fixtures/engines", "plugins/runner"))
    setting = {
        "checkpoint": work.checkpoint, "tasks": work.tasks, "length": work.length, "samples": work.count,
        "dtype": work.dtype, "threads": work.threads,
    }  # fmt: skip
    rows: list[Mapping[str, Any]] = []
    for turn in range(given.rounds):
        own = given.own_batches.split(",")
        turns = [(OURS, batch) for batch in own]
        turns += [("lm-eval", batch) for batch in given.peer_batches.split(",") if given.peer_python]
        for program, batch in turns:
            settings = setting | {"program": program, "batch": batch, "round": turn}
            row = kept.get(settings)
            if row is None:
                row = run_ours(work, batch) if program == OURS else run_peer(work, batch, given.peer_python)
                kept.add(settings, row)
            rows.append({"name": f"{program}, batch {batch}", **row})
            text = "\n".join(table(rows, work))
            (work.out / "table.md").write_text(text + "\n")
            print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
