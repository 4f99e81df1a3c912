"""From case results to verdicts: thresholds, effective length, statistics."""
