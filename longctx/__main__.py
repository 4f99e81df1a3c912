"""`python -m longctx` is the command `longctx`."""

from __future__ import annotations

import sys

from longctx.cli import main

if __name__ == "__main__":
    sys.exit(main())
