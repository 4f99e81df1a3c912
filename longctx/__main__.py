"""`python -m longctx` is the command `longctx`."""

import sys

from longctx.cli import main

if __name__ == "__main__":
    sys.exit(main())
