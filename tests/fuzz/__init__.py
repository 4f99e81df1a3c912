"""Malformed inputs at every boundary: each must end in one line, never in a traceback or a hang."""
