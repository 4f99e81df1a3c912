"""List the faults, or write a checkpoint with one that happened elsewhere, to see that the gates catch it.

    python -m benchmarks.faults list
    python -m benchmarks.faults inject CKPT OUT --fault NAME [--strength 0.5]

A fault of the running engine is injected by `pytest -p benchmarks.faults.plugin --inject-fault NAME:STRENGTH`.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.faults.checkpoint_faults import CHECKPOINT_FAULTS, CheckpointFault, FaultError, write_faulty
from benchmarks.faults.engine_faults import ENGINE_FAULTS, find_fault
from longctx.fixtures.checkpoints.checkpoint import read_checkpoint
from longctx.fixtures.checkpoints.safetensors import CheckpointError


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 4 after one line if the fault cannot be injected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="list all faults with the threads that show them")
    inject = commands.add_parser("inject", help="write a checkpoint with a fault to a new directory")
    inject.add_argument("checkpoint", metavar="CKPT", help="checkpoint directory")
    inject.add_argument("out", type=Path, metavar="OUT", help="directory to write; created if missing")
    inject.add_argument("--fault", required=True, metavar="NAME", help="one of the list")
    inject.add_argument("--strength", type=float, metavar="0.5", help="above 0, at most 1 (default: as it happened)")
    options = parser.parse_args(arguments)
    if options.command == "list":
        for place, faults in (("checkpoint", CHECKPOINT_FAULTS), ("engine", ENGINE_FAULTS)):
            for listed in faults.values():
                print(f"{listed.name} ({place}): {listed.summary}")
                print(f"    strength {listed.usual:g} as it happened; scale: {listed.scale}")
                print(f"    {', '.join(listed.threads)}")
        return 0
    try:
        fault = find_fault(options.fault)
        if not isinstance(fault, CheckpointFault):
            raise FaultError("is a fault of the running engine; use pytest -p benchmarks.faults.plugin --inject-fault")
        strength = fault.usual if options.strength is None else options.strength
        write_faulty(read_checkpoint(options.checkpoint, option="CKPT"), options.out, fault, strength)
    except (FaultError, CheckpointError, OSError) as error:
        print(f"--fault: {options.fault}: {error}", file=sys.stderr)
        return 4
    print(f"{options.out}: {options.fault} at strength {strength:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
