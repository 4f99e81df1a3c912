"""Run pytest on the suite in this process. SIGHUP ends it as Ctrl-C does.

pytest shows the place in the code at which Ctrl-C reached it; before it can do that, Python does.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from types import FrameType

INTERRUPTED = 2


def main() -> None:
    """Exit as `python -m pytest` does; with 2 and one line if Ctrl-C comes before pytest has read its options."""
    # Not if `nohup` has it ignored.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the first sample; the same command starts again\n")
        sys.stderr.flush()
        # Python may otherwise end itself by the signal again.
        os._exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
