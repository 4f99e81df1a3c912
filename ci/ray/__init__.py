"""The suite's workers as tasks of a Ray cluster."""
