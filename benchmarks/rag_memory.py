"""Measure the memory of workers that read the same large file of retrieved passages: six of them against one.

    python -m benchmarks.rag_memory [--gibibytes 2] [--workers 6] [--questions 50] [--json FILE]

Writes a file in HELMET's layout (1000 passages a line, six lines a question) to a temporary directory, which is
removed at the end. Every worker opens the file and reads questions of its own; memory is measured while all of them
are running. `own` is the memory of that process alone (USS), `share` divides shared memory among its users (PSS), and
`peak` is the largest resident size. Limits: exit code 1 if all workers together hold MAX_GROWTH_MEBIBYTES more than one
worker, at their peaks too, or if opening the file takes more than MAX_OPEN_SECONDS of CPU time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from longctx.fixtures.corpora import load_corpora
from longctx.fixtures.corpora.synthetic.prose import sentence

PASSAGES, DEPTHS = 1000, 6
MAX_GROWTH_MEBIBYTES, MAX_OPEN_SECONDS = 300, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Memory and CPU time of one worker; the field names are keys of the JSON file."""

    own: float
    """Memory of this process alone (USS), MiB."""
    share: float
    """Memory with shared pages divided among their users (PSS), MiB."""
    peak: float
    """Largest resident size, MiB."""
    open_seconds: float
    """CPU time for opening the file."""
    question_seconds: float
    """CPU time for reading one question."""


def main() -> int:
    """Print the memory of one and of many workers; return 1 if a limit is exceeded, else 0."""
    options = _options()
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kilt" / f"nq-dev-multikilt_1000_k{PASSAGES}_dep{DEPTHS}.jsonl"
        write_file(path, options.gibibytes)
        say(f"{path.stat().st_size / 2**30:.2f} GiB, {PASSAGES} passages a line\n")
        counts = (1, options.workers)
        usages = {workers: measure(folder, workers, options.questions) for workers in counts}
    say(f"{'workers':>7} {'own':>8} {'share':>8} {'peak':>8}   MiB, all workers together\n")
    totals = {}
    for workers, group in usages.items():
        totals[workers] = {name: sum(getattr(usage, name) for usage in group) for name in ("own", "share", "peak")}
        say(f"{workers:7d} {' '.join(f'{total:8.1f}' for total in totals[workers].values())}\n")
    one, many = (totals[workers] for workers in counts)
    growth = {name: many[name] - one[name] for name in one}
    opening = max(usage.open_seconds for group in usages.values() for usage in group)
    reading = max(usage.question_seconds for group in usages.values() for usage in group)
    say(f"open {opening:.2f} s CPU, required <= {MAX_OPEN_SECONDS}; a question {1000 * reading:.1f} ms CPU\n")
    growths = ", ".join(f"{name} {more:.1f}" for name, more in growth.items())
    say(f"growth {growths} MiB, required < {MAX_GROWTH_MEBIBYTES}\n")
    if options.json:
        report = {"growth_mebibytes": growth, "open_seconds": opening, "question_seconds": reading}
        report |= {"workers": {workers: [asdict(usage) for usage in group] for workers, group in usages.items()}}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if max(growth.values()) < MAX_GROWTH_MEBIBYTES and opening <= MAX_OPEN_SECONDS else 1


def write_file(path: Path, gibibytes: float) -> None:
    """Write questions until the file has its size; every passage has about 100 words."""
    path.parent.mkdir(parents=True)
    texts = [" ".join(sentence(8 * n + at) for at in range(8)) for n in range(4 * PASSAGES)]
    passages = [json.dumps({"id": f"p{n}", "title": f"Title {n}", "text": text}) for n, text in enumerate(texts)]
    question = 0
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < gibibytes * 2**30:
            first = 37 * question % (3 * PASSAGES)
            others = passages[first : first + PASSAGES - 1]
            gold = json.dumps({"id": f"g{question}", "title": "Gold", "text": f"It is answer{question}."})
            for depth in range(DEPTHS):
                at = round(depth * len(others) / (DEPTHS - 1))
                contexts = ", ".join((*others[:at], gold, *others[at:]))
                head = json.dumps({"question": f"What is {question}?", "answers": [f"answer{question}"]})
                file.write(f'{head[:-1]}, "ctxs": [{contexts}], "depth": {depth / (DEPTHS - 1)}}}\n')
            question += 1


def measure(folder: str, workers: int, questions: int) -> list[Usage]:
    """Run all workers at the same time, in processes of their own as pytest-xdist starts them."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(target=_work, args=(folder, number, workers, questions, barrier, results))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    usages = [results.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return usages


def _work(
    folder: str, number: int, workers: int, questions: int, barrier: Barrier, results: multiprocessing.Queue[Usage]
) -> None:
    started = time.process_time()
    collection = load_corpora(folder).collection("nq")
    assert collection is not None
    opened = time.process_time()
    chosen = range(number, len(collection), workers)[:questions]
    for index in chosen:
        question = collection[index]
        assert len(question.others) == PASSAGES - 1
        assert [passage.title for passage in question.gold] == ["Gold"]
    finished = time.process_time()
    barrier.wait(timeout=600)
    rollup = Path("/proc/self/smaps_rollup").read_text()
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+): +([0-9]+) kB", rollup, re.MULTILINE)}
    results.put(
        Usage(
            own=(sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024,
            share=sizes["Pss"] / 1024,
            peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            open_seconds=opened - started,
            question_seconds=(finished - opened) / max(1, len(chosen)),
        )
    )
    # Workers stay until all are measured: shared memory would otherwise be divided among fewer.
    barrier.wait(timeout=600)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gibibytes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--questions", type=int, default=50, help="questions that a worker reads (default: 50)")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
