"""Record the golden outputs: `python -m tests.golden.record`.

Exits with 1, without writing the file, if an output changed but its version did not.
"""

import json
import sys

from longctx.fixtures.cli import CommandParser
from tests.golden.output import RECORDED, difference, read_recorded
from tests.golden.outputs import OUTPUTS


def main() -> int:
    """Write `recorded/*.json`; return the exit code."""
    CommandParser(prog="python -m tests.golden.record", description=__doc__).parse_args()
    refused = 0
    for kind, outputs in OUTPUTS.items():
        recorded, current = read_recorded(kind), list(outputs())
        problems = [difference(output, recorded) for output in current]
        unversioned = [problem for problem in problems if problem and "bump the version" in problem]
        for problem in unversioned:
            sys.stderr.write(problem + "\n")
        if unversioned:
            refused += 1
            continue
        content = {output.name: {"version": output.version, "value": output.value} for output in current}
        (RECORDED / f"{kind}.json").write_text(json.dumps(content, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return min(refused, 1)


if __name__ == "__main__":
    raise SystemExit(main())
