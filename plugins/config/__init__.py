"""Options, files and checkpoints, turned into the values that a run works with."""
