"""Run pytest on the suite in this process. SIGTERM and SIGHUP end it as Ctrl-C does.

pytest shows the place in the code at which Ctrl-C reached it; before it can do that, Python does.
"""

import os
import runpy
import sys

from longctx.fixtures import interrupts

INTERRUPTED = 2


def main() -> None:
    """Exit as `python -m pytest` does; with 2 and one line if Ctrl-C comes before pytest has read its options."""
    interrupts.end_as_ctrl_c()
    try:
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command continues\n")
        sys.stderr.flush()
        # Python may otherwise end itself by the signal again.
        os._exit(INTERRUPTED)
    finally:
        # Python also does so at its end if Ctrl-C came in a text that was executed, such as the methods of a dataclass,
        # until the next such text.
        exec("pass")


if __name__ == "__main__":
    main()
