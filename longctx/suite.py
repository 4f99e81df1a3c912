"""Run pytest on the suite in this process. SIGHUP ends it as Ctrl-C does.

pytest shows the place in the code at which Ctrl-C reached it; before it can do that, Python does.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 2
BROKEN_PIPE = 141


def main() -> int:
    """Return pytest's exit code; 2 after one line if Ctrl-C ends it before it has read its options."""
    # Not if `nohup` has it ignored.
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _interrupt)
    try:
        import pytest

        code = int(pytest.main())
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended. Python would fail again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the first sample; the same command starts again\n")
        sys.stderr.flush()
        # Python may otherwise end itself by the signal again.
        os._exit(INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
