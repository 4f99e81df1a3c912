"""Test that the answers of a checkpoint do not depend on how its run is started, interrupted or divided.

    python -m benchmarks.same_answers CKPT [--batch-sizes 1,8,32] [--samples 24,48,250] [--dtype bfloat16]

Every batch size is run in several ways by the command that users start: in one process, with one worker and with two,
with all numbers of samples, on a new journal and on one that holds a part of the samples or of the tasks. At one batch
size, all stored answers to one sample must be equal: their texts, their ends and their numbers of tokens. The answers
of different batch sizes are counted against each other, but may differ; a journal keeps them apart.

The samples are sums and products (two tasks), in prompts of different lengths. Small models guess many of their digits,
so near ties are frequent, and an answer has three tokens. With -k they are those of RULER's tasks.

Limits: exit code 1 if an answer differs at one batch size, or if a run stores fewer answers than its samples.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longctx.fixtures.installation import SUITE as REPOSITORY

QUESTIONS = "sums or products"
DATASET = """[[dataset]]
name = "{name}"
version = 1
category = "qa"
source = {{ file = "{name}.jsonl" }}
fields = {{ question = "question", references = "answer" }}
prompt = {{ text = "{{notes}}What is {{question}}?", lead_in = "\\n{{question}} is" }}
budget = 3
metric = {{ name = "string_match_any" }}

"""
Answer = tuple[str, str, int]
"""The text of an answer, the reason of its end, and its number of tokens."""
Answers = Mapping[str, Answer]
"""Answers by the key of the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Commands that share a journal; the last one needs all samples of the way."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    """The options of each command."""


def ways(samples: Sequence[int], tasks: str) -> list[Way]:
    """Return the ways of measuring these numbers of samples; the first is the one that the others must agree with."""
    fewest, middle, most = (f"--samples={count}" for count in samples)
    alone, one, two, one_task = ("-n", "0"), ("-n", "1"), ("-n", "2"), ("-k", tasks.split(" or ", maxsplit=1)[0])
    everything = ("-k", tasks)
    return [
        Way(name=f"one worker, {most}", commands=((*one, most, *everything),)),
        Way(
            name=f"two workers, {fewest}, then one process, {middle}, then two workers, {most}",
            commands=((*two, fewest, *everything), (*alone, middle, *everything), (*two, most, *everything)),
        ),
        Way(
            name=f"one task, {fewest}, then all, {middle}, two workers",
            commands=((*alone, fewest, *one_task), (*two, middle, *everything)),
        ),
        Way(name=f"one process, {fewest}", commands=((*alone, fewest, *everything),)),
    ]


def write_questions(folder: Path, count: int) -> Path:
    """Write a tasks file with so many sums and products; return it."""
    rng = random.Random(0)
    path = folder / "questions.toml"
    path.write_text("".join(DATASET.format(name=name) for name in QUESTIONS.split(" or ")))
    for name, sign in (("sums", "plus"), ("products", "times")):
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(count):
                first, second = rng.randrange(12, 1000), rng.randrange(12, 100)
                notes = "".join(f"Note {number}. " for number in rng.sample(range(100), rng.randrange(12)))
                answer = first + second if sign == "plus" else first * second
                row = {"question": f"{first} {sign} {second}", "answer": str(answer), "notes": notes}
                file.write(json.dumps(row) + "\n")
    return path


def answers_of(journal: Path) -> dict[str, Answer]:
    """Return all answers of a journal with one subject."""
    answers: dict[str, Answer] = {}
    for path in sorted(journal.glob("*/*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            data = json.loads(line)
            if "element" in data:
                generation = data["outcome"]["generation"]
                answer = (generation["text"], generation["finish"], generation["generated_tokens"])
                answers.setdefault(data["element"], answer)
    return answers


def run(way: Way, folder: Path, options: Sequence[str]) -> tuple[dict[str, Answer], float]:
    """Run the commands of a way on a new journal; return its answers and the CPU seconds."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    before = os.times()
    folder.mkdir()
    # No gate, which the lengths of a run may not be able to decide.
    (folder / "thresholds.toml").write_text("")
    for command in way.commands:
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *options, *command, f"--journal={folder / 'journal'}", "--full"),
                *(f"--thresholds={folder / 'thresholds.toml'}", "-p", "no:cacheprovider"),
            ],
            cwd=REPOSITORY, env=inherited, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return answers_of(folder / "journal"), seconds


def differing(expected: Answers, got: Answers) -> int:
    """Return the number of samples with different answers among those that both have."""
    return sum(expected[key] != got[key] for key in expected.keys() & got.keys())


def measure(batch_size: int, arguments: argparse.Namespace, work: Path) -> tuple[Answers, bool]:
    """Run all ways at one batch size; return the answers of the first way, and False if one differs or is missing."""
    options = (
        *("--model", arguments.checkpoint, "--lengths", arguments.length, "--dtype", arguments.dtype),
        *(f"--batch-size={batch_size}", *arguments.questions),
    )
    first: Answers = {}
    is_same = True
    for number, way in enumerate(ways(arguments.samples, arguments.tasks)):
        started = time.monotonic()
        answers, cpu_seconds = run(way, work / f"{batch_size}-{number}", options)
        first = first or answers
        is_complete = bool(answers) and (
            len(answers) == len(first) or way.commands[-1][2] != f"--samples={arguments.samples[-1]}"
        )
        count = differing(first, answers)
        is_same = is_same and is_complete and not count
        print(
            f"--batch-size {batch_size}: {way.name}: {len(answers)} answers, {count} differ"
            f"{'' if is_complete else ', SOME ARE MISSING'} ({cpu_seconds:.0f} s of CPU time, "
            f"{time.monotonic() - started:.0f} s)",
            flush=True,
        )
    return first, is_same


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="directory of a checkpoint")
    parser.add_argument("--batch-sizes", type=numbers, default=(1, 8, 32), help="default: 1,8,32")
    parser.add_argument(
        "--samples", type=numbers, default=(24, 48, 250), help="three, of each task (default: 24,48,250)"
    )
    parser.add_argument("-k", dest="tasks", help="tasks of RULER joined by 'or' (default: sums and products)")
    parser.add_argument("--length", default="256", help="default: 256")
    parser.add_argument("--dtype", default="bfloat16", help="default: bfloat16")
    parsed = parser.parse_args(arguments)
    parsed.checkpoint = str(Path(parsed.checkpoint).resolve())
    by_size: dict[int, Answers] = {}
    are_same = []
    with tempfile.TemporaryDirectory() as work:
        parsed.questions = (
            () if parsed.tasks else ("--tasks-file", str(write_questions(Path(work), max(parsed.samples))))
        )
        parsed.tasks = parsed.tasks or QUESTIONS
        for batch_size in parsed.batch_sizes:
            by_size[batch_size], is_same = measure(batch_size, parsed, Path(work))
            are_same.append(is_same)
    sizes = list(by_size)
    for size in sizes[1:]:
        print(
            f"--batch-size {sizes[0]} and {size}: {differing(by_size[sizes[0]], by_size[size])} of "
            f"{len(by_size[size])} answers differ"
        )
    return 0 if all(are_same) else 1


def numbers(text: str) -> tuple[int, ...]:
    """Return the whole numbers of a list with commas."""
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
