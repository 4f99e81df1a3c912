"""What workers hold in memory that read one large file of retrieved passages: six of them beside one.

    python -m benchmarks.rag_memory [--gibibytes 2] [--workers 6] [--questions 50] [--json FILE]

Writes a file in HELMET's layout (1000 passages a line, six lines a question) to a temporary directory, removed
afterwards. Every worker opens it and reads questions that no other reads; memory is looked at while all of them
are still there. `own` is what only that process holds (USS), `share` counts what several hold once (PSS), `peak` is
the most that was ever resident. Exits with 1 when the workers together hold MOST_GROWTH MiB more than one, at
their peaks too, or opening the file takes longer than MOST_OPEN_SECONDS of CPU time.
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

from fixtures.corpora import load_corpora
from fixtures.corpora.synthetic.prose import sentence

PASSAGES, DEPTHS = 1000, 6
MOST_GROWTH, MOST_OPEN_SECONDS = 300, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One worker; memory in MiB, seconds of CPU time."""

    own: float
    share: float
    peak: float
    open_seconds: float
    question_seconds: float


def main() -> int:
    options = _options()
    say = sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kilt" / f"nq-dev-multikilt_1000_k{PASSAGES}_dep{DEPTHS}.jsonl"
        write_file(path, options.gibibytes)
        say(f"{path.stat().st_size / 2**30:.2f} GiB, {PASSAGES} passages a line\n")
        counts = (1, options.workers)
        found = {workers: measured(folder, workers, options.questions) for workers in counts}
    say(f"{'workers':>7} {'own':>8} {'share':>8} {'peak':>8}   MiB, all workers together\n")
    totals = {}
    for workers, held in found.items():
        totals[workers] = {name: sum(getattr(one, name) for one in held) for name in ("own", "share", "peak")}
        say(f"{workers:7d} {' '.join(f'{total:8.1f}' for total in totals[workers].values())}\n")
    one, many = (totals[workers] for workers in counts)
    growth = {name: many[name] - one[name] for name in one}
    opening = max(each.open_seconds for held in found.values() for each in held)
    asking = max(each.question_seconds for held in found.values() for each in held)
    say(f"open {opening:.2f} s CPU, required <= {MOST_OPEN_SECONDS}; a question {1000 * asking:.1f} ms CPU\n")
    say(f"growth {', '.join(f'{name} {more:.1f}' for name, more in growth.items())} MiB, required < {MOST_GROWTH}\n")
    if options.json:
        report = {"growth_mebibytes": growth, "open_seconds": opening, "question_seconds": asking}
        report |= {"workers": {workers: [asdict(each) for each in held] for workers, held in found.items()}}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if max(growth.values()) < MOST_GROWTH and opening <= MOST_OPEN_SECONDS else 1


def write_file(path: Path, gibibytes: float) -> None:
    """Questions until the file has its size; every passage has about 100 words."""
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


def measured(folder: str, workers: int, questions: int) -> list[Held]:
    """All workers at once, each a process of its own as pytest-xdist starts them."""
    context = multiprocessing.get_context("spawn")
    ready, found = context.Barrier(workers), context.Queue()
    processes = [
        context.Process(target=_work, args=(folder, number, workers, questions, ready, found))
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    held = [found.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return held


def _work(
    folder: str, number: int, workers: int, questions: int, ready: Barrier, found: multiprocessing.Queue[Held]
) -> None:
    started = time.process_time()
    collection = load_corpora(folder).collection("nq")
    assert collection is not None
    opened = time.process_time()
    chosen = range(number, len(collection), workers)[:questions]
    for index in chosen:
        question = collection[index]
        assert len(question.others) == PASSAGES - 1
        assert [one.title for one in question.gold] == ["Gold"]
    asked = time.process_time()
    ready.wait(timeout=600)
    rollup = Path("/proc/self/smaps_rollup").read_text()
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+): +([0-9]+) kB", rollup, re.MULTILINE)}
    found.put(
        Held(
            own=(sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024,
            share=sizes["Pss"] / 1024,
            peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            open_seconds=opened - started,
            question_seconds=(asked - opened) / max(1, len(chosen)),
        )
    )
    # None leaves before all have looked: what is shared would count for fewer.
    ready.wait(timeout=600)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gibibytes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--questions", type=int, default=50, help="that each worker reads")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
