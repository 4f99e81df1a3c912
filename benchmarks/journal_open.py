"""Measure CPU time and memory of opening a large journal as a worker does.

    python -m benchmarks.journal_open [--journal DIR] [--samples 100000] [--runs 5] [--before PATH]

The script writes a journal of so many samples in the files of 64 workers, each with an excerpt of its prompt. With
`--journal` they are copies of the lines of a real journal, with other keys and references; without it they are random
text. A new process then opens the journal, with a heartbeat, and reads it once. `--before` names another clone, with
its own `.venv`, which opens the same journal; the two clones take turns. The figures are medians of whole processes.
Exit code 1 means that this clone needs more than a third of the other one's CPU time or memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, cycle, islice
from pathlib import Path
from random import Random

from msgspec.structs import replace

from longctx.fixtures.records import Excerpt, Generation, Outcome, Score
from longctx.plugins.journal import Entry, Subject
from longctx.plugins.journal.lines import decode_line, encode_line, encode_subject

REPOSITORY = Path(__file__).parents[1]
MAX_RATIO = 1 / 3
SUBJECT = Subject(model="benchmark", fingerprint="0" * 64, execution={"engine": "hf", "dtype": "bfloat16"})
CASES, REFERENCES = 26, 4
DIFFERENT_ENTRIES = 10_000
WORKERS = 64
ANSWER_CHARACTERS, EXCERPT_CHARACTERS = 200, 160
OPEN = """
import json, resource, sys
from pathlib import Path
import longctx.plugins.journal as journal
directory = Path(sys.argv[1])
subject = journal.Subject(**json.loads(next(directory.glob("*/subject.json")).read_text()))
with journal.Heartbeat(directory, "run") as heartbeat:
    opened = journal.Journal(directory, subject, heartbeat)
    samples = opened.refresh()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([samples, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The resources of one process."""

    cpu_seconds: float
    peak_mib: float


def stored_entries(directory: Path) -> list[Entry]:
    """Return the entries of a journal, of all its subjects; raises ValueError if there are none."""
    lines = (line for file in sorted(directory.glob("*/*.jsonl")) for line in file.read_bytes().splitlines())
    entries = [entry for line in lines if isinstance(entry := decode_line(line), Entry)]
    if not entries:
        raise ValueError(f"--journal: {directory} has no results; give a directory that a run had as --journal")
    return entries


def random_entries(random: Random) -> Iterator[Entry]:
    """Yield entries with random text, the number of characters that real ones have, and half of the answers right."""

    def text(characters: int) -> str:
        return "".join(random.choices("abcdefghijklmnopqrstuvwxyz    ", k=characters))

    for number in count():
        references = tuple(text(20) for _ in range(REFERENCES))
        parts = {reference: float(random.random() < 0.5) for reference in references}
        score = Score(value=sum(parts.values()) / REFERENCES, parts=parts, failure="incomplete")
        generation = Generation(
            text=text(ANSWER_CHARACTERS), prompt_tokens=4000, generated_tokens=50, computed_tokens=4050,
            reused_tokens=0, finish="stop", seconds=random.random(),
        )  # fmt: skip
        excerpt = Excerpt(**{name: text(EXCERPT_CHARACTERS) for name in Excerpt.__struct_fields__})
        outcome = Outcome(
            index=number // CASES, score=score, generation=generation, references=references,
            depths=tuple(random.random() for _ in references), excerpt=excerpt,
        )  # fmt: skip
        yield Entry(key="0", prompt="0", case=f"test_ruler[task_{number % CASES}-4k]", index=0, outcome=outcome)


def many_entries(directory: Path | None, samples: int) -> Iterator[Entry]:
    """Yield so many entries with different keys and references."""
    random = Random(0)
    some = list(islice(random_entries(random), DIFFERENT_ENTRIES)) if directory is None else stored_entries(directory)
    source = cycle(some)
    for number, entry in enumerate(islice(source, samples)):
        references = tuple(f"{reference} {number}" for reference in entry.outcome.references)
        yield replace(
            entry,
            key=f"{random.getrandbits(64):016x}",
            prompt=f"{random.getrandbits(128):032x}",
            outcome=replace(entry.outcome, references=references),
        )


def write_journal(directory: Path, entries: Iterator[Entry]) -> None:
    """Write a journal as many workers do, each with a file of its own."""
    folder = directory / SUBJECT.key
    folder.mkdir(parents=True)
    (folder / "subject.json").write_bytes(encode_subject(SUBJECT))
    with ExitStack() as stack:
        paths = [folder / f"host-{number}-00000000.jsonl" for number in range(1, WORKERS + 1)]
        files = cycle([stack.enter_context(path.open("wb")) for path in paths])
        for entry, file in zip(entries, files, strict=False):
            file.write(encode_line(entry))


def open_journal(clone: Path, directory: Path, samples: int) -> Usage:
    """Open the journal in a new process of a clone; raises RuntimeError if it does not read all samples."""
    ended = subprocess.run(
        [clone / ".venv" / "bin" / "python", "-c", OPEN, directory],
        cwd=clone, env={"PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise RuntimeError(f"{clone}: {ended.stderr}")
    read, cpu_seconds, peak_mib = json.loads(ended.stdout)
    if read != samples:
        raise RuntimeError(f"{clone}: {read} of {samples} samples were read")
    return Usage(cpu_seconds=cpu_seconds, peak_mib=peak_mib)


def median(usages: Sequence[Usage]) -> Usage:
    """Return the medians of both figures."""
    return Usage(
        cpu_seconds=statistics.median(usage.cpu_seconds for usage in usages),
        peak_mib=statistics.median(usage.peak_mib for usage in usages),
    )


def table(now: Usage, before: Usage | None) -> list[str]:
    """Return the figures side by side, or of this clone alone."""
    if before is None:
        return [f"CPU seconds {now.cpu_seconds:.2f}", f"peak MiB    {now.peak_mib:.2f}"]
    lines = [f"{'':<12}{'this clone':>12}{'before':>12}{'ratio':>8}"]
    for name, value, other in (
        ("CPU seconds", now.cpu_seconds, before.cpu_seconds),
        ("peak MiB", now.peak_mib, before.peak_mib),
    ):
        lines.append(f"{name:<12}{value:>12.2f}{other:>12.2f}{value / other:>8.2f}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if this clone needs more than a third of the other one's resources, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--journal", type=Path, metavar="DIR", help="copy the lines of this journal")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", type=Path, metavar="PATH", help="another clone to compare with")
    args = parser.parse_args(arguments)
    now: list[Usage] = []
    before: list[Usage] = []
    with tempfile.TemporaryDirectory(prefix="journal-open-") as name:
        directory = Path(name)
        write_journal(directory, many_entries(args.journal, args.samples))
        for _ in range(args.runs):
            now.append(open_journal(REPOSITORY, directory, args.samples))
            if args.before:
                before.append(open_journal(args.before.resolve(), directory, args.samples))
    ours, theirs = median(now), median(before) if before else None
    print("\n".join(table(ours, theirs)))
    if theirs is None:
        return 0
    ratios = (ours.cpu_seconds / theirs.cpu_seconds, ours.peak_mib / theirs.peak_mib)
    return int(max(ratios) > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
