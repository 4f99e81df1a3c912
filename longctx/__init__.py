"""The suite as one command, `longctx`, and as a library."""
