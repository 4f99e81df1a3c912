"""Try many malformed inputs: `python -m tests.fuzz --count 5000 --seed 0 [--kind NAME]`.

Prints a line for each input that does not end as it must, and a table by kind. Exits 1 if there was one.
"""

import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from longctx.fixtures.cli import CommandParser, print_line
from tests.fuzz.kinds import KINDS, findings, sound_folder


def main() -> int:
    """Return the exit code."""
    parser = CommandParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="inputs in all, spread over the kinds (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (default: 0)")
    parser.add_argument("--kind", nargs="+", choices=sorted(KINDS), metavar="NAME", help="only these kinds")
    given = parser.parse_args()
    kinds = given.kind or list(KINDS)
    ends: Counter[tuple[str, str]] = Counter()
    # Ctrl-C ends it with the table of what was tried.
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder:
        sound = sound_folder(Path(folder))
        for number in range(given.count):
            kind, seed = kinds[number % len(kinds)], given.seed + number // len(kinds)
            outcome = findings(kind, sound, seed=seed)
            ends[kind, outcome.problem or f"exit code {outcome.code}"] += 1
            if outcome.problem:
                said = (outcome.output + outcome.errors).strip().splitlines() or [""]
                print_line(f"{kind} {seed}: {outcome.problem}: {said[-1][:200]!r}")
    for (kind, end), count in sorted(ends.items()):
        print_line(f"{kind:24} {end:36} {count:5}")
    print_line(f"{len(kinds)} kinds, {ends.total()} inputs")
    return any(end not in ("exit code 0", "exit code 1", "exit code 4", "exit code 5") for _, end in ends)


if __name__ == "__main__":
    raise SystemExit(main())
