"""From evidence and thresholds to verdicts."""
